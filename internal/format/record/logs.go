package record

import (
	"fmt"
	"regexp"
	"strconv"
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

var logsSuffix = regexp.MustCompile(`\+logs\.(0|[1-9][0-9]{0,17})\.([0-9a-f]{8})\.(0|[1-9][0-9]{0,17})\.([0-9a-f]{8})$`)

// cutLogs splits the sums off a version.
func cutLogs(version string) (string, Logs) {
	m := logsSuffix.FindStringSubmatchIndex(version)
	if m == nil {
		return version, Logs{}
	}
	sum := func(i int) LogSum { // parsing cannot fail: the pattern allows only digits
		size, _ := strconv.ParseInt(version[m[i]:m[i+1]], 10, 64)
		crc, _ := strconv.ParseUint(version[m[i+2]:m[i+3]], 16, 32)
		return LogSum{size, uint32(crc)}
	}
	return version[:m[0]], Logs{Known: true, Stdout: sum(2), Stderr: sum(6)}
}
