package runner_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/host/runner"
)

// A Finder answers as LookPath does, but for a program that appears in an earlier folder: that is found soon.
func TestFinder(t *testing.T) {
	dir := t.TempDir()
	program := func(path string) string {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	env := []string{"PATH=" + filepath.Join(dir, "early") + ":" + filepath.Join(dir, "late")}
	late := program("late/tool")
	synctest.Test(t, func(t *testing.T) {
		var f runner.Finder
		expect := func(want string) {
			t.Helper()
			if got, err := f.Look("tool", dir, env); got != want || (err == nil) != (want != "") {
				t.Errorf("tool is %q, %v; want %q", got, err, want)
			}
		}
		expect(late)
		early := program("early/tool")
		expect(late) // from memory
		if got, err := f.Look("tool", dir, []string{"PATH=" + filepath.Join(dir, "early")}); got != early {
			t.Errorf("with another PATH tool is %q, %v", got, err)
		}
		time.Sleep(time.Second)
		expect(early)
		if err := os.Chmod(early, 0o644); err != nil {
			t.Fatal(err)
		}
		expect(late) // at once
		if err := os.Remove(late); err != nil {
			t.Fatal(err)
		}
		expect("")
		program("late/tool")
		expect(late) // what was missing is looked for again

		// A place that depends on the working directory is not remembered.
		here := program("here/tool")
		relative := []string{"PATH=."}
		if got, err := f.Look("tool", filepath.Dir(here), relative); err != nil {
			t.Errorf("in a relative folder tool is %q, %v", got, err)
		}
		if got, err := f.Look("tool", dir, relative); err == nil {
			t.Errorf("in another working directory tool is %q", got)
		}
		for _, first := range []string{"bin", ""} { // an empty entry is the working directory
			mixed := []string{"PATH=" + first + ":" + filepath.Join(dir, "late")}
			if got, err := f.Look("tool", filepath.Join(dir, "none"), mixed); got != filepath.Join(dir, "late/tool") {
				t.Errorf("with the PATH %q tool is %q, %v", mixed, got, err)
			}
			own := program(filepath.Join("own", first, "tool"))
			if got, err := f.Look("tool", filepath.Join(dir, "own"), mixed); filepath.Join(dir, "own", got) != own {
				t.Errorf("with the PATH %q and its own program tool is %q, %v", mixed, got, err)
			}
		}
	})
}
