//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"e3/internal/repo"
	"e3/internal/testing/recorded"
	"e3/internal/testing/suite"
)

// memoryOf is what a process has of the memory, in KiB: a line of its status.
func memoryOf(t *testing.T, pid int, line string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(line + `:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		t.Fatalf("no %s in %s", line, status)
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

// busyTime is the processor time that a process has taken, to 10 ms: it says on a busy machine, too, how much there was to do.
func busyTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// TestMemoryOfPages opens runs of many tasks in the program itself: the server of 10,000 stays below 100 MB, whichever pages are asked for.
func TestMemoryOfPages(t *testing.T) {
	suite.Thorough(t)
	if raceBuild {
		t.Skip("the race detector takes memory of its own")
	}
	for _, n := range []int{10_000, 100_000} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			items := make([]string, n/10)
			for i := range items {
				items[i] = strconv.Itoa(i)
			}
			var text strings.Builder
			fmt.Fprintf(&text, "e3: 1\nname: p\ninputs: {a: {file: a.txt}}\ntasks:\n")
			before := "a"
			for i := range 10 {
				fmt.Fprintf(&text, "  t%d: {matrix: {n: [%s]}, in: {x: %q}, out: o%d, run: echo}\n", i, strings.Join(items, ", "), before, i)
				before = fmt.Sprintf("t%d[n]", i)
			}
			p := newProjectBelow(t, inMemory(), map[string]string{"e3.yaml": text.String(), "a.txt": "a\n"})
			p.must("init")
			p.must("workspace", "create", ".", "w")
			p.must("workspace", "deploy", ".", "w", "e3.yaml")
			r, err := repo.Open(t.Context(), p.repository(), repo.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := recorded.Run(t.Context(), r, "w"); err != nil {
				t.Fatal(err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			x := p.spawn("ui", ".", "w", "--no-open", "--json")
			defer x.kill(true)
			var doc struct{ URL string }
			if err := json.Unmarshal([]byte(<-x.lines), &doc); err != nil {
				t.Fatal(err)
			}
			jar, err := cookiejar.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			client := &http.Client{Jar: jar}
			pid := x.cmd.Process.Pid
			get := func(path string) time.Duration { // of processors
				t.Helper()
				began, busy := time.Now(), busyTime(t, pid)
				answer, err := client.Get(path)
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				size, err := io.Copy(io.Discard, answer.Body)
				if err != nil || answer.StatusCode != http.StatusOK {
					t.Fatalf("%s: %d %v", path, answer.StatusCode, err)
				}
				took := busyTime(t, pid) - busy
				t.Logf("%-50s %6d ms, %5d ms of processors, %7d bytes, %4d MB, at most %4d", strings.TrimPrefix(path, doc.URL[:strings.Index(doc.URL, "/login")]), time.Since(began).Milliseconds(), took.Milliseconds(), size, memoryOf(t, pid, "VmRSS")>>10, memoryOf(t, pid, "VmHWM")>>10)
				return took
			}
			get(doc.URL)
			at := doc.URL[:strings.Index(doc.URL, "/login")]
			if first := get(at + "/run?w=w"); n == 10_000 && first > time.Second { // and the browser takes its part: TestLargeRuns
				t.Errorf("the first view of a run took %v of processors, want less than 1 s", first)
			}
			for _, path := range []string{"/run?w=w", "/run?w=w", "/", "/run?w=w&sort=-duration&q=t7", "/run?w=w&by=family", "/run?w=w&view=timeline", "/run?w=w&view=graph", "/task?w=w&t=t3[7]", "/task?w=w&t=t3[7]&view=why", "/history?w=w", "/compare?w=w", "/queue", "/store", "/run?w=w"} {
				get(at + path)
			}
			if most := memoryOf(t, pid, "VmHWM") >> 10; n == 10_000 && most > 100 {
				t.Errorf("the server took %d MB, want less than 100", most)
			}
		})
	}
}
