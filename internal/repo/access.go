package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"e3/internal/host/modes"
)

// ParseAccess reads the value of "e3 init --shared": group, world, or "" for the user alone.
func ParseAccess(shared string) (modes.Access, error) {
	switch a := modes.Access(shared); {
	case shared == "":
		return modes.Private, nil
	case a.Shared():
		return a, nil
	}
	return "", fmt.Errorf("%q: a repository is shared with %q or %q", shared, modes.Group, modes.World)
}

// makeRoot makes the folder of a repository with the modes that access asks for. Missing folders above it belong to
// the user and go by the umask. An existing folder, empty or left by an interrupted init, gets the same modes with
// everything in it.
func makeRoot(root string, access modes.Access) error {
	if err := os.MkdirAll(filepath.Dir(root), 0o777); err != nil {
		return err
	}
	err := os.Mkdir(root, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", root)
	}
	if err != nil {
		return err
	}
	return filepath.WalkDir(real, func(path string, d fs.DirEntry, err error) error {
		if err == nil && (d.IsDir() || d.Type().IsRegular()) {
			err = regrant(path, access)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // another init or a sweep removed it
		}
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: it is another user's; remove it, or make the repository elsewhere", err)
		}
		return err
	})
}

// regrant gives a folder, or a file, the modes of a repository. A file keeps its owner's permissions.
func regrant(path string, access modes.Access) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	want := modes.Of(access, "").Folder()
	if !info.IsDir() {
		owner := info.Mode().Perm() >> 6
		want = owner << 6
		if access.Shared() {
			want |= owner << 3
		}
		if access == modes.World {
			want |= owner &^ 0o2
		}
	}
	if has := info.Mode() & (fs.ModePerm | fs.ModeSetgid); has == want || access == modes.Private && has == want|fs.ModeSetgid {
		return nil // private, in a folder that a group shares
	}
	return os.Chmod(path, want)
}

// recordFolder records the folder that was made, and its access.
func (c *Created) recordFolder(root string, access modes.Access) {
	c.Repository, c.Access = root, access
	info, err := os.Stat(root)
	if err != nil {
		return
	}
	if access.Shared() {
		c.Group = groupOf(info)
	}
	if info.Mode().Perm()&^modes.Of(access, root).Folder().Perm() != 0 {
		c.Advice = append(c.Advice, fmt.Sprintf("keep others out by other means: the file system of %s does not keep modes, so they get in", root))
	}
}
