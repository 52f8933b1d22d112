//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/internal/format/record"
)

// grownGraph makes its tasks from lists that other tasks make, in two levels. Each execution leaves a mark.
const grownGraph = `
e3: 1
name: kill
inputs:
  a: {file: a.txt}
tasks:
  split: {in: [a], out: parts.txt, pass_env: [E2E_STATE], run: 'echo split >> "$E2E_STATE/ran"; cat "$a" > "$out"'}
  half:
    matrix: {n: {from: split}}
    out: halves.txt
    pass_env: [E2E_STATE]
    run: 'echo "half $n" >> "$E2E_STATE/ran"; printf "%s\n" "$n"-left "$n"-right > "$out"'
  leaf:
    matrix: {n: {from: split}, h: {from: "half[n]"}}
    out: leaf.txt
    pass_env: [E2E_STATE]
    run: 'echo "leaf $h" >> "$E2E_STATE/ran"; echo "$h" > "$out"'
  other: {in: [a], out: other.txt, pass_env: [E2E_STATE], run: 'echo other >> "$E2E_STATE/ran"; cat "$a" > "$out"'}
  report:
    in: {leaves: "leaf[*]", o: other}
    out: report.txt
    pass_env: [E2E_STATE]
    run: 'echo report >> "$E2E_STATE/ran"; cat "$leaves"/* "$o" > "$out"'
`

// TestKillGrowing kills e3 while its graph grows: between the end of a task that makes a list, the package that follows, the
// workspace's state and the event. The next start goes on, and runs nothing that has an answer.
func TestKillGrowing(t *testing.T) {
	rnd := random(t)
	for i := range max(4, killCount(t)/4) {
		// After the end of split, or of a half, the graph grows.
		line, delay := `"task":"split"`, time.Duration(rnd.Int64N(int64(30*time.Millisecond)))
		if i%2 == 1 {
			line = `"graph.grown"`
		}
		changed := i%3 == 2
		t.Run(fmt.Sprintf("%02d_%v_%v", i, changed, delay.Round(10*time.Microsecond)), func(t *testing.T) {
			t.Parallel()
			killGrowing(t, line, delay, changed)
		})
	}
}

func killGrowing(t *testing.T, line string, delay time.Duration, changed bool) {
	p := newProject(t, map[string]string{"e3.yaml": grownGraph, "a.txt": "x\ny\n"})
	want := "x-left\nx-right\ny-left\ny-right\nx\ny\n"
	if changed {
		if r := p.e3(killArgs...); r.code != 0 {
			t.Fatalf("first run: exit code %d\n%s", r.code, r.text())
		}
		p.write("a.txt", "y\nz\n")
		want = "y-left\ny-right\nz-left\nz-right\ny\nz\n"
	}
	x := p.spawn(killArgs...)
	for l := range x.lines {
		if strings.Contains(l, line) {
			break
		}
	}
	select {
	case <-time.After(delay):
	case <-x.ended:
	}
	x.kill(false)
	noStrays(t, p.dir, x.cmd.Process.Pid)
	root := p.repository()
	var before finished
	if _, err := os.Stat(filepath.Join(root, "format.json")); err == nil {
		before = rememberFinished(t, root)
	}
	answered := before.successes(t)
	next := p.e3(killArgs...)
	if next.code != 0 {
		t.Fatalf("the next start: exit code %d\n%s\nthe killed one said:\n%s", next.code, next.text(), x.result().text())
	}
	noStrays(t, p.dir, 0)
	check(t, root)
	before.unchanged(t, root)
	for _, e := range p.all() {
		key := e.Key.String()
		if rel := "executions/" + key + "/" + e.ExecutionID; answered[key] && before[rel] == nil {
			t.Errorf("task %s had an answer and ran again as %s", e.Detail.Task, e.ExecutionID)
		}
	}
	if got := p.object(p.finalOutput()); got != want {
		t.Errorf("the report is\n%s\nwant\n%s", got, want)
	}
	if run := p.lastRun("kill"); run.State != record.RunCompleted || run.Summary.Total != 9 {
		t.Errorf("the last run is %v %+v", run.State, run.Summary)
	}
	again := p.e3(killArgs...)
	if n := len(again.ran(t)); again.code != 0 || n > 0 {
		t.Errorf("the start after that has run %d commands\n%s", n, again.text())
	}
}
