package main

import (
	"os"
	"testing"
	"time"

	"e3/internal/host/modes"
)

func TestJobLogs(t *testing.T) {
	parent, now := t.TempDir(), time.Now()
	dir, remove, err := openJobLogs(parent, modes.Modes{}, now)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v; want it to be this user's alone", info, err)
	}
	if _, _, err := openJobLogs(parent, modes.Modes{}, now.Add(jobLogsKept/2)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the folder of another process, which may be at work: %v", err)
	}
	if _, _, err := openJobLogs(parent, modes.Modes{}, now.Add(2*jobLogsKept)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("an old folder is still there")
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
}
