package workspace_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/workspace"
)

// checkLog holds the log of a run to the diagram of its states, and to its record.
func (p *place) checkLog(t interface {
	Fatalf(string, ...any)
	Errorf(string, ...any)
}, run *record.Run) {
	var m eventstest.Machine
	f := runview.NewFold()
	for e, err := range events.Read(p.ctx, p.repo.Records, "w", run.RunID) {
		if err == nil {
			f.Add(&e.Event)
			err = m.Next(&e.Event)
		}
		if err != nil {
			t.Fatalf("run %s: %v", run.RunID, err)
		}
	}
	if fault := f.Contradicts(run); fault != "" {
		t.Errorf("run %s: %s", run.RunID, fault)
	}
}

// A batch that fails while the run is ending is no failure of its items: they had no turn of their own.
func TestBatchFailsLast(t *testing.T) {
	b := &batchRunner{made: map[string][]string{}}
	p := batchPlace(t, b)
	for n := range 3 {
		p.write(fmt.Sprintf("raw/%d.txt", n), "bad")
	}
	p.deploy("inputs: {code: {file: code}, raw: {files: 'raw/{n}.txt'}}", "tasks:",
		"  t: {matrix: raw, in: {raw: 'raw[n]', code: code}, out: o, run: go, batch: 3}",
		"  boom: {in: {code: code}, out: o, run: boom}")
	running, failed := make(chan struct{}), make(chan struct{})
	b.begun = func(_ context.Context, items int) {
		if items == 3 {
			close(running)
			<-failed
		}
	}
	b.boom = func() { <-running }
	res := p.start(func(o *workspace.StartOptions) {
		o.FailFast = true
		o.OnEvent = func(e events.Event) {
			if e.Type == events.TaskFailed && e.Task == "boom" {
				close(failed)
			}
		}
	})
	p.checkLog(t, res.Run)
	if s := res.Run.Summary; res.Run.FailedTask != "boom" || s.Failed != 1 || s.Skipped != 3 {
		t.Errorf("the run failed because of %s with %+v; want boom, 1 failed and 3 without a turn", res.Run.FailedTask, s)
	}
	r, err := p.ws.Runs.Report(p.ctx, "w", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range r.Tasks {
		if want := map[bool]runview.TaskState{true: runview.TaskFailed, false: runview.TaskAbandoned}[task.Task == "boom"]; task.State != want {
			t.Errorf("the report says that %s is %s, want %s", task.Task, task.State, want)
		}
		if task.Task != "boom" && task.Batch.Items != 3 {
			t.Errorf("the report says that %s was in a batch of %d, want 3", task.Task, task.Batch.Items)
		}
	}
}

// Runs with batches end in all ways at any event, and the next one makes what is missing.
func TestBatchEnds(t *testing.T) {
	rounds := 0
	rapid.Check(t, func(rt *rapid.T) {
		if rounds++; testing.Short() && rounds > 20 {
			return
		}
		b := &batchRunner{made: map[string][]string{}}
		p := batchPlace(t, b)
		items := rapid.IntRange(1, 8).Draw(rt, "items")
		bad := 0
		for n := range items {
			kind := rapid.SampledFrom([]string{"good", "good", "lazy", "bad"}).Draw(rt, "kind")
			if kind == "bad" {
				bad++
			}
			p.write(fmt.Sprintf("raw/%d.txt", n), kind)
		}
		size := rapid.IntRange(1, 5).Draw(rt, "batch")
		p.deploy("inputs: {code: {file: code}, raw: {files: 'raw/{n}.txt'}}", "tasks:",
			fmt.Sprintf("  t: {matrix: raw, in: {raw: 'raw[n]', code: code}, out: o, run: go, batch: %d, retries: %d, may_fail: %v}",
				size, rapid.IntRange(0, 1).Draw(rt, "retries"), rapid.Bool().Draw(rt, "may fail")))
		was := p.ctx
		ctx, cancel := context.WithCancel(was)
		defer cancel()
		p.ctx = ctx
		left := rapid.IntRange(1, 40).Draw(rt, "events")
		var mu sync.Mutex
		res := p.start(func(o *workspace.StartOptions) {
			o.Concurrency = rapid.IntRange(1, 3).Draw(rt, "cores")
			o.FailFast = rapid.Bool().Draw(rt, "fail fast")
			o.OnEvent = func(events.Event) {
				mu.Lock()
				defer mu.Unlock()
				if left--; left == 0 {
					cancel()
				}
			}
		})
		p.ctx = was
		p.checkLog(rt, res.Run)
		if s := res.Run.Summary; int(s.Failed) > bad {
			rt.Errorf("%d of %d items are bad, and the run has %+v", bad, items, s)
		}
		res = p.start()
		p.checkLog(rt, res.Run)
		if s := res.Run.Summary; int(s.Failed) != bad || int(s.Completed) != items-bad {
			rt.Errorf("%d of %d items are bad, and the run after it has %+v", bad, items, s)
		}
	})
}

// A command of a batch that fails by its time, or cannot start, is tried item by item as well; then each has the time of one.
func TestBatchTimes(t *testing.T) {
	b := &batchRunner{made: map[string][]string{}}
	p := batchPlace(t, b)
	for n := range 3 {
		p.write(fmt.Sprintf("raw/%d.txt", n), map[bool]string{true: "slow", false: "good"}[n == 1])
	}
	p.deploy("inputs: {code: {file: code}, raw: {files: 'raw/{n}.txt'}}", "tasks:",
		"  t: {matrix: raw, in: {raw: 'raw[n]', code: code}, out: o, run: go, batch: 3, timeout: 2s}")
	res := p.start(func(o *workspace.StartOptions) { o.Concurrency = 1 })
	p.checkLog(t, res.Run)
	if s := res.Run.Summary; s.Failed != 1 || s.Completed != 2 || res.Run.FailedTask != "t[1]" {
		t.Errorf("the run has %+v, and failed because of %s; want only t[1] to fail", s, res.Run.FailedTask)
	}
	if got, want := strings.Join(b.timeouts, " "), "6s 2s 2s 2s"; got != want {
		t.Errorf("the commands had %s, want %s", got, want)
	}
	for e, err := range p.repo.Executions.All(p.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Detail.Batch.Items == 3 && (e.State != record.Error || e.Message != "in a batch of 3: timed out after 6s" || e.Detail.Reason != string(executions.ReasonBatch)):
			t.Errorf("%s in the batch is %v (%q, %s)", e.Detail.Task, e.State, e.Message, e.Detail.Reason)
		case e.Detail.Batch.Items == 0 && e.Detail.Task == "t[1]" && e.Message != "timed out after 2s":
			t.Errorf("%s alone is %v (%q)", e.Detail.Task, e.State, e.Message)
		}
	}
}
