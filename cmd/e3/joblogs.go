package main

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"e3/internal/host/beneath"
	"e3/internal/host/modes"
)

// jobLogsKept is how long folders of killed processes are kept.
const jobLogsKept = 7 * 24 * time.Hour

// openJobLogs makes a folder in parent for the scripts of jobs and what they say, which only this user can enter, and removes
// old ones there. remove removes it.
func openJobLogs(parent string, m modes.Modes, now time.Time) (dir string, remove func() error, err error) {
	if !filepath.IsAbs(parent) {
		return "", nil, fmt.Errorf("%s is not absolute", parent)
	}
	above := filepath.Dir(filepath.Dir(parent)) // of a repository, its folder
	if err := os.MkdirAll(above, 0o700); err != nil {
		return "", nil, err
	}
	root, err := beneath.Open(above)
	if err != nil {
		return "", nil, err
	}
	defer root.Close()
	name := filepath.Join(filepath.Base(filepath.Dir(parent)), filepath.Base(parent))
	if err := m.MkdirAll(root, name); err != nil { // a group may share it; each run folder is private
		return "", nil, err
	}
	in, err := root.Sub(name)
	if err != nil {
		return "", nil, err
	}
	defer in.Close()
	old, err := in.ReadDir()
	if err != nil {
		return "", nil, err
	}
	for _, e := range old {
		if info, err := e.Info(); err == nil && info.IsDir() && strings.HasPrefix(e.Name(), "run-") && now.Sub(info.ModTime()) > jobLogsKept {
			in.RemoveAll(e.Name())
		}
	}
	run := "run-" + rand.Text()
	if err := in.Mkdir(run, 0o700); err != nil {
		return "", nil, err
	}
	dir = filepath.Join(parent, run)
	return dir, func() error {
		err := os.RemoveAll(dir)
		os.Remove(parent) // fails if there are other folders
		return err
	}, nil
}
