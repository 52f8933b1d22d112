package filelock

import (
	"bytes"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// locked calls found with the process of each lock on a file, -1 if the system does not tell, until it returns false.
func locked(info os.FileInfo, found func(pid int) bool) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return os.ErrInvalid
	}
	text, err := os.ReadFile("/proc/locks")
	if err != nil {
		return err
	}
	// 1: FLOCK  ADVISORY  WRITE 16643 fe:00:9977940 0 EOF. Some file systems number their devices in two ways, so the number of
	// the file decides.
	file := ":" + strconv.FormatUint(st.Ino, 10)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] == "->" || !strings.HasSuffix(fields[5], file) || fields[1] == "LEASE" {
			continue
		}
		pid, err := strconv.Atoi(fields[4])
		if err != nil {
			pid = -1
		}
		if !found(pid) {
			break
		}
	}
	return nil
}

// Held reports whether a process of this machine has a lock on a file. It needs no right except to stat the file.
func Held(info os.FileInfo) (bool, error) {
	held := false
	err := locked(info, func(int) bool {
		held = true
		return false
	})
	return held, err
}

// holder describes the process that has the lock of a file.
func holder(f *os.File) string {
	words := unknown
	info, err := f.Stat()
	if err != nil {
		return words
	}
	_ = locked(info, func(pid int) bool { // without the list the holder is unknown
		if pid <= 0 || pid == os.Getpid() {
			return true
		}
		words = describe(pid)
		return false
	})
	return words
}

// describe names a process: "process 4711 (e3) of bob".
func describe(pid int) string {
	words := fmt.Sprintf("process %d", pid)
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
		words += fmt.Sprintf(" (%.60q)", bytes.TrimSpace(name)) // any program can give itself a name
	}
	if info, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			uid := strconv.Itoa(int(st.Uid))
			if u, err := user.LookupId(uid); err == nil {
				words += " of " + u.Username
			} else {
				words += " of user " + uid
			}
		}
	}
	return words
}
