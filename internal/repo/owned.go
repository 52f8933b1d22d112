package repo

import (
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
)

// checkOwned refuses a folder of another user, since its content counts as this user's own. A folder of root may
// serve all users; and root may use every folder.
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

// foreignOwner returns the owner of the first of these paths, or of their links' targets, that belongs to another
// user; "" if none does. Under sudo, the calling user's files count as one's own as well.
func foreignOwner(paths ...string) (string, error) {
	own := []uint32{uint32(os.Geteuid())}
	if uid, err := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32); err == nil && own[0] == 0 {
		own = append(own, uint32(uid))
	}
	for _, path := range paths {
		for _, stat := range []func(string) (os.FileInfo, error){os.Lstat, os.Stat} {
			info, err := stat(path)
			if err != nil {
				return "", err
			}
			s, ok := info.Sys().(*syscall.Stat_t)
			if !ok || slices.Contains(own, s.Uid) {
				continue
			}
			number := strconv.FormatUint(uint64(s.Uid), 10)
			if u, err := user.LookupId(number); err == nil {
				return fmt.Sprintf("%s (user %s)", u.Username, number), nil
			}
			return "user " + number, nil
		}
	}
	return "", nil
}

// groupOf names the group of a file.
func groupOf(info os.FileInfo) string {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	number := strconv.FormatUint(uint64(s.Gid), 10)
	if g, err := user.LookupGroupId(number); err == nil {
		return g.Name
	}
	return number
}
