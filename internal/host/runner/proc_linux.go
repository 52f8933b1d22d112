package runner

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"e3/internal/host/process"

	"golang.org/x/sys/unix"
)

// hasMarker reports whether one of the markers is an entry of the environment
// that the process was started with. It is false when that cannot be read.
func hasMarker(pid int, markers ...string) bool {
	if len(markers) == 0 {
		return false
	}
	environ := environOf(pid)
	return slices.ContainsFunc(markers, func(marker string) bool { return environ.has(marker) })
}

// environ is the environment that a process was started with; nil where it cannot be read.
type environ []byte

func environOf(pid int) environ {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil
	}
	return text
}

// has tells whether an entry is in it.
func (e environ) has(entry string) bool {
	for rest := []byte(e); len(rest) > 0; {
		var one []byte
		if one, rest, _ = bytes.Cut(rest, []byte{0}); string(one) == entry {
			return true
		}
	}
	return false
}

// processes lists the process ids in /proc.
func processes() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// childrenOf lists the children of a process. The kernel keeps them per thread;
// where it does not show them, every process is asked for its parent.
func childrenOf(pid int) []int {
	base := fmt.Sprintf("/proc/%d/task/", pid)
	if entries, err := os.ReadDir(base); err == nil {
		var pids []int
		known := false
		for _, entry := range entries {
			text, err := os.ReadFile(base + entry.Name() + "/children")
			if err == nil {
				known = true
				pids = appendPIDs(pids, text)
			}
		}
		if known {
			return pids
		}
	}
	var pids []int
	for _, candidate := range processes() {
		if stat, err := process.ReadStat(candidate); err == nil && stat.Parent == pid {
			pids = append(pids, candidate)
		}
	}
	return pids
}

// appendPIDs parses numbers between spaces.
func appendPIDs(pids []int, text []byte) []int {
	for field := range bytes.FieldsSeq(text) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// KillMarked kills the processes of this user that carry one of the markers in the environment that they were started with: what a process
// and its supervisor have left that were killed at the same moment. Processes that have neither are out of reach then.
func KillMarked(markers []string) { killLeftovers(noSession, markers) }

// noSession is the number of no session.
const noSession = -1

// killLeftovers kills what a supervisor that was itself killed left behind: the
// processes of its session, which all commands share, and those with a marker of
// a command that ran. It returns when a search finds none, or after two seconds.
func killLeftovers(session int, markers []string) {
	deadline := time.Now().Add(2 * time.Second)
	for wait := time.Millisecond; time.Now().Before(deadline); wait = min(2*wait, 50*time.Millisecond) {
		found := false
		for _, pid := range processes() {
			found = killLeftover(pid, session, markers) || found
		}
		if !found {
			return
		}
		time.Sleep(wait)
	}
}

// killLeftover kills one process if it is a leftover. The descriptor is taken
// before the process is looked at, so that a reused pid is never hit.
func killLeftover(pid, session int, markers []string) bool {
	if pid == os.Getpid() {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	stat, err := process.ReadStat(pid)
	if err != nil || stat.State == 'Z' || stat.State == 'X' {
		return false
	}
	if stat.Session != session && !hasMarker(pid, markers...) {
		return false
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}
