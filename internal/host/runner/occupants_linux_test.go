package runner_test

import (
	"bufio"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"e3/internal/host/runner"
)

// Each search finds the processes of that moment, whatever earlier ones have found.
func TestOccupantsAgain(t *testing.T) {
	folder, err := os.MkdirTemp(t.TempDir(), "occupants") // processes are matched by the folder's own name
	if err != nil {
		t.Fatal(err)
	}
	var all runner.Occupants
	search := func(want ...string) {
		t.Helper()
		entries, known := all.In(folder)
		if got := slices.Sorted(maps.Keys(entries)); !known || !slices.Equal(got, want) {
			t.Errorf("processes are in %q, %v; want %q", got, known, want)
		}
	}
	// enter starts a process in a folder, which ends with the test or when leave is called.
	enter := func(name string) (leave func()) {
		t.Helper()
		dir := filepath.Join(folder, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("bash", "-c", "echo; read")
		cmd.Dir = dir
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = bufio.NewReader(out).ReadString('\n')
		}
		if err != nil {
			t.Fatal(err)
		}
		leave = func() {
			in.Close()
			_ = cmd.Wait() // its read fails
		}
		t.Cleanup(leave)
		return leave
	}
	search()
	leave := enter("one")
	search("one")
	search("one")
	enter("two")
	search("one", "two")
	leave()
	search("two")
	search("two")
}
