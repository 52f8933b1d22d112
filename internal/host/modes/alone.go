package modes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// unmapped is the owner of files of users who are not in this user namespace, such as the machine's root.
const unmapped = 65534

// Alone returns an error if another user can replace path, or a folder on the way to it. Folders that do not exist yet
// are no danger. Links on the way are followed.
//
// Another user can do so by owning a folder on the way, or by writing in a folder without the sticky bit; sshd makes
// the same check (StrictModes). Below a folder that only this user can enter, no name can change. A group with the
// user's own number has this user as its only member, as systems make such a group for each user. Root trusts all
// owners: it works for them.
func Alone(path string) error {
	real, err := filepath.EvalSymlinks(path)
	for errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) {
		path = filepath.Dir(path)
		real, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return err
	}
	_, err = alone(real, os.Geteuid())
	return err
}

// alone is Alone for a path without links. It reports whether only this user can enter path.
func alone(path string, me int) (closed bool, err error) {
	if above := filepath.Dir(path); above != path {
		if closed, err := alone(above, me); closed || err != nil {
			return closed, err
		}
	}
	info, err := os.Lstat(path)
	if err != nil {
		return false, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return false, fmt.Errorf("%s is no folder", path)
	}
	owner := int(st.Uid)
	if owner != me && owner != 0 && owner != unmapped && me != 0 {
		return false, fmt.Errorf("%s belongs to user %d", path, owner)
	}
	writers := info.Mode().Perm() & 0o022
	if int(st.Gid) == me && int(st.Gid) == os.Getegid() {
		writers &^= 0o020
	}
	if writers != 0 && info.Mode()&fs.ModeSticky == 0 {
		return false, fmt.Errorf("others may write in %s", path)
	}
	return owner == me && info.Mode().Perm()&0o011 == 0, nil
}
