package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/repo"
	"e3/refstore"
	"e3/workspace"
)

// list returns a short form of Runs.
func (p *place) list(ws string) []string {
	p.t.Helper()
	var rows []string
	for r, err := range p.ws.Runs.List(p.ctx, ws) {
		if err != nil {
			p.t.Fatal(err)
		}
		from := ""
		if r.Provenance != nil {
			from = " imported"
		}
		rows = append(rows, fmt.Sprintf("%s %s%s %d/%d", r.RunID, r.Status(), from, r.Summary.Completed, r.Summary.Total))
	}
	return rows
}

func (p *place) wantList(ws string, want ...string) {
	p.t.Helper()
	if got := p.list(ws); !slices.Equal(got, want) {
		p.t.Errorf("the runs of %s are\n%s\nwant\n%s", ws, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// emit writes the log of a run.
func (p *place) emit(ws, id string, list ...events.Event) {
	p.t.Helper()
	log := events.Create(p.repo.Records, ws, id, time.Now)
	for _, e := range list {
		log.Emit(e)
	}
	if err := log.Close(); err != nil {
		p.t.Fatal(err)
	}
}

// runAt is the id of the n-th run.
func runAt(n int) string { return fmt.Sprintf("018f3b4c-9a2d-7def-8abc-%012d", n) }

func TestRuns(t *testing.T) {
	p := newPlace(t)
	var unknown *workspace.UnknownError
	for _, err := range p.ws.Runs.List(p.ctx, "w") {
		if !errors.As(err, &unknown) || unknown.What != "workspace" {
			t.Errorf("of no workspace: %v", err)
		}
	}
	p.write("a.txt", "1")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks:", "  t: {in: [a], out: o, run: cat $a}", "  u: {in: {x: t}, out: p, run: cat}")
	p.wantList("w")
	who := func(o *workspace.StartOptions) {
		o.Process, o.Filter = &events.Process{PID: 7, Host: "box", User: "ann"}, "t"
	}
	first := p.start(who).Run
	second := p.start(who).Run
	p.wantList("w", second.RunID+" completed 1/1", first.RunID+" completed 1/1")
	for r, err := range p.ws.Runs.List(p.ctx, "w") {
		if err != nil || r.Process == nil || r.Process.User != "ann" || r.Process.Host != "box" || r.PackageRef != "p@0.0.0" || r.Filter != "t" || r.StartedAt.IsZero() || r.CompletedAt.IsZero() {
			t.Errorf("a row is %+v of %+v, %v", r, r.Process, err)
		}
	}

	// A dead run, one with only half a line, one that was imported with only its events, one whose record is gone, and
	// one with both events and a record.
	started := events.Event{Type: events.RunStarted, Data: &events.Data{Package: "p@1", Process: &events.Process{User: "bob"}}}
	p.emit("w", runAt(1), started)
	if err := p.repo.Records.Append(p.ctx, refstore.Key{Partition: "EVENTS/w", Sort: runAt(2)}, 0, []byte(`{"seq":1,`)); err != nil {
		t.Fatal(err)
	}
	p.emit("w", runAt(3), started)
	if err := p.repo.Records.Seal(p.ctx, refstore.Key{Partition: "EVENTS/w", Sort: runAt(3)}); err != nil {
		t.Fatal(err)
	}
	p.emit("w", runAt(4), started, events.Event{Type: events.TaskCached, Task: "t", Execution: "x", Data: &events.Data{As: "y"}}, events.Event{Type: events.RunFailed, Task: "t"})
	p.putRun("w", runAt(5), record.RunCompleted, provenance())
	p.emit("w", runAt(5), started, events.Event{Type: events.RunCompleted})
	p.emit("w", "no-run", started)
	p.putRun("w", runAt(6), record.RunRunning)
	own := []string{second.RunID + " completed 1/1", first.RunID + " completed 1/1"}
	rest := []string{runAt(6) + " interrupted 0/0", runAt(5) + " completed imported 0/0", runAt(4) + " failed 0/0",
		runAt(3) + " unfinished imported 0/0", runAt(2) + " damaged 0/0", runAt(1) + " damaged 0/0"} // later runs began, so these had ended
	p.wantList("w", append(own, rest...)...)
	for _, id := range []string{runAt(1), runAt(2), runAt(3), runAt(4), runAt(5), runAt(6)} {
		r, err := p.ws.Runs.Report(p.ctx, "w", id)
		if err != nil || r.RunID != id || r.WorkspaceName != "w" {
			t.Errorf("run %s: %+v, %v", id, r, err)
		}
	}
	if r, err := p.ws.Runs.Report(p.ctx, "w", runAt(4)); err != nil || r.Summary.Cached != 1 || len(r.Tasks) != 1 || r.FailedTask != "t" || r.InputSnapshot != "" {
		t.Errorf("a run without a record: %+v, %v", r, err)
	}
	p.forget(runRecord("w", runAt(6)))

	// While a run is at work it is live, and the dead ones are not.
	p.write("a.txt", "2")
	g := newGate()
	p.run = func(ctx context.Context, script, dir string) int { g.wait(); return shell(ctx, script, dir) }
	done := make(chan struct{})
	go func() { defer close(done); p.start() }()
	<-g.reached
	if rows := p.list("w"); len(rows) != 8 || !strings.HasSuffix(rows[0], " running 0/0") {
		t.Errorf("while one runs: %q", rows)
	}
	for e, err := range events.Follow(p.ctx, p.repo.Records, "w", p.list("w")[0][:36]) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == events.TaskStarted {
			break
		}
	}
	r, err := p.ws.Runs.Report(p.ctx, "w", "")
	if err != nil || !r.Live || r.Summary.Total != 2 || r.Done != 0 || r.Total != 2 {
		t.Errorf("the one that runs: %+v, %v", r, err)
	}
	close(g.open)
	<-done
	if rows := p.list("w"); len(rows) != 8 || !strings.Contains(rows[0], " failed ") {
		t.Errorf("after it: %q", rows)
	}

	// The runs of a removed workspace can still be read by name.
	if err := p.ws.Cleaner.Remove(p.ctx, "w"); err != nil {
		t.Fatal(err)
	}
	if rows := p.list("w"); len(rows) != 8 || rows[2] != own[1] {
		t.Errorf("of a workspace that was removed: %q", rows)
	}
	r, err = p.ws.Runs.Report(p.ctx, "w", first.RunID)
	if err != nil || r.State != record.RunCompleted || len(r.Tasks) != 1 || r.Tasks[0].State != runview.TaskSuccess {
		t.Errorf("a run of a workspace that was removed: %+v, %v", r, err)
	}
	if _, err := p.ws.Runs.Report(p.ctx, "w", ""); !errors.As(err, &unknown) {
		t.Errorf("the latest run of a workspace that was removed: %v", err)
	}
}

// The tasks that a bulk event stands for are found through the runs that it names, or reported as unknown.
func TestUnnamed(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "1")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks: {t: {in: [a], out: o, run: cat $a}}")
	started := events.Event{Type: events.RunStarted, Data: &events.Data{Package: "p@1"}}
	end := func(total int64) events.Event {
		return events.Event{Type: events.RunCompleted, Data: &events.Data{Summary: &events.Summary{Total: total, Completed: total, Cached: total}}}
	}
	bulk := func(n int, as string) events.Event {
		return events.Event{Type: events.TaskCached, Data: &events.Data{Tasks: n, As: as}}
	}
	one := func(name string) events.Event {
		return events.Event{Type: events.TaskCached, Task: name, Execution: newID(t), Data: &events.Data{As: runAt(1)}}
	}
	odd := events.Event{Type: events.RunStarted, Data: &events.Data{Inputs: "../x", Process: &events.Process{}}}
	p.emit("w", runAt(2), odd, one("a"), one("b"), end(2))
	p.emit("w", runAt(3), started, bulk(2, runAt(2)), end(2))
	p.emit("w", runAt(4), started, bulk(2, runAt(3)), end(2))
	p.emit("w", runAt(5), started, one("c"), bulk(2, runAt(4)), end(3))
	p.emit("w", runAt(6), started, bulk(3, runAt(4)), end(3)) // that run has fewer tasks
	p.emit("w", runAt(7), started, bulk(2, runAt(7)), end(2))
	p.emit("w", runAt(8), started, bulk(2, runAt(9)), end(2))
	p.emit("w", runAt(9), started, bulk(2, runAt(8)), end(2))
	for i, as := range []string{runAt(1), "", "../w", "x/y", "\xff", strings.Repeat("z", 5000)} {
		p.emit("w", runAt(10+i), started, bulk(2, as), end(2))
	}
	p.emit("w", runAt(20), started, bulk(2, runAt(2)), bulk(1<<40, runAt(2)), bulk(-1, runAt(2)), end(2))
	for n, want := range map[int]int64{2: 0, 3: 0, 4: 0, 5: 0, 6: 3, 7: 2, 8: 2, 9: 2, 10: 2, 11: 2, 12: 2, 13: 2, 14: 2, 15: 2, 20: 1 << 40} {
		r, err := p.ws.Runs.Report(p.ctx, "w", runAt(n))
		if err != nil {
			t.Fatal(err)
		}
		if r.Unnamed != want || r.InputSnapshot != "" {
			t.Errorf("run %d: %d tasks have no name, want %d", n, r.Unnamed, want)
		}
		var names []string
		for _, task := range r.Tasks {
			names = append(names, task.Task)
			if task.State != runview.TaskCached || task.ExecutionID == "" {
				t.Errorf("run %d: task %+v", n, task)
			}
		}
		wantNames := map[int][]string{2: {"a", "b"}, 3: {"a", "b"}, 4: {"a", "b"}, 5: {"c", "a", "b"}, 20: {"a", "b"}}[n]
		if !slices.Equal(names, wantNames) {
			t.Errorf("run %d has %q, want %q", n, names, wantNames)
		}
	}
}

// Of damaged events, the part before the damage and the end count.
func TestReportOfDamagedEvents(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "1")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks:", "  t: {in: [a], out: o, run: cat $a}", "  u: {in: [a], out: o, run: fail 3}")
	run := p.start().Run
	log := (&dead{p: p, id: run.RunID}).bytes()
	lines := strings.SplitAfter(string(log), "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "task.failed") })
	lines[at] = strings.Repeat("\x00", len(lines[at])-1) + "\n"
	key := refstore.Key{Partition: "EVENTS/w", Sort: run.RunID}
	if err := p.repo.Records.Cut(p.ctx, key, 0); err != nil {
		t.Fatal(err)
	}
	if err := p.repo.Records.Append(p.ctx, key, 0, []byte(strings.Join(lines, ""))); err != nil {
		t.Fatal(err)
	}
	for _, recorded := range []bool{true, false} {
		if !recorded {
			p.forgetRecords()
		}
		r, err := p.ws.Runs.Report(p.ctx, "w", run.RunID)
		if err != nil {
			t.Fatal(err)
		}
		if r.Damage == nil || r.State != record.RunFailed || r.Summary != run.Summary || r.FailedTask != "u" || len(r.Tasks) == 0 {
			t.Errorf("with a record %v: %+v of %+v", recorded, r, r.Run)
		}
		for _, task := range r.Tasks {
			want := map[bool]runview.TaskState{true: runview.TaskFailed, false: runview.TaskInterrupted}[recorded]
			if task.Task == "u" && task.State != want {
				t.Errorf("with a record %v: the task whose end is lost is %+v, want %s", recorded, task, want)
			}
		}
	}
}

// A run whose log has an end that its record lacks is reported as ended.
func TestRunClosedWithoutItsRecord(t *testing.T) {
	p := newPlace(t)
	p.deploy("tasks: {t: {out: o, run: cat}}")
	p.putRun("w", runAt(1), record.RunRunning)
	p.emit("w", runAt(1), events.Event{Type: events.RunStarted, Data: &events.Data{Package: "p@1"}}, events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 2}},
		events.Event{Type: events.TaskStarted, Task: "t", Execution: newID(t), Data: &events.Data{Attempt: 1}}, events.Event{Type: events.TaskFailed, Task: "t"},
		events.Event{Type: events.TaskRetryScheduled, Task: "t", Data: &events.Data{Attempt: 2}},
		events.Event{Type: events.RunFailed, Data: &events.Data{Reason: "crashed", Message: "the process of this run ended without finishing it"}})
	r, err := p.ws.Runs.Report(p.ctx, "w", "")
	if err != nil {
		t.Fatal(err)
	}
	if !r.Crashed() || r.Status() != "crashed" || len(r.Tasks) != 1 || r.Tasks[0].State != runview.TaskFailed || r.Summary.Total != 2 {
		t.Errorf("it is %+v of %+v", r, r.Run)
	}
}

// A log may contain anything: invalid hashes, durations and task counts are ignored.
func TestReportHostileEvents(t *testing.T) {
	p := newPlace(t)
	p.emit("w", runAt(1), events.Event{Type: events.RunStarted, Data: &events.Data{Package: "p@1", PackageHash: strings.Repeat("z", 64), Inputs: "../x"}},
		events.Event{Type: events.TaskCached, Data: &events.Data{Tasks: 1 << 60, As: "../../x"}},
		events.Event{Type: events.TaskFailed, Task: "t", Execution: "x", Data: &events.Data{Key: "y", Duration: math.MaxInt64, Message: "m"}},
		events.Event{Type: events.RunCancelled, Data: &events.Data{By: "ann@there", Message: "enough", Duration: -1, Outputs: "z"}})
	r, err := p.ws.Runs.Report(p.ctx, "w", runAt(1))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Tasks) != 1 || r.Tasks[0].Duration <= 0 || r.PackageHash != "" || r.InputSnapshot != "" || r.OutputSnapshot != "" || r.By != "ann@there" || r.Why != "enough" {
		t.Errorf("it is %+v of %+v", r, r.Run)
	}
	if pkg, hash, err := p.ws.Runs.PackageOf(p.ctx, r); pkg != nil || hash != "" || err != nil {
		t.Errorf("its package is %v, %q, %v", pkg, hash, err)
	}
}

// BenchmarkRuns lists 10,000 runs.
func BenchmarkRuns(b *testing.B) {
	r, err := repo.Create(filepath.Join(b.TempDir(), repo.DirName))
	if err != nil {
		b.Fatal(err)
	}
	p, err := repo.Open(context.Background(), r, repo.Options{Version: "test"})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	for n := range 10_000 {
		log := events.Create(p.Records, "w", runAt(n), time.Now)
		log.Emit(events.Event{Type: events.RunStarted, Data: &events.Data{Package: "p@1"}})
		for range 50 {
			log.Emit(events.Event{Type: events.TaskCached, Task: "t", Execution: runAt(1), Data: &events.Data{As: runAt(1), Output: strings.Repeat("0", 64)}})
		}
		log.Emit(events.Event{Type: events.RunCompleted, Data: &events.Data{Summary: &events.Summary{Total: 50}}})
		if err := log.Close(); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		n := 0
		for _, err := range p.Workspaces.Runs.List(b.Context(), "w") {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != 10_000 {
			b.Fatalf("%d runs", n)
		}
	}
}
