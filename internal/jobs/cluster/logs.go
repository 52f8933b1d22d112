package cluster

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"e3/internal/host/beneath"
	"e3/internal/host/modes"
)

const (
	logsKept = 7 * 24 * time.Hour // folders of killed submitters
	maxTail  = 2 << 10            // bytes of a log in a message
	tailLen  = 5                  // lines
)

// logs is the folder for the output of one submitter's scripts. A nil one keeps nothing.
type logs struct{ dir string }

// openLogs makes a folder in parent, and removes old folders there.
func openLogs(parent string, m modes.Modes, now time.Time) (*logs, error) {
	if !filepath.IsAbs(parent) {
		return nil, fmt.Errorf("%s is not absolute", parent)
	}
	above := filepath.Dir(filepath.Dir(parent)) // of a repository, its folder
	if err := os.MkdirAll(above, 0o700); err != nil {
		return nil, err
	}
	root, err := beneath.Open(above)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name := filepath.Join(filepath.Base(filepath.Dir(parent)), filepath.Base(parent))
	if err := m.MkdirAll(root, name); err != nil { // a group may share it; each run folder is private
		return nil, err
	}
	in, err := root.Sub(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	old, err := in.ReadDir()
	if err != nil {
		return nil, err
	}
	for _, e := range old {
		if info, err := e.Info(); err == nil && info.IsDir() && strings.HasPrefix(e.Name(), "run-") && now.Sub(info.ModTime()) > logsKept {
			in.RemoveAll(e.Name())
		}
	}
	run := "run-" + rand.Text()
	if err := in.Mkdir(run, 0o700); err != nil {
		return nil, err
	}
	return &logs{dir: filepath.Join(parent, run)}, nil
}

func (l *logs) path(token string, index int) string {
	return filepath.Join(l.dir, fmt.Sprintf("%s.%d", token, index))
}

// ScriptFile is where a scheduler that wants a file finds the script of a batch, in the folder of its logs.
func ScriptFile(logs, token string) string { return filepath.Join(logs, token+".sh") }

// read returns the end of a script's output as one line; "" if there is none.
func (l *logs) read(token string, index int) string {
	if l == nil {
		return ""
	}
	f, err := os.Open(l.path(token, index))
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	text := make([]byte, min(info.Size(), maxTail))
	n, err := f.ReadAt(text, info.Size()-int64(len(text)))
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	var last []string
	for line := range strings.Lines(strings.ToValidUTF8(string(text[:n]), "�")) {
		if line = strings.TrimSpace(line); line != "" {
			last = append(last, line)
		}
	}
	return strings.Join(last[max(0, len(last)-tailLen):], "; ")
}

// drop removes what is kept of a job.
func (l *logs) drop(token string, index int) {
	if l != nil {
		os.Remove(l.path(token, index))
		os.Remove(ScriptFile(l.dir, token))
	}
}

// remove removes the folder. Output of scripts that are still running is dropped from then on.
func (l *logs) remove() error {
	if l == nil {
		return nil
	}
	if err := os.RemoveAll(l.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the output of scripts: %w", err)
	}
	os.Remove(filepath.Dir(l.dir)) // fails if there are other folders
	return nil
}
