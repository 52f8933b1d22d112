package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/jobs/approval"
	"e3/refstore"
	"e3/workspace"
)

// deploySuspending deploys tasks of which one needs approval, and one suspends itself the given number of times.
func (p *place) deploySuspending(times int) {
	p.write("a.txt", "a")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks:",
		"  release: {in: {x: a}, out: r, approve: true, run: 'cat $x > r'}",
		"  train: {in: {x: a}, out: t, suspend: 7, run: 'train cat $x > t'}",
		"  other: {in: {x: a}, out: u, run: 'cat $x > u'}",
		"  after: {in: {x: release, y: train}, out: v, run: 'cat $x $y > v'}")
	var mu sync.Mutex
	p.run = func(ctx context.Context, script, dir string) int {
		script, trains := strings.CutPrefix(script, "train ")
		mu.Lock()
		defer mu.Unlock()
		if trains && times > 0 {
			times--
			return 7
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
}

// onDeferred calls do for each task that is deferred, in its own goroutine.
func onDeferred(p *place, do func(task string)) (change func(*workspace.StartOptions), wait func()) {
	var wg sync.WaitGroup
	return func(o *workspace.StartOptions) {
		o.OnEvent = func(e events.Event) {
			if e.Type == events.TaskDeferred {
				wg.Go(func() { do(e.Task) })
			}
		}
	}, wg.Wait
}

func (p *place) decide(task string, approve bool) {
	d, err := p.ws.Approvals.Resolve(context.Background(), "w", task, approval.Resolution{Approve: approve, By: "ann@desk"})
	if err != nil || !d.Changed {
		p.t.Errorf("decide about %s: %v, %v", task, d.Changed, err)
	}
}

func taskStates(r *runview.Report) string {
	var list []string
	for i := range r.Tasks {
		list = append(list, fmt.Sprintf("%s=%s", r.Tasks[i].Task, r.Tasks[i].State))
	}
	return strings.Join(list, " ")
}

// Each approval, rejection and unanswered block is in the run's record, and its events agree.
func TestBlocksOfRuns(t *testing.T) {
	for _, test := range []struct {
		name    string
		decide  func(p *place, cancel func()) func(task string)
		state   record.RunState
		want    string
		mapped  int  // tasks with an execution in the record
		waits   bool // both blocks keep waiting
		rejects string
	}{
		{"approved", func(p *place, _ func()) func(string) {
			return func(task string) { p.decide(task, true) }
		}, record.RunCompleted, "release=success train=success other=success after=success", 4, false, ""},
		{"suspended and rejected", func(p *place, _ func()) func(string) {
			return func(task string) { p.decide(task, task == "release") }
		}, record.RunFailed, "release=success train=error other=success after=skipped", 3, false, "train"},
		{"review rejected", func(p *place, _ func()) func(string) {
			return func(task string) { p.decide(task, task == "train") }
		}, record.RunFailed, "release=error train=success other=success after=skipped", 2, false, "release"},
		{"cancelled while both wait", func(p *place, cancel func()) func(string) {
			var mu sync.Mutex
			n := 0
			return func(string) {
				mu.Lock()
				defer mu.Unlock()
				if n++; n == 2 {
					cancel()
				}
			}
		}, record.RunCancelled, "release=abandoned train=abandoned", 1, true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPlace(t)
			p.deploySuspending(2)
			ctx, cancel := context.WithCancel(p.ctx)
			defer cancel()
			change, wait := onDeferred(p, test.decide(p, cancel))
			was := p.ctx
			p.ctx = ctx
			res := p.start(change)
			p.ctx = was
			wait()
			if res.Run.State != test.state || res.Run.FailedTask != test.rejects {
				t.Errorf("the run is %v, failed of %q; want %v, %q", res.Run.State, res.Run.FailedTask, test.state, test.rejects)
			}
			r, err := p.ws.Runs.Report(p.ctx, "w", "")
			if err != nil {
				t.Fatal(err)
			}
			got := taskStates(r)
			for _, want := range strings.Fields(test.want) { // the progress of other tasks varies
				if !strings.Contains(" "+got+" ", " "+want+" ") {
					t.Errorf("its tasks are %s, want %s", got, test.want)
					break
				}
			}
			if n := res.Run.Tasks.Len(); n < test.mapped {
				t.Errorf("%d tasks have executions on record, want %d", n, test.mapped)
			}
			for b, err := range approval.New(p.repo.Records, approval.Options{}).List(p.ctx, "w", "") {
				if err != nil || (b.Status == approval.Pending) != test.waits || b.Run != res.Run.RunID {
					t.Errorf("a block is %+v, %v", b, err)
				}
			}
			p.forgetRecords()
			p.wantFolded(res.Run)
			p.wantTold(res.Run, 0)
			again, err := p.ws.Runs.Report(p.ctx, "w", res.Run.RunID)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range strings.Fields(test.want) {
				if !strings.Contains(" "+taskStates(again)+" ", " "+want+" ") {
					t.Errorf("by its events alone, its tasks are %s, want %s", taskStates(again), test.want)
					break
				}
			}
		})
	}
}

// Pending blocks are reported while the run is at work. A decision about any other task is refused, and the error names
// the pending tasks.
func TestResolve(t *testing.T) {
	p := newPlace(t)
	p.deploySuspending(0)
	resolve := func(ws, task string, approve bool) error {
		_, err := p.ws.Approvals.Resolve(p.ctx, ws, task, approval.Resolution{Approve: approve, By: "ann@desk"})
		return err
	}
	var idle *workspace.NotWaitingError
	if err := resolve("w", "release", true); !errors.As(err, &idle) || !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("before the first run: %v", err)
	}
	change, wait := onDeferred(p, func(string) {
		waiting, err := p.ws.Approvals.Deferred(p.ctx, "w")
		if err != nil || len(waiting) != 1 || waiting[0].Task != "release" || waiting[0].Type != approval.Review {
			t.Errorf("%+v waits, %v", waiting, err)
		}
		if st, err := p.ws.Planner.Status(p.ctx, "w"); err != nil || len(st.Deferred) != 1 {
			t.Errorf("the status is %+v, %v", st, err)
		}
		if err := resolve("w", "other", true); !errors.As(err, &idle) || len(idle.Others) != 1 || idle.Others[0] != "w.release" {
			t.Errorf("another task: %v", err)
		}
		var unknown *workspace.UnknownError
		if err := resolve("w", "nobody", true); !errors.As(err, &unknown) || unknown.What != "task" {
			t.Errorf("no task: %v", err)
		}
		if err := resolve("v", "release", true); !errors.As(err, &unknown) || unknown.What != "workspace" {
			t.Errorf("no workspace: %v", err)
		}
		p.decide("release", true)
	})
	p.start(change)
	wait()
	if err := resolve("w", "release", true); err != nil {
		t.Errorf("approved again: %v", err)
	}
	var decided *approval.ResolvedError
	if err := resolve("w", "release", false); !errors.As(err, &decided) {
		t.Errorf("rejected after that: %v", err)
	}
	if waiting, err := p.ws.Approvals.Deferred(p.ctx, "w"); len(waiting) > 0 || err != nil {
		t.Errorf("after the run %+v waits, %v", waiting, err)
	}

	// Removing a workspace removes its blocks.
	if err := p.ws.Cleaner.Remove(p.ctx, "w"); err != nil {
		t.Fatal(err)
	}
	for rec, err := range p.repo.Records.List(p.ctx, refstore.Query{Partition: approval.Partition("w")}) {
		t.Errorf("the workspace is gone and left %q, %v", rec.Key, err)
	}
}

// leave starts a run with NoWait, and checks how it ends.
func (p *place) leave(waits ...string) *record.Run {
	p.t.Helper()
	res := p.start(func(o *workspace.StartOptions) { o.NoWait = true })
	if res.Waiting != len(waits) || res.Run.State != record.RunCancelled || res.Cancelled != nil {
		p.t.Fatalf("the run is %v, %d wait, cancelled %v", res.Run.State, res.Waiting, res.Cancelled)
	}
	p.wantWaiting(waits...)
	end, err := events.End(p.ctx, p.repo.Records, "w", res.Run.RunID)
	if err != nil || end.Type != events.RunCancelled || end.Data.Reason != events.ReasonWaits || end.Data.Tasks != len(waits) {
		p.t.Errorf("its log ends with %+v, %v", end, err)
	}
	p.wantTold(res.Run, 0)
	return res.Run
}

func (p *place) wantWaiting(tasks ...string) {
	p.t.Helper()
	waiting, err := p.ws.Approvals.Deferred(p.ctx, "w")
	if err != nil {
		p.t.Fatal(err)
	}
	var got []string
	for i := range waiting {
		got = append(got, waiting[i].Task)
	}
	if !slices.Equal(got, tasks) {
		p.t.Errorf("%q wait for approval, want %q", got, tasks)
	}
}

// wantJournal compares the journal's events about blocks.
func (p *place) wantJournal(want ...string) {
	p.t.Helper()
	var got []string
	for e, err := range events.ReadJournal(p.ctx, p.repo.Records, "w", 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		if kind, ok := strings.CutPrefix(string(e.Type), "block."); ok {
			got = append(got, e.Task+" "+kind+" "+e.Data.By+e.Data.Message)
		}
	}
	if !slices.Equal(got, want) {
		p.t.Errorf("the journal says %q, want %q", got, want)
	}
}

// eventsOf returns the types of a task's events in a run.
func (p *place) eventsOf(run *record.Run, task string) string {
	p.t.Helper()
	var types []string
	for e, err := range events.Read(p.ctx, p.repo.Records, "w", run.RunID) {
		if err != nil {
			p.t.Fatal(err)
		}
		if e.Task == task {
			types = append(types, strings.TrimPrefix(string(e.Type), "task."))
		}
	}
	return strings.Join(types, " ")
}

// A run with NoWait ends when only waiting tasks are left. The next run continues with decisions that were made in
// between: no question is asked twice, and no command that has suspended itself runs again.
func TestDecidedBetweenRuns(t *testing.T) {
	p := newPlace(t)
	p.deploySuspending(2)
	p.leave("release", "train")
	second := p.leave("release", "train")
	if got := p.eventsOf(second, "train"); got != "marked_ready deferred" {
		t.Errorf("the second run has made %q of train", got)
	}
	p.decide("release", true)
	p.decide("train", true)
	p.wantWaiting()
	third := p.leave("train")
	if got := p.eventsOf(third, "release"); got != "marked_ready resumed started completed" {
		t.Errorf("the third run has made %q of release", got)
	}
	if got := p.eventsOf(third, "train"); got != "marked_ready resumed started deferred" {
		t.Errorf("the third run has made %q of train", got)
	}
	p.decide("train", false)
	if res := p.start(); res.Run.State != record.RunFailed || res.Run.FailedTask != "train" {
		t.Errorf("the run is %v, failed of %q", res.Run.State, res.Run.FailedTask)
	}
	if d, err := p.ws.Approvals.Withdraw(p.ctx, "w", "train", approval.Resolution{By: "bob@desk"}); err != nil || !d.Changed {
		t.Errorf("the rejection is withdrawn: %+v, %v", d, err)
	}
	p.leave("train")
	p.decide("train", true)
	if res := p.start(); res.Run.State != record.RunCompleted {
		t.Errorf("the run is %v", res.Run.State)
	}
	p.wantJournal("release approved ann@desk", "train approved ann@desk", "train rejected ann@desk", "train withdrawn bob@desk", "train approved ann@desk")
}

// A decision applies only to the task's definition and inputs at that time.
func TestDecidedAboutOtherContent(t *testing.T) {
	p := newPlace(t)
	p.deploySuspending(0)
	p.leave("release")
	p.write("a.txt", "b")
	p.leave("release")
	p.wantJournal("release closed the task or its inputs have changed")
	p.decide("release", true)
	p.write("a.txt", "c")
	p.leave("release")
	p.write("a.txt", "b")
	if res := p.start(); res.Run.State != record.RunCompleted { // approved before
		t.Errorf("the run is %v", res.Run.State)
	}
	p.wantWaiting()
	p.wantJournal("release closed the task or its inputs have changed", "release approved ann@desk", "release closed the task or its inputs have changed")
}

// With --force the approval is requested again.
func TestForcedAsksAgain(t *testing.T) {
	p := newPlace(t)
	p.deploySuspending(0)
	p.leave("release")
	p.decide("release", true)
	force := func(o *workspace.StartOptions) { o.Force, o.NoWait = true, true }
	if res := p.start(force); res.Waiting != 1 {
		t.Errorf("%d wait", res.Waiting)
	}
	p.wantJournal("release approved ann@desk", "release closed --force asks again")
	p.wantWaiting("release")
	p.decide("release", true)
	if res := p.start(); res.Run.State != record.RunCompleted {
		t.Errorf("the run is %v", res.Run.State)
	}
}
