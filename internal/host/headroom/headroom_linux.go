package headroom

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// forMemory names the limit that leaves too little memory, and how to raise it.
func forMemory() error {
	for _, l := range []struct {
		resource, field int // index of the field of statm
		perThread       uint64
		letter, what    string
	}{
		{unix.RLIMIT_AS, 0, arena + stack, "v", "address space"},
		{unix.RLIMIT_DATA, 5, stack, "d", "memory"},
	} {
		limit, ok := finite(l.resource)
		if !ok {
			continue
		}
		need := used(l.field) + memory + few*l.perThread
		if limit < need {
			return fmt.Errorf("%d MiB of %s are needed, and the limit is %d (ulimit -%s): raise it, as with: ulimit -%s unlimited", need>>20, l.what, limit>>20, l.letter, l.letter)
		}
	}
	return nil
}

// Threads says that the limit on processes leaves no room for the given number of threads more. It counts only the
// processes that this process sees. Processes in other containers, and limits of control groups, may leave less room.
func Threads(threads int) error {
	limit, ok := finite(unix.RLIMIT_NPROC)
	var system unix.Sysinfo_t
	if !ok || os.Getuid() == 0 || unix.Sysinfo(&system) == nil && limit > uint64(system.Procs)+uint64(threads) {
		return nil
	}
	if there := ofUser(); limit < there+uint64(threads) {
		return fmt.Errorf("%d threads are needed beside the %d that this user has, and the limit is %d (ulimit -u): raise it, or end other processes", threads, there, limit)
	}
	return nil
}

func finite(resource int) (limit uint64, ok bool) {
	var l unix.Rlimit
	err := unix.Getrlimit(resource, &l)
	return l.Cur, err == nil && l.Cur != unix.RLIM_INFINITY
}

// used is a number of bytes of /proc/self/statm.
func used(field int) uint64 {
	text, _ := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(text))
	if len(fields) <= field {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[field], 10, 64)
	return pages * uint64(os.Getpagesize())
}

// ofUser counts the threads of this user.
func ofUser() (n uint64) {
	self := strconv.Itoa(os.Getuid())
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if e.Name()[0] < '0' || e.Name()[0] > '9' {
			continue
		}
		text, _ := os.ReadFile("/proc/" + e.Name() + "/status")
		if user := bytes.Fields(value(text, "Uid:")); len(user) == 0 || string(user[0]) != self {
			continue
		}
		threads, _ := strconv.ParseUint(string(bytes.TrimSpace(value(text, "Threads:"))), 10, 64)
		n += threads
	}
	return n
}

// value is the value in a line of a status file.
func value(text []byte, name string) []byte {
	_, rest, _ := bytes.Cut(text, []byte("\n"+name))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return line
}
