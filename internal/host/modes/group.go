package modes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// takeGroup gives a file the group of a folder.
func takeGroup(f *os.File, folder string) error {
	want, err := os.Stat(folder)
	if err != nil {
		return err
	}
	has, err := f.Stat()
	if err != nil {
		return err
	}
	gid := want.Sys().(*syscall.Stat_t).Gid
	if has.Sys().(*syscall.Stat_t).Gid == gid {
		return nil
	}
	return f.Chown(-1, int(gid))
}

// PrivateFolder makes path a folder that only this user can enter, and returns it. It is an error if it is another
// user's.
func PrivateFolder(path string) (string, error) {
	err := os.Mkdir(path, 0o700)
	if err == nil {
		err = os.Chmod(path, 0o700) // a setgid bit is not inherited
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || info.Mode().Perm() != 0o700 || int(st.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s is not a private folder of this user", path)
	}
	return path, nil
}
