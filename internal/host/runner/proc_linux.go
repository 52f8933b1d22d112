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

// hasMarker reports whether one of the markers is in the environment with which the process was started; false if the
// environment cannot be read.
func hasMarker(pid int, markers ...string) bool {
	if len(markers) == 0 {
		return false
	}
	environ := environOf(pid)
	return slices.ContainsFunc(markers, func(marker string) bool { return environ.has(marker) })
}

// environ returns the environment with which a process was started; nil if it cannot be read.
type environ []byte

func environOf(pid int) environ {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil
	}
	return text
}

// has reports whether an entry is in the environment.
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

// childrenOf lists the children of a process. The kernel lists them by thread. If it has no such lists, childrenOf
// reads the parents of all processes.
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

// KillMarked kills the processes of this user with one of the markers in the environment with which they were started.
// It finds processes even if their client and supervisor were killed at the same moment, but only processes with a
// marker.
func KillMarked(markers []string) { killLeftovers(noSession, markers) }

// noSession is not the id of any session.
const noSession = -1

// killLeftovers kills the processes of a killed supervisor: all processes of its session, which its commands share, and
// processes with a marker of one of its commands. It returns when a search finds none, or after two seconds.
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

// killLeftover kills one process if it is a leftover. The pidfd is opened before the check, so that a process with a
// reused pid is never killed.
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
