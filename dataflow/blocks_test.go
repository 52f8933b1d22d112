package dataflow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/internal/jobs/approval"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/mem"
)

// people decide about blocks that a run makes, each some time after it was made.
type people struct {
	*approval.Blocks
	t      *testing.T
	ctx    context.Context
	cancel context.CancelFunc
	decide func(approval.Block) decision
	work   sync.WaitGroup
	mu     sync.Mutex
	asked  map[string]bool // by id of the block
}

func newPeople(t *testing.T, decide func(approval.Block) decision) *people {
	p := &people{Blocks: approval.New(mem.New(), approval.Options{Now: time.Now}), t: t, decide: decide, asked: map[string]bool{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// never is longer than any run here.
const never = 1000 * time.Hour

func (p *people) Ask(ctx context.Context, q approval.Question) (approval.Block, error) {
	made, err := p.Blocks.Ask(ctx, q)
	if err != nil || made.Status != approval.Pending {
		return made, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked[made.ID] {
		return made, nil
	}
	p.asked[made.ID] = true
	p.work.Go(func() {
		d := p.decide(made)
		select {
		case <-time.After(d.after):
		case <-p.ctx.Done():
			return
		}
		_, _, err := p.Resolve(p.ctx, &made, approval.Resolution{Approve: !d.rejects, By: "ann@desk", Note: "so be it"})
		if err != nil && p.ctx.Err() == nil && !errors.Is(err, approval.ErrNotFound) {
			p.t.Errorf("decide about %s: %v", made.Task, err)
		}
	})
	return made, nil
}

// leave ends what is not decided yet.
func (p *people) leave() {
	p.cancel()
	p.work.Wait()
}

// latest returns the block of a task, which it has on one content.
func (p *people) latest(task string) approval.Block {
	p.t.Helper()
	var found []approval.Block
	for b, err := range p.List(context.Background(), "ws", task) {
		if err != nil {
			p.t.Fatal(err)
		}
		found = append(found, b)
	}
	if len(found) != 1 {
		p.t.Fatalf("the blocks of %s are %+v, want one", task, found)
	}
	return found[0]
}

// left says which tasks wait for approval after the end of a run that has settled them.
func (p *people) left(g *dataflow.Graph, out *dataflow.Outcome) string {
	for b, err := range p.List(context.Background(), "ws", "") {
		if err != nil {
			return err.Error()
		}
		i, _ := g.Find(b.Task)
		if state := out.Tasks[i].State; b.Status == approval.Pending && state != dataflow.Abandoned {
			return fmt.Sprintf("%s is %s and still waits for approval", b.Task, stateNames[state])
		}
	}
	return ""
}

func typesOf(list []events.Type) string {
	var words []string
	for _, t := range list {
		words = append(words, strings.TrimPrefix(string(t), "task."))
	}
	return strings.Join(words, " ")
}

// A task waits for approval without taking a core, and what does not depend on it goes on.
func TestApprove(t *testing.T) {
	for _, lookups := range []int{0, 4} {
		synctest.Test(t, func(t *testing.T) {
			pkg := flow("release", "b", "c: b", "after: release")
			policy(pkg, "release", record.Policy{Approve: true, Priority: 5, Retries: 1})
			g := graphOf(t, pkg)
			w, log := newWorld(), &emitted{}
			w.behave = func(task string, attempt int64) behaviour {
				return behaviour{takes: time.Minute, fails: task == "release" && attempt == 1}
			}
			asked := newPeople(t, func(approval.Block) decision { return decision{after: time.Hour} })
			began := time.Now()
			out := run(t.Context(), t, g, w, func(o *dataflow.Options) {
				o.Concurrency, o.Emit, o.Blocks, o.Lookups = 1, log.emit, asked, lookups
			})
			wantStates(t, g, out, "release=succeeded b=succeeded c=succeeded after=succeeded")
			if got, want := typesOf(log.of("release")), "marked_ready deferred resumed started failed retry_scheduled started completed"; got != want {
				t.Errorf("its events are %s\nwant           %s", got, want)
			}
			for _, s := range w.ran {
				if at := s.start.Sub(began); (s.task == "b" || s.task == "c") != (at < time.Hour) {
					t.Errorf("%s starts after %v", s.task, at)
				}
			}
			made := asked.latest("release")
			if made.Type != approval.Review || made.Status != approval.Approved || made.Acted.IsZero() {
				t.Fatalf("the block is %+v", made)
			}
			for _, r := range w.requests {
				if want := map[bool]string{true: made.Resume()}[r.Name == "release"]; r.Step != want {
					t.Errorf("attempt %d of %s is step %q, want %q", r.Attempt, r.Name, r.Step, want)
				}
			}
			for _, e := range log.list {
				if e.Type == events.TaskResumed {
					if d := e.Data; d.By != "ann@desk" || d.Message != "so be it" || d.Step != made.Resume() || d.Block != made.ID || d.Attempt != 1 {
						t.Errorf("resumed by %+v", d)
					}
				}
			}
		})
	}
}

// A cached answer needs no approval, and neither does a task after the answer of another run.
func TestApproveAsksNobodyForHits(t *testing.T) {
	for _, lookups := range []int{0, 4} {
		synctest.Test(t, func(t *testing.T) {
			pkg := flow("release", "after: release")
			g := graphOf(t, pkg)
			w, log := newWorld(), &emitted{}
			run(t.Context(), t, g, w, nil)
			policy(pkg, "release", record.Policy{Approve: true})
			asked := newPeople(t, func(b approval.Block) decision {
				t.Errorf("approval was requested for %s", b.Task)
				return decision{}
			})
			out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Emit, o.Blocks, o.Lookups = log.emit, asked, lookups })
			wantStates(t, g, out, "release=cached after=cached")

			asked = newPeople(t, func(approval.Block) decision { return decision{} })
			out = run(t.Context(), t, g, w, func(o *dataflow.Options) {
				o.Emit, o.Blocks, o.Lookups, o.Force = log.emit, asked, lookups, true
			})
			wantStates(t, g, out, "release=succeeded after=succeeded")
			if !log.has(events.TaskDeferred) {
				t.Error("it was forced without asking")
			}
		})
	}
}

// A command that suspends itself goes on after its approval, as another step, and that costs no retry.
func TestSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pkg := flow("train", "after: train")
		policy(pkg, "train", record.Policy{Suspend: suspendCode, Retries: 1})
		g := graphOf(t, pkg)
		w, log := newWorld(), &emitted{}
		w.behave = func(task string, attempt int64) behaviour {
			return behaviour{takes: time.Second, suspends: task == "train" && attempt <= 2, fails: task == "train" && attempt == 3}
		}
		asked := newPeople(t, func(approval.Block) decision { return decision{after: time.Minute} })
		out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Emit, o.Blocks = log.emit, asked })
		wantStates(t, g, out, "train=succeeded after=succeeded")
		want := "marked_ready started deferred resumed started deferred resumed started failed retry_scheduled started completed"
		if got := typesOf(log.of("train")); got != want {
			t.Errorf("its events are %s\nwant           %s", got, want)
		}
		var steps []string
		var blocks []string
		for _, r := range w.requests {
			if r.Name == "train" {
				steps = append(steps, r.Step)
			}
		}
		for _, e := range log.list {
			if e.Type == events.TaskDeferred {
				blocks = append(blocks, approval.ResumeStep(e.Data.Block))
				if e.Data.BlockType != "suspend" || e.Execution == "" || e.Data.ExitCode != suspendCode {
					t.Errorf("deferred as %+v, execution %q", e.Data, e.Execution)
				}
			}
		}
		if len(blocks) != 2 || !slices.Equal(steps, []string{"", blocks[0], blocks[1], blocks[1]}) {
			t.Errorf("its steps are %q, its blocks %q", steps, blocks)
		}
	})
}

// A rejected task has failed: nothing is tried again, and what depends on it is skipped.
func TestRejected(t *testing.T) {
	for name, test := range map[string]struct {
		policy record.Policy
		want   string
	}{
		"review":  {record.Policy{Approve: true, Retries: 2}, "marked_ready deferred failed"},
		"suspend": {record.Policy{Suspend: suspendCode, Retries: 2}, "marked_ready started deferred failed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pkg := flow("release", "after: release", "b")
				policy(pkg, "release", test.policy)
				g := graphOf(t, pkg)
				w, log := newWorld(), &emitted{}
				w.behave = func(task string, _ int64) behaviour { return behaviour{suspends: task == "release"} }
				asked := newPeople(t, func(approval.Block) decision { return decision{after: time.Hour, rejects: true} })
				out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Emit, o.Blocks = log.emit, asked })
				wantStates(t, g, out, "release=failed after=skipped b=succeeded")
				if got := typesOf(log.of("release")); got != test.want {
					t.Errorf("its events are %s, want %s", got, test.want)
				}
				if want := "rejected by ann@desk: so be it"; out.Error != want || out.FailedTask != "release" {
					t.Errorf("the run failed of %s, %q, want %q", out.FailedTask, out.Error, want)
				}
				for _, e := range log.list {
					if e.Type == events.TaskFailed && (e.Data.Reason != events.ReasonRejected || e.Data.By != "ann@desk" || (e.Execution == "") != (name == "review")) {
						t.Errorf("failed as %+v, execution %q", e.Data, e.Execution)
					}
				}
			})
		})
	}
}

// The end of a run waits for no decision; the next run does.
func TestEndWhileDeferred(t *testing.T) {
	for name, test := range map[string]struct {
		failFast bool
		cancel   time.Duration
		state    record.RunState
		want     string
	}{
		"cancelled": {false, 5 * time.Second, record.RunCancelled, "release=abandoned train=abandoned bad=failed after=abandoned"},
		"fail fast": {true, 0, record.RunFailed, "release=abandoned train=abandoned bad=failed after=abandoned"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pkg := flow("release", "train", "bad", "after: release train")
				policy(pkg, "release", record.Policy{Approve: true})
				policy(pkg, "train", record.Policy{Suspend: suspendCode})
				g := graphOf(t, pkg)
				w, log := newWorld(), &emitted{}
				w.behave = func(task string, _ int64) behaviour {
					if task == "bad" {
						return behaviour{fails: true, takes: time.Second}
					}
					return behaviour{suspends: true}
				}
				asked := newPeople(t, func(approval.Block) decision { return decision{after: never} })
				defer asked.leave()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.cancel > 0 {
					time.AfterFunc(test.cancel, cancel)
				}
				out := run(ctx, t, g, w, func(o *dataflow.Options) { o.Emit, o.Blocks, o.FailFast = log.emit, asked, test.failFast })
				wantStates(t, g, out, test.want)
				if out.State != test.state {
					t.Errorf("the run is %v, want %v", out.State, test.state)
				}
				for _, task := range []string{"release", "train"} {
					if b := asked.latest(task); b.Status != approval.Pending {
						t.Errorf("the block of %s is %+v; want it pending", task, b)
					}
				}
				if err := log.walk(out, map[eventstest.Edge]int{}); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The suspension of another run's command is no answer to a waiting run, whose own command needs an approval of its own.
func TestSuspendedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pkg := flow("train")
		policy(pkg, "train", record.Policy{Suspend: suspendCode})
		g := graphOf(t, pkg)
		w, log := newWorld(), &emitted{}
		calls := 0
		w.behave = func(string, int64) behaviour {
			calls++
			b := behaviour{suspends: calls <= 2}
			if calls == 1 {
				b.other = record.Failed
			}
			return b
		}
		asked := newPeople(t, func(approval.Block) decision { return decision{} })
		out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Emit, o.Blocks = log.emit, asked })
		wantStates(t, g, out, "train=succeeded")
		if got, want := typesOf(log.of("train")), "marked_ready started deferred resumed started completed"; got != want {
			t.Errorf("its events are %s, want %s", got, want)
		}
		for _, e := range log.list {
			if e.Type == events.TaskDeferred && e.Execution == "other" && !e.Data.Shared {
				t.Error("the end of another run's execution is told as this run's")
			}
		}
	})
}

// slowBlocks come back a second after they were made, when they may have been decided already.
type slowBlocks struct{ *people }

func (b *slowBlocks) Ask(ctx context.Context, q approval.Question) (approval.Block, error) {
	made, err := b.people.Ask(ctx, q)
	time.Sleep(time.Second)
	return made, err
}

// A decision counts even if it comes before the run knows that its block was made.
func TestDecidedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pkg := flow("first", "c", "second: c")
		policy(pkg, "first", record.Policy{Approve: true})
		policy(pkg, "second", record.Policy{Approve: true})
		g := graphOf(t, pkg)
		w := newWorld()
		w.behave = func(string, int64) behaviour { return behaviour{takes: time.Minute} }
		asked := newPeople(t, func(b approval.Block) decision {
			return decision{after: map[bool]time.Duration{true: time.Hour}[b.Task == "first"]}
		})
		began := time.Now()
		out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Blocks = &slowBlocks{asked} })
		wantStates(t, g, out, "first=succeeded c=succeeded second=succeeded")
		for _, s := range w.ran {
			if at := s.start.Sub(began); s.task == "second" && at > 2*time.Minute {
				t.Errorf("second starts after %v", at)
			}
		}
	})
}

// A run without Blocks fails such a task, and says so.
func TestNobodyToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pkg := flow("release", "b")
		policy(pkg, "release", record.Policy{Approve: true})
		g := graphOf(t, pkg)
		out := run(t.Context(), t, g, newWorld(), nil)
		wantStates(t, g, out, "release=failed b=succeeded")
		if !strings.Contains(out.Error, "cannot ask for") {
			t.Errorf("it failed of %q", out.Error)
		}
	})
}

// brokenBlocks cannot be made.
type brokenBlocks struct {
	*approval.Blocks
	err error
}

func (b *brokenBlocks) Ask(ctx context.Context, q approval.Question) (approval.Block, error) {
	return approval.Block{}, b.err
}

var errGone = errors.New("the store is gone")

// Blocks that cannot be kept are a fault of the stores, which ends the run.
func TestBlocksAtFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pkg := flow("release", "train")
		policy(pkg, "release", record.Policy{Approve: true})
		policy(pkg, "train", record.Policy{Suspend: suspendCode})
		g := graphOf(t, pkg)
		w, log := newWorld(), &emitted{}
		w.behave = func(task string, _ int64) behaviour { return behaviour{suspends: task == "train"} }
		out, err := dataflow.Run(t.Context(), g, w.objects, w, dataflow.Options{
			RunID: "r", Workspace: "ws", Inputs: oneInput, Concurrency: 2, Emit: log.emit,
			Blocks: &brokenBlocks{approval.New(mem.New(), approval.Options{Now: time.Now}), errGone}})
		if err == nil || !strings.Contains(err.Error(), "the store is gone") || out.State != record.RunFailed {
			t.Errorf("the run is %v with %v", out.State, err)
		}
		if err := log.walk(out, map[eventstest.Edge]int{}); err != nil {
			t.Error(err)
		}
	})
}

// A block that cannot be read fails the task that waits for it, and harms no other.
func TestMalformedBlock(t *testing.T) {
	spoil := func(t *testing.T, s *mem.Store, task string) {
		h := executions.NewKey(objectstore.Sum([]byte("task "+task)), []objectstore.Hash{objectstore.Sum([]byte("x"))})
		r := refstore.Record{Key: approval.RecordKey("ws", task, h.String()), Value: []byte("nonsense")}
		if there, err := s.Get(t.Context(), r.Key); err == nil {
			r.Version = there.Version
		}
		if _, err := s.Put(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	for name, test := range map[string]struct {
		before bool // it is made
		slow   bool // it comes back late
	}{"waited for": {}, "not told of yet": {slow: true}, "before it is made": {before: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pkg := flow("bad", "after: bad", "release", "b")
				policy(pkg, "bad", record.Policy{Approve: true})
				policy(pkg, "release", record.Policy{Approve: true})
				g := graphOf(t, pkg)
				w, log, s := newWorld(), &emitted{}, mem.New()
				asked := newPeople(t, func(b approval.Block) decision {
					if b.Task == "bad" {
						if !test.slow {
							time.Sleep(time.Minute)
						}
						spoil(t, s, b.Task)
						return decision{after: never}
					}
					return decision{after: time.Hour}
				})
				asked.Blocks = approval.New(s, approval.Options{Now: time.Now})
				defer asked.leave()
				spoil(t, s, "another")
				var blocks dataflow.Blocks = asked
				if test.before {
					spoil(t, s, "bad")
				}
				if test.slow {
					blocks = &slowBlocks{asked}
				}
				out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Emit, o.Blocks, o.Concurrency = log.emit, blocks, 4 })
				wantStates(t, g, out, "bad=failed after=skipped release=succeeded b=succeeded")
				if !strings.Contains(out.Error, "bad/") {
					t.Errorf("it failed of %q, want which record it is", out.Error)
				}
				if err := log.walk(out, map[eventstest.Edge]int{}); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Attempts whose worker is lost follow each other without the scheduler, and cost no retries.
func TestLostWorkers(t *testing.T) {
	for name, test := range map[string]struct {
		policy record.Policy
		lost   int
		gone   bool // the last one as well
		want   string
		state  string
	}{
		"then well": {record.Policy{Retries: 1}, 2, false,
			"marked_ready claimed failed retry_scheduled claimed failed retry_scheduled claimed started failed retry_scheduled claimed started completed", "a=succeeded"},
		"all": {record.Policy{Retries: 1, Lost: 1}, 1, true, "marked_ready claimed failed retry_scheduled claimed failed", "a=failed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pkg := flow("a")
				policy(pkg, "a", test.policy)
				g := graphOf(t, pkg)
				w, log := newWorld(), &emitted{}
				w.workers = true
				first := true
				w.behave = func(string, int64) behaviour {
					b := behaviour{takes: time.Second}
					if first {
						first = false
						if b.lost, b.fails = test.lost, true; test.gone {
							b.error, b.fails = executions.ReasonLost, false
						}
					}
					return b
				}
				out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Emit, o.Outstanding = log.emit, 1 })
				wantStates(t, g, out, test.state)
				// Of what is lost some is claimed by one worker, and started by another.
				got := strings.NewReplacer(" orphaned adopted", "").Replace(typesOf(log.of("a")))
				got = strings.NewReplacer("claimed claimed", "claimed", "claimed started failed retry_scheduled claimed", "claimed failed retry_scheduled claimed").Replace(got)
				if got != test.want {
					t.Errorf("its events are %s\nwant           %s", got, test.want)
				}
				if err := log.walk(out, map[eventstest.Edge]int{}); err != nil {
					t.Error(err)
				}
				numbers := map[int64]bool{}
				for _, r := range w.requests {
					if numbers[r.Attempt] {
						t.Errorf("attempt %d was asked for twice", r.Attempt)
					}
					numbers[r.Attempt] = true
				}
				if !test.gone && w.requests[len(w.requests)-1].Attempt != int64(test.lost+2) {
					t.Errorf("the last request is attempt %d, want %d", w.requests[len(w.requests)-1].Attempt, test.lost+2)
				}
			})
		})
	}
}

// So many executions of a kind are out as may be, whatever they ask for.
func TestOutstanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pkg := flow("a", "b", "c", "d", "e", "f", "g")
		for i := range pkg.Tasks {
			pkg.Tasks[i].Policy = record.Policy{CPU: 64, Memory: 1 << 40, Resources: []record.Amount{{Name: "gpu", Value: 8}}}
		}
		g := graphOf(t, pkg)
		w := newWorld()
		w.workers = true
		w.behave = func(string, int64) behaviour { return behaviour{takes: time.Minute} }
		most := 0
		w.watch = func(live map[string]*record.Policy) { most = max(most, len(live)) }
		run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Concurrency, o.Memory, o.Outstanding = 1, 1, 5 })
		if most != 5 {
			t.Errorf("%d are out at a time, want 5", most)
		}
	})
}

// However many tasks wait for workers that there are not, those for others are out, and of each kind the best first.
func TestOutstandingOfAnotherKind(t *testing.T) {
	const unattended, others = 100, 10
	for name, absent := range map[string]record.Policy{"queue": {Queue: "gpu"}, "label": {Labels: []string{"gpu"}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lines []string
				for i := range unattended {
					lines = append(lines, fmt.Sprint("u", i))
				}
				for i := range others {
					lines = append(lines, fmt.Sprint("o", i))
				}
				pkg := flow(lines...)
				for i := range unattended {
					pkg.Tasks[i].Policy = absent
					pkg.Tasks[i].Policy.Priority = int64(1 + i/10)
				}
				w := newWorld()
				w.workers = true
				w.behave = func(task string, _ int64) behaviour {
					if strings.HasPrefix(task, "u") { // in an hour there is a worker
						return behaviour{takes: time.Hour}
					}
					return behaviour{takes: time.Minute}
				}
				most := map[string]int{}
				w.watch = func(live map[string]*record.Policy) {
					now := map[string]int{}
					for task := range live {
						now[task[:1]]++
						most[task[:1]] = max(most[task[:1]], now[task[:1]])
					}
				}
				began := time.Now()
				out := run(t.Context(), t, graphOf(t, pkg), w, func(o *dataflow.Options) { o.Outstanding = 2 })
				if out.Summary.Completed != unattended+others {
					t.Fatalf("%d have completed, want all", out.Summary.Completed)
				}
				for _, st := range w.ran {
					var i int
					switch _, err := fmt.Sscanf(st.task, "u%d", &i); {
					case err != nil && st.end.Sub(began) > 10*time.Minute:
						t.Errorf("%s ends after %v, behind those for which there is no worker", st.task, st.end.Sub(began))
					case err == nil && st.start.Sub(began) > time.Duration(10-i/10)*5*(time.Hour+time.Minute):
						t.Errorf("%s begins after %v, behind others of less priority", st.task, st.start.Sub(began))
					}
				}
				if most["u"] != 2 || most["o"] != 2 {
					t.Errorf("out at a time are %v, want 2 of each kind", most)
				}
			})
		})
	}
}
