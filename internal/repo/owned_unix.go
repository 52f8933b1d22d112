//go:build unix

package repo

import (
	"fmt"
	"os"
	"syscall"
)

// checkOwned refuses a folder that another user has made: what is in it is taken for what this user has put there. Root's may
// have been made for all; and root may use everybody's.
func checkOwned(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	me := os.Geteuid()
	if s, ok := info.Sys().(*syscall.Stat_t); ok && me != 0 && s.Uid != 0 && int(s.Uid) != me {
		return fmt.Errorf("%s belongs to user %d, and you are user %d", path, s.Uid, me)
	}
	return nil
}
