//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// eventually waits until cond holds, and fails the test when it does not in time. cond
// returns what is still wrong, "" when nothing is.
func eventually(t testing.TB, limit time.Duration, what string, cond func() string) {
	t.Helper()
	wrong := cond()
	deadline := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for wrong != "" {
		select {
		case <-tick.C:
			wrong = cond()
		case <-deadline:
			t.Fatalf("%s: not in %v: %s", what, limit, wrong)
		}
	}
}

// strays lists the processes that belong to runs of a repository: those with an environment
// or a working directory in it, the supervisor of e3's process, and those whose command line
// has one of the marks.
func strays(root string, e3 int, marks ...string) []string {
	var found []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		command, _ := os.ReadFile(dir + "/cmdline")
		if len(command) == 0 {
			continue // a zombie, or the kernel's
		}
		why := ""
		environ, _ := os.ReadFile(dir + "/environ")
		cwd, _ := os.Readlink(dir + "/cwd")
		text := strings.TrimRight(string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})), " ")
		switch {
		case bytes.Contains(environ, []byte("E3_EXECUTION=")) && bytes.Contains(environ, []byte(root)):
			why = "carries E3_EXECUTION"
		case strings.HasPrefix(cwd, root+"/"):
			why = "works in " + cwd
		case e3 > 0 && strings.HasPrefix(text, "e3-supervisor ") && strings.HasSuffix(text, fmt.Sprintf(" for %d", e3)):
			why = "supervises"
		}
		for _, mark := range marks {
			if strings.Contains(text, mark) {
				why = "is marked"
			}
		}
		if why != "" {
			found = append(found, fmt.Sprintf("%d %s (%.80q)", pid, why, text))
		}
	}
	return found
}

// noStrays waits until no process of a run is left: two seconds are what is promised.
func noStrays(t testing.TB, root string, e3 int, marks ...string) {
	t.Helper()
	eventually(t, 2*time.Second, "processes are left after the end of e3", func() string {
		return strings.Join(strays(root, e3, marks...), "\n")
	})
}

// peakMemory follows a process to its end and returns the most memory it had, in bytes.
func peakMemory(x *process) int64 {
	var peak int64
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-x.ended:
			return peak
		case <-tick.C:
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", x.cmd.Process.Pid))
			if err != nil {
				continue
			}
			_, rest, _ := strings.Cut(string(status), "VmHWM:")
			if f := strings.Fields(rest); len(f) > 0 {
				if kb, err := strconv.ParseInt(f[0], 10, 64); err == nil {
					peak = max(peak, kb<<10)
				}
			}
		}
	}
}

// switches is how often the threads of a process have gone to sleep by themselves.
func switches(pid int) int64 {
	var sum int64
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, file := range files {
		status, _ := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		if f := strings.Fields(rest); len(f) > 0 {
			n, _ := strconv.ParseInt(f[0], 10, 64)
			sum += n
		}
	}
	return sum
}
