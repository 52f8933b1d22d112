package runner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// procStat are the fields of /proc/<pid>/stat that are of use here.
type procStat struct {
	state      byte
	parent     int
	session    int
	startTicks uint64 // since boot
}

var errProcStat = errors.New("malformed process status")

// parseProcStat reads the text of /proc/<pid>/stat. The second field is the
// command's name in parentheses, which may itself hold spaces and parentheses.
func parseProcStat(text []byte) (procStat, error) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return procStat{}, errProcStat
	}
	fields := bytes.Fields(text[end+1:]) // from the third field on
	if len(fields) < 20 || len(fields[0]) != 1 {
		return procStat{}, errProcStat
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	session, err2 := strconv.Atoi(string(fields[3]))
	ticks, err3 := strconv.ParseUint(string(fields[19]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return procStat{}, errProcStat
	}
	return procStat{state: fields[0][0], parent: parent, session: session, startTicks: ticks}, nil
}

func readProcStat(pid int) (procStat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	return parseProcStat(text)
}

// hasMarker reports whether one of the markers is an entry of the environment
// that the process was started with. It is false when that cannot be read.
func hasMarker(pid int, markers ...string) bool {
	if len(markers) == 0 {
		return false
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	for len(environ) > 0 {
		entry, rest, _ := bytes.Cut(environ, []byte{0})
		for _, marker := range markers {
			if string(entry) == marker {
				return true
			}
		}
		environ = rest
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
		if stat, err := readProcStat(candidate); err == nil && stat.parent == pid {
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
	stat, err := readProcStat(pid)
	if err != nil || stat.state == 'Z' || stat.state == 'X' {
		return false
	}
	if stat.session != session && !hasMarker(pid, markers...) {
		return false
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}
