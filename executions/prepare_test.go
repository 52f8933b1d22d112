package executions_test

import (
	"path/filepath"
	"testing"
)

// Sandboxes that wait for a command are removed when none will come, and a command that comes after all has a new one.
func TestClear(t *testing.T) {
	l := newLab(t)
	scratch, err := l.records.SessionDir()
	if err != nil {
		t.Fatal(err)
	}
	boxes := func() []string {
		t.Helper()
		list, err := filepath.Glob(filepath.Join(scratch, "w*"))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	for _, text := range []string{"echo 1 > out", "echo 2 > out", "exit 3"} {
		l.do(t, l.request(script(text)))
	}
	if len(boxes()) == 0 {
		t.Fatal("no sandbox waits for a command")
	}
	l.Clear()()
	if left := boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %q", left)
	}
	if got := l.run(t, script("ls -A; echo 4 > out")); got != "" {
		t.Errorf("a later command finds %q", got)
	}
}
