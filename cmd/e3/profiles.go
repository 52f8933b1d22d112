package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"e3/internal/format/notation"
	"e3/internal/jobs/profile"
	"e3/internal/jobs/queue"
	"e3/internal/settings"
)

// A namedProfile is the profile that the name of an executor means.
type namedProfile struct {
	name string
	file string // "": it is shipped
	text []byte
}

// profileFolder is where a user keeps profiles, as <name>.yaml.
func profileFolder() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the folder of your configuration: %w", err)
	}
	return filepath.Join(dir, "e3", "executors"), nil
}

// profileNames are those of the user's own profiles, and of the shipped ones.
func profileNames() (own, shipped []string) {
	list := func(folder fs.FS, pattern string) (names []string) {
		files, _ := fs.Glob(folder, pattern)
		for _, file := range files {
			names = append(names, strings.TrimSuffix(path.Base(file), ".yaml"))
		}
		return names
	}
	if dir, err := profileFolder(); err == nil {
		own = list(os.DirFS(dir), "*.yaml")
	}
	return own, list(profile.Shipped, "profiles/*.yaml")
}

// findProfile finds what an executor's name means: a file if it has a slash, else the user's own profile of that name,
// else the shipped one. No name leads to a file of a repository or a project: a profile's commands run as this user.
func findProfile(name string) (*namedProfile, error) {
	own, shipped := profileNames()
	switch {
	case strings.Contains(name, "/"):
		return readProfile(strings.TrimSuffix(filepath.Base(name), ".yaml"), name)
	case slices.Contains(own, name):
		dir, err := profileFolder()
		if err != nil {
			return nil, err
		}
		return readProfile(name, filepath.Join(dir, name+".yaml"))
	case slices.Contains(shipped, name):
		text, err := profile.Shipped.ReadFile("profiles/" + name + ".yaml")
		return &namedProfile{name, "", text}, err
	}
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(settings.Executors(), own, shipped))))
	if guess := didYouMean(name, all); guess != "" {
		return nil, usagef("there is no executor %q%s", name, guess)
	}
	return nil, usagef("there is no executor %q; there are %s, and files, as ./%[1]s.yaml", name, strings.Join(all, ", "))
}

// readProfile reads a profile of this user, or of root, which no other user can change.
func readProfile(name, file string) (*namedProfile, error) {
	if !notation.ValidName(name) || slices.Contains(append(settings.Executors(), queue.DefaultQueue), name) {
		return nil, usagef("%s: this cannot be the name of an executor: call the file <name>.yaml, with another name of letters, digits, and _ . -", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch s, ok := info.Sys().(*syscall.Stat_t); {
	case !ok || !info.Mode().IsRegular():
		return nil, usagef("%s is no file", file)
	case s.Uid != 0 && int(s.Uid) != os.Geteuid():
		return nil, usagef("%s belongs to user %d, and its commands would run as you: copy it", file, s.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return nil, usagef("others can write to %s (mode %04o), and its commands would run as you: chmod go-w %[1]s", file, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, profile.MaxSize+1))
	return &namedProfile{name, file, text}, err
}

// decode reads the profile.
func (p *namedProfile) decode() (*profile.Profile, error) {
	file := p.file
	if file == "" {
		file = p.name + ".yaml"
	}
	return profile.Decode(p.name, file, p.text)
}
