package fs

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

func syncFS(t tree) error { return t.Control(unix.Syncfs) }

// unwrittenBytes returns how many bytes of all file systems wait to be written; 0 if that is unknown.
func unwrittenBytes() int64 {
	text, _ := os.ReadFile("/proc/meminfo") // without this file the number is unknown
	return sumUnwritten(text)
}

func sumUnwritten(meminfo []byte) (sum int64) {
	for line := range bytes.Lines(meminfo) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "Dirty" && string(name) != "Writeback" {
			continue
		}
		kib, _ := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 10, 64)
		sum += kib << 10
	}
	return sum
}
