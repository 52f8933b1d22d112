package executions_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/executions"
)

// An execution that is on record, and of which no event tells yet when its process dies, is kept for the process that closes the run.
func TestUntold(t *testing.T) {
	l := newLab(t)
	var ids []string
	for i := range 3 {
		ids = append(ids, l.do(t, l.request(script(fmt.Sprintf("echo %d > out", i)))).ExecutionID)
	}
	l.Told(ids[1])
	dir, err := l.records.SessionDir()
	if err != nil {
		t.Fatal(err)
	}
	notes, err := os.ReadFile(filepath.Join(dir, "untold"))
	if err != nil {
		t.Fatal(err)
	}
	cut, err := os.OpenFile(filepath.Join(dir, "untold"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cut.Write(notes[:100]); err != nil { // the process died as it wrote this
		t.Fatal(err)
	}
	cut.Close()
	if !l.Unfinished() {
		t.Error("all is told")
	}
	runs, err := l.CloseBegun(t.Context(), dir)
	if err != nil || !slices.Equal(runs, []executions.RunOf{{Workspace: "ws", Run: "run"}}) {
		t.Fatalf("runs are %+v, %v", runs, err)
	}
	left, err := l.BegunFor(t.Context(), "ws", "run")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{ids[0], ids[2]} { // what is told may be among them
		if !slices.ContainsFunc(left, func(b executions.Begun) bool { return b.ExecutionID == id && b.Task == "task" && b.Attempt == 1 }) {
			t.Errorf("%s is not among %+v", id, left)
		}
	}
	if err := l.DropBegun(t.Context(), "ws", "run"); err != nil {
		t.Fatal(err)
	}
	if left, err := l.BegunFor(t.Context(), "ws", "run"); err != nil || len(left) > 0 {
		t.Errorf("after they are dropped: %+v, %v", left, err)
	}
	l.Told(ids[0])
	l.Told(ids[2])
	if data, err := os.ReadFile(filepath.Join(dir, "untold")); err != nil || len(data) > 0 || l.Unfinished() {
		t.Errorf("once all is told, the file has %q, %v", data, err)
	}
}

// The file stays small while executions keep ending.
func TestUntoldIsRewritten(t *testing.T) {
	l := newLab(t)
	long := strings.Repeat("n", 100_000)
	last := ""
	for i := range 12 {
		req := l.request(script(fmt.Sprintf("echo %d > out", i)))
		req.Name = long
		id := l.do(t, req).ExecutionID
		l.Told(last)
		last = id
	}
	dir, err := l.records.SessionDir()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "untold"))
	if err != nil || info.Size() > 500_000 || info.Size() < 100_000 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
}

// While no end is told, as when the store of events does not answer, the file is written anew each time that it has doubled,
// not with each end.
func TestUntoldIsSeldomRewritten(t *testing.T) {
	l := newLab(t)
	long := strings.Repeat("n", 100_000)
	rewritten := 0
	var before os.FileInfo
	for i := range 20 {
		req := l.request(script(fmt.Sprintf("echo %d > out", i)))
		req.Name = long
		l.do(t, req)
		dir, err := l.records.SessionDir()
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, "untold"))
		if err != nil {
			t.Fatal(err)
		}
		if before != nil && !os.SameFile(before, info) {
			rewritten++
		}
		if want := int64(i+1) * int64(len(long)); info.Size() < want {
			t.Fatalf("after %d ends it has %d bytes, want %d at least: some are missing", i+1, info.Size(), want)
		}
		before = info
	}
	if rewritten == 0 || rewritten > 4 {
		t.Errorf("it was rewritten %d times for 20 ends of 100 kB, want 1 to 4", rewritten)
	}
}

// A line that a fault of the disk has left out, or torn, is there once another execution has ended.
func TestUntoldAfterFault(t *testing.T) {
	l := newLab(t)
	var ids []string
	for i := range 3 {
		ids = append(ids, l.do(t, l.request(script(fmt.Sprintf("echo %d > out", i)))).ExecutionID)
		if i == 0 {
			if err := l.BreakUntold(); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir, err := l.records.SessionDir()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "untold"))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if strings.Count(string(data), id) != 1 {
			t.Errorf("%s is not in\n%s", id, data)
		}
	}
}
