//go:build linux

package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"e3/internal/format/record"
	"e3/internal/testing/suite"
)

// powerGraph has outputs of every kind and of some size, so that much is in flight.
const powerGraph = `
e3: 1
name: power
inputs:
  seed: {file: seed.txt}
  other: {file: other.txt}
tasks:
  big: {in: [seed], out: big.bin, run: 'cat "$seed" > "$out"; head -c 3000000 /dev/zero >> "$out"'}
  tree: {in: [seed], out: tree/, run: 'for i in {1..30}; do echo "$i $(cat "$seed")" > "$out/$i"; done'}
  part: {in: [other], out: part.txt, matrix: {n: [1, 2, 3, 4, 5, 6]}, run: 'sleep 0.05; echo "$n $(cat "$other")"; cp "$other" "$out"; echo "$n" >> "$out"'}
  two: {in: {b: big}, out: {l: l.txt, r: r.txt}, run: 'cksum < "$b" > "$l"; wc -c < "$b" > "$r"'}
  slow: {in: [other], out: slow.txt, run: 'echo slow; sleep 0.4; cp "$other" "$out"'}
  all: {in: {p: "part[*]", t: tree, x: two.l, s: slow}, out: all.txt, run: 'cat "$p"/* "$t"/* "$x" "$s" > "$out"'}
`

var powerFiles = map[string]string{"e3.yaml": powerGraph, "seed.txt": "seed\n", "other.txt": "other\n"}

// powerCuts runs a test on each of the file systems whose behaviour differs, with what the
// journal holds in memory lost when power is cut, and with it written.
func powerCuts(t *testing.T, test func(t *testing.T, v *volume, journal bool)) {
	for _, kind := range []string{"ext4", "xfs"} {
		for _, journal := range []bool{false, true} {
			t.Run(kind+map[bool]string{false: "_journal_lost", true: "_journal_written"}[journal], func(t *testing.T) {
				needRoot(t)
				if _, err := exec.LookPath("xfs_io"); err != nil {
					t.Skip("install xfsprogs: power is cut with xfs_io")
				}
				t.Parallel() // most of the time nothing is computed
				test(t, newVolume(t, kind, "320"), journal)
			})
		}
	}
}

// TestPowerLoss cuts power the moment a run says that it completed.
func TestPowerLoss(t *testing.T) {
	suite.Thorough(t)
	for name, beside := range map[string]int{"alone": 0, "beside a writer": 48 << 20} {
		t.Run(name, func(t *testing.T) { loseRuns(t, beside) })
	}
}

// loseRuns cuts power after runs of each kind. Before each, another program has written so many bytes to the disk, for
// which the run should not wait.
func loseRuns(t *testing.T, beside int) {
	powerCuts(t, func(t *testing.T, v *volume, journal bool) {
		p := v.project("project", powerFiles)
		spared := 0
		for _, round := range []struct {
			name string
			args []string
			edit func()
			runs int // tasks that run
		}{
			{"first run", nil, func() {}, 11},
			{"nothing changed", nil, func() {}, 0},
			{"one source changed", nil, func() { p.write("seed.txt", "another\n") }, 4},
			{"every execution durable", []string{"--durability", "full"}, func() { p.write("other.txt", "another\n") }, 8},
			{"published at the end", []string{"--publish", "final"}, func() { p.write("other.txt", "third\n") }, 8},
			{"not published", []string{"--publish", "none"}, func() { p.write("other.txt", "fourth\n") }, 8},
		} {
			round.edit()
			if p.loseAfterCompletion(v, journal, round.name, round.args, round.runs, beside) {
				spared++
			}
		}
		if beside > 0 && spared == 0 { // some may be synced: after a loss, or by the kernel, which has its own reasons
			t.Error("all runs have synced what another program has written")
		}
	})
}

// loseAfterCompletion starts, cuts power when the run has completed, and looks at what is left. spared says that what another
// program had written was lost, all or in part.
func (p *project) loseAfterCompletion(v *volume, journal bool, round string, args []string, runs, beside int) (spared bool) {
	t := p.t
	t.Helper()
	syncFiles(t, p.dir)                                                // the person's own files are not e3's concern
	other := filepath.Join(v.dir, strings.ReplaceAll(round, " ", "-")) // a new one: file systems write one that was truncated at once
	if beside > 0 {
		if err := os.WriteFile(other, make([]byte, beside), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	x := p.spawn(append([]string{"start", "-f", "e3.yaml", "--json"}, args...)...)
	x.waitLine(`"type":"run.completed"`)
	before := rememberFinished(t, p.repository())
	run := p.lastRun("power")
	v.cutPower(journal)
	x.wait()
	v.restore()

	info, err := os.Stat(other)
	spared = err != nil || info.Size() < int64(beside)
	if got := len(x.result().ran(t)); got != runs {
		t.Errorf("%s: %d tasks ran, want %d", round, got, runs)
	}
	now := p.lastRun("power")
	if now.RunID != run.RunID || now.State != record.RunCompleted || now.Summary != run.Summary {
		t.Errorf("%s: the run record is %+v, was %+v", round, now, run)
	}
	before.unchanged(t, p.repository())
	next := p.start(0)
	if ran := next.ran(t); len(ran) > 0 {
		t.Errorf("%s: after the loss of power %v ran again", round, ran)
	}
	check(t, p.repository())
	if t.Failed() {
		t.FailNow()
	}
	return spared
}

// syncFiles makes the project's own files durable.
func syncFiles(t testing.TB, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		t.Fatal(err)
	}
}

// TestPowerLossAfterCheapRun cuts power after a durable run that found everything made by
// one that synced nothing: what the later one says must hold all the same.
func TestPowerLossAfterCheapRun(t *testing.T) {
	suite.Thorough(t)
	powerCuts(t, func(t *testing.T, v *volume, journal bool) {
		p := v.project("project", powerFiles)
		p.start(0) // the repository and its folders are there
		p.write("other.txt", "cheap\n")
		syncFiles(t, p.dir)
		p.start(0, "--durability", "none")
		p.loseAfterCompletion(v, journal, "unchanged after --durability=none", nil, 0, 0)
	})
}

// TestPowerLossMidRun cuts power at any moment of a run: the next start goes on, and whatever
// is referred to is there and right.
func TestPowerLossMidRun(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	powerCuts(t, func(t *testing.T, v *volume, journal bool) {
		rnd := random(t)
		for i := range rounds {
			p := v.project(fmt.Sprintf("project_%d", i), powerFiles)
			syncFiles(t, p.dir)
			if i%2 == 1 {
				p.start(0)
				p.write("other.txt", "another\n")
				syncFiles(t, p.dir)
			}
			x := p.spawn("start", "-f", "e3.yaml", "--json")
			killPoint{delay: time.Duration(rnd.Int64N(int64(700 * time.Millisecond)))}.at(x)
			v.cutPower(journal)
			x.kill(true)
			v.restore()
			p.recovers(fmt.Sprintf("round %d", i))
		}
	})
}

// TestPowerLossWorstOrder has the kernel write what names something before that, as it may:
// records before outputs, directories before their files. A success whose output was torn must
// not be taken for an answer, in whatever workspace it is asked for first.
func TestPowerLossWorstOrder(t *testing.T) {
	suite.Thorough(t)
	powerCuts(t, func(t *testing.T, v *volume, journal bool) {
		p := v.project("worst", powerFiles)
		syncFiles(t, p.dir)
		x := p.spawn("start", "-f", "e3.yaml", "--json", "--publish", "final")
		x.waitLine(`"type":"task.completed","task":"two"`)
		records, err := filepath.Glob(p.path(".e3/executions/*/*/*/*"))
		if err != nil || len(records) == 0 {
			t.Fatalf("no records yet: %v", err)
		}
		for _, path := range append(records, treeObjects(t, p.repository())...) {
			v.run("xfs_io", "-x", "-c", "fsync", "-r", path)
		}
		v.cutPower(journal)
		x.kill(true)
		v.restore()
		p.start(0, "other")
		p.recovers("records before outputs")
	})
}

// treeObjects are the paths of the objects that are beast2 files: directories and the like.
func treeObjects(t testing.TB, root string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "objects", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(paths, func(path string) bool {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return !strings.HasPrefix(string(data), "\x89East")
	})
}

// recovers demands that the next start brings a project of powerGraph to its end, however
// much was lost.
func (p *project) recovers(what string) {
	t := p.t
	t.Helper()
	if next := p.e3("start", "-f", "e3.yaml", "--json"); next.code != 0 {
		t.Fatalf("%s: the next start: exit code %d\n%s", what, next.code, next.text())
	}
	check(t, p.repository())
	outputs := map[string]string{}
	run := p.lastRun("power")
	for _, e := range p.all() {
		for task := range run.Tasks.All() {
			if task.ExecutionID == e.ExecutionID {
				outputs[task.Task] = e.OutputHash
			}
		}
	}
	if len(outputs) != 11 {
		t.Fatalf("%s: the run has outputs of %v", what, slices.Sorted(maps.Keys(outputs)))
	}
	if got, want := len(p.object(outputs["big"])), 3000000+len(p.read("seed.txt")); got != want {
		t.Errorf("%s: the output of big has %d bytes, want %d", what, got, want)
	}
}
