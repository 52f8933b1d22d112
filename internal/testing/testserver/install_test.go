package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// fakeNPM puts a program called npm before all others, which appends a line to a file and then runs the given shell
// commands in the folder to install to. It returns how often npm ran.
func fakeNPM(t *testing.T, commands string) (runs func() int) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	script := fmt.Sprintf("#!/bin/sh\necho run >>'%s'\ncd \"$3\" || exit\n%s\n", log, commands)
	if err := os.WriteFile(filepath.Join(bin, "npm"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	return func() int {
		lines, _ := os.ReadFile(log)
		return strings.Count(string(lines), "run")
	}
}

func TestInstallOnce(t *testing.T) {
	runs := fakeNPM(t, "mkdir -p node_modules/.bin && echo >node_modules/.bin/dynalite")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			program, err := npmDynalite.install()
			if err == nil {
				_, err = os.Stat(program)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := runs(); got != 1 {
		t.Errorf("npm ran %d times; want once", got)
	}
}

func TestInstallFails(t *testing.T) {
	runs := fakeNPM(t, "echo no network; exit 1")
	for range 3 {
		if program, err := npmDynalite.install(); err == nil || !strings.Contains(err.Error(), "no network") {
			t.Errorf("install: %q, %v; want what npm said", program, err)
		}
	}
	if got := runs(); got != 1 {
		t.Errorf("npm ran %d times; want once", got)
	}
}

func TestInstallOnlyIfAsked(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("CI", "")
	t.Setenv("E3_TEST_INSTALL", "")
	if program, err := goVersityGW.install(); err == nil {
		t.Errorf("installed %s without being asked", program)
	}
}
