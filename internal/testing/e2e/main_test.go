//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"e3/internal/host/runner"
	"e3/internal/testing/built"
	"e3/internal/testing/testserver"
)

// program is the e3 binary under test, built once by TestMain.
var program string

// lookAtSources tells the go command's test cache what these tests depend on beside their
// imports: it notices what is looked at while they run.
var lookAtSources = sync.OnceFunc(func() {
	os.Getenv("E3_E2E_PROGRAM")
	files, _ := filepath.Glob("../../../cmd/e3/*.go")
	for _, file := range files {
		os.Stat(file)
	}
})

func TestMain(m *testing.M) {
	runner.Main() // in the process that runs the tasks of tests that execute some themselves, this never returns
	if ahead := os.Getenv(aheadVariable); ahead != "" {
		os.Exit(skewedProcess(ahead, os.Args[1:]))
	}
	if root := os.Getenv(holderVariable); root != "" {
		holdEverything(root)
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	// Tasks and other users must be able to reach what the tests make.
	syscall.Umask(0o022)
	dir, err := os.MkdirTemp("", "e3-e2e-*")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	for _, v := range testserver.Env() { // for shared repositories that these tests open themselves
		name, value, _ := strings.Cut(v, "=")
		os.Setenv(name, value)
	}
	if program = os.Getenv("E3_E2E_PROGRAM"); program != "" {
		return m.Run()
	}
	program = filepath.Join(dir, "e3")
	var flags []string
	if raceBuild {
		flags = append(flags, "-race")
	}
	if err := built.WriteProgram(program, flags...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
