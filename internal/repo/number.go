package repo

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// folderNumber distinguishes a folder from its copies: it is the inode, which stays when the folder is renamed or
// mounted anew, elsewhere or on other machines. A copy of the whole file system has the same inode. "" if it is not
// known.
func folderNumber(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Ino != 0 {
		return strconv.FormatUint(uint64(s.Ino), 10)
	}
	return ""
}

// mayWrite returns an error if this process may not make files in a folder.
func mayWrite(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}
