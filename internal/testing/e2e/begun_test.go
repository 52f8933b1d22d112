//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
)

// begunGraph has commands that print and then name their process, of some milliseconds and of some tenths of a second,
// one after the other and side by side. Their output is under way before the mark is.
const begunGraph = `
e3: 1
name: begun
inputs:
  a: {file: a.txt}
tasks:
  long:
    in: [a]
    out: long.txt
    matrix: {n: [1, 2]}
    pass_env: [E2E_STATE]
    run: 'echo "begun $n"; echo "warned $n" >&2; echo "$E3_EXECUTION" >> "$E2E_STATE/ran"; sleep 0.4; cp "$a" "$out"'
  short:
    in: [a]
    out: short.txt
    matrix: {n: [1, 2, 3, 4, 5, 6, 7, 8]}
    retries: {max: 1}
    pass_env: [E2E_STATE]
    run: 'echo "begun $n"; echo "warned $n" >&2; echo "$E3_EXECUTION" >> "$E2E_STATE/ran"; sleep 0.03; cp "$a" "$out"'
`

var begunArgs = []string{"start", "-f", "e3.yaml", "--json", "-j", "4"}

// begunKills is how many kills TestKilledCommands tries.
func begunKills(t *testing.T) int {
	n := 9
	if testing.Short() {
		n = 3
	}
	if s := os.Getenv("E3_E2E_COMMAND_KILLS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatalf("E3_E2E_COMMAND_KILLS: %v", err)
		}
	}
	return n
}

// TestKilledCommands kills e3, its supervisor, or both at once, within the first 300 ms of commands. After the next
// start, also if it has nothing to do with them, each command that has run is on record, with what it had printed, and
// so is each that e3 had said to start; and the dead run tells of them, but for one that had succeeded just before.
func TestKilledCommands(t *testing.T) {
	rnd := random(t)
	for i := range begunKills(t) {
		whom := []string{"e3", "supervisor", "both"}[i%3]
		delay, edited := time.Duration(rnd.Int64N(int64(300*time.Millisecond))), rnd.IntN(2) == 0
		seed := rnd.Uint64()
		t.Run(fmt.Sprintf("%03d_%s_%v_edited_%v", i, whom, delay.Round(time.Millisecond), edited), func(t *testing.T) {
			t.Parallel()
			killCommands(t, whom, delay, edited, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

func killCommands(t *testing.T, whom string, delay time.Duration, edited bool, rnd *rand.Rand) {
	p := newProject(t, map[string]string{"e3.yaml": begunGraph, "a.txt": "alpha\n"})
	x := p.spawn(begunArgs...)
	want := 1 + rnd.IntN(6)
	eventually(t, patience, "commands run", func() string {
		if n := len(p.marks("ran")); n < want {
			return fmt.Sprintf("%d have said so, not %d", n, want)
		}
		return ""
	})
	supervisor := x.supervisor()
	select {
	case <-time.After(delay):
	case <-x.ended:
	}
	if whom != "e3" && supervisor > 0 {
		syscall.Kill(supervisor, syscall.SIGKILL)
	}
	if whom != "supervisor" {
		syscall.Kill(x.pid(), syscall.SIGKILL)
	}
	r := x.wait()
	var ran []string
	if whom == "supervisor" {
		ran = p.marks("ran")
		recordedCommands(t, p, ran, "before the next start")
	}
	if edited {
		p.write("a.txt", "alpha, edited\n")
	}
	next := p.e3(begunArgs...)
	if next.code != 0 {
		t.Fatalf("the next start: exit code %d\n%s", next.code, next.text())
	}
	for _, e := range r.events(t) {
		if e.Type == "task.started" {
			ran = append(ran, e.Execution)
		}
	}
	ran = append(ran, p.marks("ran")...)
	slices.Sort(ran)
	recordedCommands(t, p, slices.Compact(ran), "after it")
	check(t, p.repository())
	noStrays(t, p.dir, 0)
}

// recordedCommands demands that commands are on record as ended, with what they printed before they left their mark.
func recordedCommands(t *testing.T, p *project, ran []string, when string) {
	t.Helper()
	known := map[string]*executions.Execution{}
	for _, e := range p.all() {
		known[e.ExecutionID] = e
	}
	marked := p.marks("ran")
	logs := ""
	files, _ := filepath.Glob(filepath.Join(p.repository(), "events", "*", "*.ndjson"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		logs += string(text)
	}
	for _, id := range ran {
		e := known[id]
		if e == nil {
			t.Errorf("%s: the execution %s has begun and is not on record", when, id)
			continue
		}
		if e.State == record.Running {
			t.Errorf("%s: the execution %s is on record as running", when, id)
		}
		if e.State != record.Success && !strings.Contains(logs, id) { // the last events of a success may die with e3: see doc/design.md, "Crashes"
			t.Errorf("%s: no event tells of execution %s of %s (%v %q)", when, id, e.Detail.Task, e.State, e.Message)
		}
		if !slices.Contains(marked, id) {
			continue // it was about to start
		}
		if out, warn := p.log(e, executions.Stdout), p.log(e, executions.Stderr); !strings.HasPrefix(out, "begun ") || !strings.HasPrefix(warn, "warned ") {
			t.Errorf("%s: the logs of execution %s of %s (%v %q) are %q and %q", when, id, e.Detail.Task, e.State, e.Message, out, warn)
		}
	}
}

// supervisor is the process that starts e3's commands; 0 if there is none.
func (x *process) supervisor() int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", x.pid()))
	for _, file := range files {
		children, _ := os.ReadFile(file)
		for _, child := range strings.Fields(string(children)) {
			command, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if strings.HasPrefix(string(command), "e3-supervisor\x00") {
				pid, _ := strconv.Atoi(child)
				return pid
			}
		}
	}
	return 0
}
