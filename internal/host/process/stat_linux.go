package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Stat has fields of /proc/<pid>/stat.
type Stat struct {
	State      byte
	Parent     int
	Group      int
	Session    int
	StartTicks uint64 // since boot
}

var errStat = errors.New("malformed process status")

// ParseStat reads the text of /proc/<pid>/stat. The second field is the
// command's name in parentheses, which may itself hold spaces and parentheses.
func ParseStat(text []byte) (Stat, error) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return Stat{}, errStat
	}
	fields := bytes.Fields(text[end+1:]) // from the third field on
	if len(fields) < 20 || len(fields[0]) != 1 {
		return Stat{}, errStat
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err4 := strconv.Atoi(string(fields[2]))
	session, err2 := strconv.Atoi(string(fields[3]))
	ticks, err3 := strconv.ParseUint(string(fields[19]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return Stat{}, errStat
	}
	return Stat{State: fields[0][0], Parent: parent, Group: group, Session: session, StartTicks: ticks}, nil
}

// ReadStat reads the status of a process of this host.
func ReadStat(pid int) (Stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Stat{}, err
	}
	return ParseStat(text)
}
