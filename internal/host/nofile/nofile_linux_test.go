//go:build amd64 || arm64

package nofile_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"e3/internal/host/nofile"
)

// The runtime has raised the limit before any code of a test runs, so a process of the test binary tells what it knows.
func TestMain(m *testing.M) {
	if os.Getenv("E3_TEST_NOFILE") != "" {
		fmt.Println(nofile.AtStart())
		return
	}
	os.Exit(m.Run())
}

func TestTheLimitIsThatOfTheStart(t *testing.T) {
	var present syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &present); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `ulimit -S -n 77 && exec "$0"`, exe)
	cmd.Env = append(os.Environ(), "E3_TEST_NOFILE=1")
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprintf("{77 %d} true", present.Max); err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("a process with a limit of 77 open files says %q (%v), want %q", out, err, want)
	}
}
