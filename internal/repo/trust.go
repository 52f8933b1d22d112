package repo

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"e3/internal/host/atomicfile"
)

// A command that names no repository uses the one in its folder or in a folder above. That repository decides which
// commands run and which results count. So it must be this user's own, or trusted in this user's configuration
// (doc/design.md, §4, Whose repository).

// ErrForeign reports a repository that belongs to another user and was not named.
var ErrForeign = errors.New("the repository belongs to another user")

// A ForeignError is ErrForeign with the place and the owner.
type ForeignError struct {
	Root  string
	Owner string // user's name and number
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s, and was found without being named: %s of %s", ErrForeign, e.Root, e.Owner)
}

// Unwrap makes errors.Is(err, ErrForeign) true.
func (e *ForeignError) Unwrap() error { return ErrForeign }

// FindAbove returns the repository in a folder or in a folder above it: the folder .e3, or the folder itself. It must
// be this user's or trusted.
func FindAbove(dir string) (string, error) {
	for d := dir; ; d = filepath.Dir(d) {
		for _, root := range []string{filepath.Join(d, DirName), d} {
			if isRepository(root) {
				return root, checkTrusted(root)
			}
			if filepath.Base(root) == DirName {
				if err := closedTo(root); err != nil {
					return "", err
				}
			}
		}
		if d == filepath.Dir(d) {
			return "", ErrNoRepository
		}
	}
}

// closedTo refuses a folder that this user may not enter: it may be a repository that is private to another user.
func closedTo(root string) error {
	_, err := os.Lstat(filepath.Join(root, formatFile))
	if !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if owner, e := foreignOwner(root); e == nil && owner != "" {
		return fmt.Errorf("%w: only %s gets into %s; one that is shared is made with e3 init --shared", ErrForeign, owner, root)
	}
	return fmt.Errorf("open repository: %w", err)
}

// checkTrusted refuses a repository of another user unless this user trusts it. It checks the owners of the folder,
// of a link that leads to it, and of the file that makes it a repository.
func checkTrusted(root string) error {
	path, _ := formatPath(root)
	owner, err := foreignOwner(root, path)
	if err != nil || owner == "" {
		return err
	}
	list, err := TrustedRepositories()
	if err != nil {
		return fmt.Errorf("%w; %w", &ForeignError{root, owner}, err)
	}
	if slices.Contains(list, realPath(root)) {
		return nil
	}
	return &ForeignError{root, owner}
}

func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// trustFile lists the repositories of others that this user trusts, one a line.
func trustFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the folder of your configuration: %w", err)
	}
	return filepath.Join(dir, "e3", "safe-repositories"), nil
}

// TrustedRepositories are the repositories of others that this user trusts.
func TrustedRepositories() ([]string, error) {
	path, err := trustFile()
	if err != nil {
		return nil, nil // without a configuration none is trusted
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("trusted repositories: %w", err)
	}
	var list []string
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list, nil
}

// Trust makes this user trust the repository at a location, or no longer. It returns the repository's folder.
func Trust(location string, trusted bool) (string, error) {
	dir, err := filepath.Abs(location)
	if err != nil {
		return "", err
	}
	root := ""
	for _, at := range []string{dir, filepath.Join(dir, DirName)} {
		if root == "" && isRepository(at) {
			root = realPath(at)
		}
	}
	if root == "" && trusted {
		return "", fmt.Errorf("%w at %s", ErrNoRepository, location)
	}
	list, err := TrustedRepositories()
	if err != nil {
		return "", err
	}
	kept := slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == root || s == dir || s == filepath.Join(dir, DirName) })
	if trusted {
		kept = append(kept, root)
	} else if root == "" {
		root = dir
	}
	path, err := trustFile()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("trusted repositories: %w", err)
	}
	text := ""
	for _, s := range kept {
		text += s + "\n"
	}
	return root, atomicfile.WriteFile(path, []byte(text), atomicfile.Options{Perm: 0o600, Sync: true})
}
