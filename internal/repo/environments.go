package repo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/format/notation"
	keptfolders "e3/internal/host/kept"
	"e3/internal/host/modes"
)

// EnvironmentsSizeVariable is the bound on the environments of this machine's user, such as 20GiB.
const EnvironmentsSizeVariable = "E3_ENVIRONMENTS_SIZE"

// environments says how this process makes environments of programs.
func environments(r *Repo) executions.EnvironmentOptions {
	return executions.EnvironmentOptions{
		Folder: func() (string, error) { return environmentsFolder(r, true) },
		Bytes:  func() (int64, error) { return environmentsSize(r) },
		Env:    ownVariables(os.Environ()),
	}
}

// environmentsFolder is the folder of all environments of this user, whatever the repository. No part of its path is a
// link, since programs store their path.
func environmentsFolder(r *Repo, make bool) (string, error) {
	dir, err := r.cacheDir()
	if err != nil || !make {
		return filepath.Join(realPath(dir), "environments"), err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	dir = realPath(dir)
	if strings.ContainsAny(dir, ":\n") {
		return "", fmt.Errorf("the PATH of programs cannot hold %q: set %s to another folder", dir, CacheDirVariable)
	}
	if err := modes.Alone(dir); err != nil {
		return "", fmt.Errorf("no environment can be kept: %w; set %s to a folder of this user alone", err, CacheDirVariable)
	}
	return modes.PrivateFolder(filepath.Join(dir, "environments"))
}

// environmentsSize is the greatest size of all environments.
func environmentsSize(r *Repo) (int64, error) {
	return r.size(EnvironmentsSizeVariable, executions.DefaultEnvironmentBytes)
}

// size is the size in a variable of the environment, such as 20GiB, or the default if the variable is not set.
func (r *Repo) size(variable string, byDefault int64) (int64, error) {
	text := r.opts.Getenv(variable)
	if text == "" {
		return byDefault, nil
	}
	size, err := notation.SizeOf(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", variable, err)
	}
	return size, nil
}

// ownVariables leaves out what is meant for e3.
func ownVariables(env []string) []string {
	var list []string
	for _, e := range env {
		if !strings.HasPrefix(e, "E3_") {
			list = append(list, e)
		}
	}
	return list
}

// TrimEnvironments removes old environments of this user, or all that no process uses. A dry run only counts them.
func (r *Repo) TrimEnvironments(all, dry bool) (keptfolders.Trimmed, error) {
	folder, err := environmentsFolder(r, false)
	if err != nil { // no folder is known, so there are none
		return keptfolders.Trimmed{}, nil
	}
	size, err := environmentsSize(r)
	if err != nil {
		return keptfolders.Trimmed{}, err
	}
	bound := executions.EnvironmentBound(size)
	if all {
		bound.Age = time.Nanosecond
	}
	return keptfolders.Folders(folder).Trim(r.opts.Now(), bound, dry)
}
