package process

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// zombie is the process state SZOMB of <sys/proc.h>.
const zombie = 5

func readLocalHost() Host {
	var h Host
	h.BootID, _ = unix.Sysctl("kern.bootsessionuuid")
	h.Name, _ = os.Hostname()
	return h
}

// StartTime returns the time at which a running process started, in microseconds since 1970.
func StartTime(pid int) (uint64, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0, fmt.Errorf("look up process %d: %w", pid, err)
	}
	return kinfoStart(info), nil
}

func kinfoStart(info *unix.KinfoProc) uint64 {
	started := info.Proc.P_starttime
	return uint64(started.Sec)*1_000_000 + uint64(started.Usec)
}

func running(pid int, start uint64) (alive, known bool) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err == nil {
		return kinfoStart(info) == start && info.Proc.P_stat != zombie, true
	}
	// A missing process gives an empty result, which the library reports as an error of size.
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.ESRCH) {
		return false, unix.Kill(pid, 0) == unix.ESRCH
	}
	return false, false
}
