package executions

import (
	"os"
	"path/filepath"
	"testing"

	"e3/internal/format/record"
)

// A command with programs in its key gets the program that the key was made of, also if another one was remembered.
func TestProgramsOfTheKeyAreNotRemembered(t *testing.T) {
	dir := t.TempDir()
	program := func(folder string) string {
		t.Helper()
		path := filepath.Join(dir, folder, "tool")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	env := []string{"PATH=" + filepath.Join(dir, "early") + ":" + filepath.Join(dir, "late")}
	late := program("late")
	a := command{assignment: &assignment{x: &Executor{}, spec: &record.Task{}}}
	if got, err := a.search()("tool", dir, env); got != late {
		t.Fatalf("found %q, %v", got, err)
	}
	early := program("early")
	a.spec = &record.Task{Inputs: []record.Input{{Name: "tool", Kind: record.KindTool}}}
	if got, err := a.search()("tool", dir, env); got != early {
		t.Errorf("found %q, %v; the key has %q", got, err, early)
	}
}
