package record

import (
	"fmt"
	"strconv"
	"strings"
)

// Logs are the sums of an execution's logs, taken when it ended.
type Logs struct {
	Known          bool // false for executions that did not end by themselves, and for those of an older e3
	Stdout, Stderr LogSum
}

// LogSum is the length and the CRC-32C of a log.
type LogSum struct {
	Size int64
	Sum  uint32
}

// suffix is the stored form of the sums: +logs., then size and sum of stdout and of stderr.
func (l *Logs) suffix() string {
	if !l.Known {
		return ""
	}
	return fmt.Sprintf("+logs.%d.%08x.%d.%08x", l.Stdout.Size, l.Stdout.Sum, l.Stderr.Size, l.Stderr.Sum)
}

// cutLogs splits the sums off a version. Text that suffix would not write is a part of the version.
func cutLogs(version string) (string, Logs) {
	at := strings.LastIndex(version, "+logs.")
	if at < 0 {
		return version, Logs{}
	}
	fields := strings.Split(version[at+len("+logs."):], ".")
	if len(fields) != 4 {
		return version, Logs{}
	}
	sum := func(size, sum string) LogSum { // a field that cannot be parsed is written differently
		n, _ := strconv.ParseInt(size, 10, 64)
		crc, _ := strconv.ParseUint(sum, 16, 32)
		return LogSum{n, uint32(crc)}
	}
	logs := Logs{Known: true, Stdout: sum(fields[0], fields[1]), Stderr: sum(fields[2], fields[3])}
	if logs.Stdout.Size < 0 || logs.Stderr.Size < 0 || logs.suffix() != version[at:] {
		return version, Logs{}
	}
	return version[:at], logs
}
