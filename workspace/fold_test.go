package workspace_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/refstore"
	"e3/workspace"
)

// foldOf folds the log of a run, and checks it against the diagram of task states.
func (p *place) foldOf(id string) *runview.Fold {
	p.t.Helper()
	f, m := runview.NewFold(), eventstest.Machine{}
	for e, err := range events.Read(p.ctx, p.repo.Records, "w", id) {
		if err == nil {
			err = m.Next(&e.Event)
		}
		if err != nil {
			p.t.Fatalf("the log of run %s: %v\n%s", id, err, p.logOf(id))
		}
		f.Add(&e.Event)
	}
	return f
}

func (p *place) logOf(id string) string {
	d := &dead{p: p, id: id}
	return string(d.bytes())
}

// mapOf returns a run's executions by task.
func mapOf(run *record.Run) map[string]record.TaskExecution {
	m := map[string]record.TaskExecution{}
	for e := range run.Tasks.All() {
		m[e.Task] = e
	}
	return m
}

// wantTold demands that the report of a run from its events alone equals the one from its record, except for unnamed
// tasks.
func (p *place) wantTold(want *record.Run, unnamed int64) {
	p.t.Helper()
	if stored, err := p.ws.Runs.Run(p.ctx, "w", want.RunID); err == nil {
		if fault := p.foldOf(want.RunID).Contradicts(stored); fault != "" {
			p.t.Errorf("run %s: %s\n%s", want.RunID, fault, p.logOf(want.RunID))
		}
	}
	r, err := p.ws.Runs.Report(p.ctx, "w", want.RunID)
	if err != nil {
		p.t.Fatal(err)
	}
	got := *r.Run
	if r.Unnamed != unnamed {
		p.t.Errorf("run %s: %d tasks have no name, want %d\n%s", want.RunID, r.Unnamed, unnamed, p.logOf(want.RunID))
	}
	if diff := cmp.Diff(mapOf(want), mapOf(&got)); diff != "" {
		p.t.Errorf("run %s: tasks (-record +events):\n%s", want.RunID, diff)
	}
	if got.StartedAt.Before(want.StartedAt.Truncate(time.Millisecond)) || got.CompletedAt.Before(got.StartedAt) {
		p.t.Errorf("run %s: by its events it lasted from %v to %v, by its record from %v to %v", want.RunID, got.StartedAt, got.CompletedAt, want.StartedAt, want.CompletedAt)
	}
	bare := *want
	bare.StartedAt, bare.CompletedAt, bare.Tasks = got.StartedAt, got.CompletedAt, got.Tasks
	if diff := cmp.Diff(bare, got, cmp.AllowUnexported(record.RunTasks{})); diff != "" {
		p.t.Errorf("run %s (-record +events):\n%s", want.RunID, diff)
	}
}

// wantFolded demands that the events alone reproduce the record.
func (p *place) wantFolded(run *record.Run) {
	p.t.Helper()
	f := p.foldOf(run.RunID)
	if f.Summary() != run.Summary || f.State() != run.State || f.Waiting() != 0 {
		p.t.Errorf("run %s: folded are %+v, %v, %d wait; on record %+v, %v\n%s",
			run.RunID, f.Summary(), f.State(), f.Waiting(), run.Summary, run.State, p.logOf(run.RunID))
	}
	if fault := f.Contradicts(run); fault != "" { // an import would refuse it
		p.t.Errorf("run %s: %s\n%s", run.RunID, fault, p.logOf(run.RunID))
	}
}

// After any sequence of starts, the events of each run agree with its record, even without the record.
func TestEventsTellAll(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed_", seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(uint64(seed), 4))
			p := newPlace(t)
			wide, rounds := seed%3 == 0, 8 // wide has enough tasks for bulk events
			if wide {
				rounds = 20
			}
			var mu sync.Mutex
			flaky := map[string]bool{}
			p.run = func(ctx context.Context, script, dir string) int {
				if after, ok := strings.CutPrefix(script, "flaky "); ok {
					mu.Lock()
					flaky[after] = !flaky[after]
					first := flaky[after]
					mu.Unlock()
					if script = after; first {
						return 5
					}
				}
				script, out, _ := strings.Cut(script, " > ")
				if code := shell(ctx, script, dir); code != 0 {
					return code
				}
				if err := os.Rename(filepath.Join(dir, "o"), filepath.Join(dir, out)); err != nil {
					return 8
				}
				return 0
			}
			var runs []*record.Run
			for range rounds {
				p.edit(rnd, wide)
				for range 1 + rnd.IntN(2) {
					runs = append(runs, p.startSomehow(rnd))
				}
			}
			p.forgetRecords()
			for _, run := range runs {
				p.wantFolded(run)
				p.wantTold(run, 0)
			}
		})
	}
}

// edit changes inputs or deploys another package.
func (p *place) edit(rnd *rand.Rand, wide bool) {
	p.write("a.txt", fmt.Sprint(rnd.IntN(3)))
	p.write("b.txt", fmt.Sprint(rnd.IntN(3)))
	p.write("c.txt", "c")
	lines := []string{"inputs: {a: {file: a.txt}, b: {file: b.txt}, c: {file: c.txt}}", "tasks:"}
	task := func(name, in string) {
		run := []string{"cat $x", "cat $x", "cat $x", "cat $x $x", "flaky cat $x", "fail 3"}[rnd.IntN(6)]
		if rnd.IntN(3) > 0 && strings.HasPrefix(run, "fail") || wide && rnd.IntN(4) > 0 {
			run = "cat $x"
		}
		lines = append(lines, fmt.Sprintf("  %s: {in: {x: %s}, out: %s.out, retries: {max: %d, backoff: %s}, run: '%s > %[1]s.out'}",
			name, in, name, rnd.IntN(3), []string{"1ms", "5s"}[rnd.IntN(8)/7], run))
	}
	task("one", "a")
	task("two", "b")
	task("three", "one")
	task("four", "three")
	if wide {
		lines = append(lines, "  many: {in: {x: c}, out: p, matrix: {n: ["+numbers(120)+"]}, run: 'cat $x > p'}",
			"  few: {in: {x: b}, out: p, matrix: {n: ["+numbers(3)+"]}, run: 'cat $x > p'}")
	}
	p.deploy(lines...)
}

func numbers(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(i)
	}
	return strings.Join(list, ",")
}

// startSomehow starts with random options; it may be cancelled.
func (p *place) startSomehow(rnd *rand.Rand) *record.Run {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	left := -1
	if rnd.IntN(4) == 0 {
		left = rnd.IntN(6)
	}
	var mu sync.Mutex
	o := func(o *workspace.StartOptions) {
		o.Filter = []string{"", "", "", "t*", "four", "o*"}[rnd.IntN(6)]
		o.Force = rnd.IntN(5) == 0
		o.FailFast = rnd.IntN(4) == 0
		o.OnEvent = func(e events.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Type == events.TaskRetryScheduled && e.Data.DelayMs > 1000 {
				cancel() // skip the long wait
			}
			if left--; left == 0 {
				cancel()
			}
		}
	}
	was := p.ctx
	p.ctx = ctx
	defer func() { p.ctx = was }()
	return p.start(o).Run
}

// Events with arbitrary data can be folded.
func TestFoldOfAnything(t *testing.T) {
	f := runview.NewFold()
	for i, e := range []events.Event{
		{Type: events.TaskCreated, Data: &events.Data{Tasks: -5}},
		{Type: events.TaskCached, Data: &events.Data{Tasks: 1 << 62, As: "x"}},
		{Type: events.TaskCached, Data: &events.Data{Tasks: 1 << 62}},
		{Type: events.TaskCached, Task: "a", Data: &events.Data{As: "x", Duration: -1}, Execution: "e"},
		{Type: events.TaskCached, Task: "a", Data: &events.Data{As: "x", Duration: 1 << 62}, Execution: "e"},
		{Type: events.TaskCompleted, Task: "b"}, {Type: events.TaskStarted, Task: "b"}, {Type: "task.dreamt", Task: "c"}, {Type: "x"},
		{Type: events.TaskAbandoned}, {Type: events.TaskAbandoned, Data: &events.Data{Tasks: -1}}, {Type: events.RunFailed},
		{Type: events.RunStarted}, {Type: events.TaskFailed, Task: "b", Data: &events.Data{Attempt: -4}}, {Type: events.RunCancelled},
	} {
		e.Seq = int64(i)
		f.Add(&e)
	}
	if f.State() != record.RunCancelled || f.Waiting() < 0 || f.Executions().Len() != 1 {
		t.Errorf("%v, %d wait, %d executions", f.State(), f.Waiting(), f.Executions().Len())
	}
}

// forgetRecords removes the run records.
func (p *place) forgetRecords() {
	p.t.Helper()
	for _, id := range p.runs() {
		p.forget(refstore.Key{Partition: "DATAFLOW/w", Sort: id})
	}
}
