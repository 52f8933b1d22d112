package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	maxTail = 2 << 10 // bytes of a log in a message
	tailLen = 5       // lines
)

// ScriptFile is where a scheduler that wants a file finds the script of a batch, in the folder of its logs.
func ScriptFile(logs, token string) string { return filepath.Join(logs, token+".sh") }

// log is the file for what the script of a job says; "" if nothing is kept.
func (o *Options) log(token string, index int) string {
	if o.Logs == "" {
		return ""
	}
	return filepath.Join(o.Logs, fmt.Sprintf("%s.%d", token, index))
}

// readLog returns the end of what a script has said, as one line; "" if that is nothing.
func (o *Options) readLog(token string, index int) string {
	f, err := os.Open(o.log(token, index))
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	text := make([]byte, min(info.Size(), maxTail))
	n, _ := f.ReadAt(text, info.Size()-int64(len(text)))
	var last []string
	for line := range strings.Lines(strings.ToValidUTF8(string(text[:n]), "\uFFFD")) {
		if line = strings.TrimSpace(line); line != "" {
			last = append(last, line)
		}
	}
	return strings.Join(last[max(0, len(last)-tailLen):], "; ")
}

// dropLog removes what is kept of a job.
func (o *Options) dropLog(token string, index int) {
	if o.Logs != "" {
		os.Remove(o.log(token, index))
		os.Remove(ScriptFile(o.Logs, token))
	}
}
