package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/cluster"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
)

// A played scheduler runs jobs in the time of a bubble.
type played struct {
	traits  cluster.Traits
	submits func() fault             // of the next submission; nil: none
	lists   func() fault             // of the next list; nil: none
	hidden  time.Duration            // how late a submission is listed
	runs    func(*queue.Job) outcome // what becomes of a worker
	holds   string                   // how a held job is explained

	mu        sync.Mutex
	jobs      []*placed
	batches   [][]string // what was submitted, by the jobs' ids
	cancelled []string
	listed    int
}

// A fault is what goes wrong with a call.
type fault struct {
	hangs time.Duration
	err   error
	does  bool // although it fails, the call takes effect
}

// An outcome is what becomes of a worker: how it is listed once it has ended. Alive: not at all.
type outcome struct {
	takes time.Duration
	cluster.Listed
}

// A placed job is one in the scheduler.
type placed struct {
	id, token string
	index     int
	job       queue.Job
	since     time.Time
	cancelled bool
	ends      *time.Timer
	ended     *outcome
}

func (p *played) Traits() cluster.Traits { return p.traits }

func (p *played) Demands(j *queue.Job) ([]string, error) {
	if j.Policy.CPU < 0 {
		return nil, errors.New("fewer cores than none")
	}
	return []string{fmt.Sprint("cores=", j.Policy.CPU)}, nil
}

// call plays a fault; false if nothing is to be done.
func (p *played) call(ctx context.Context, next func() fault) (does bool, err error) {
	if next == nil {
		return true, nil
	}
	p.mu.Lock()
	f := next()
	p.mu.Unlock()
	select {
	case <-time.After(f.hangs):
	case <-ctx.Done():
		return false, fmt.Errorf("%w: %w", cluster.ErrTemporary, ctx.Err())
	}
	return f.err == nil || f.does, f.err
}

func (p *played) Submit(ctx context.Context, b *cluster.Batch) (string, error) {
	does, err := p.call(ctx, p.submits)
	if !does {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := strconv.Itoa(100 + len(p.batches))
	var ids []string
	for i, j := range b.Jobs {
		x := &placed{id: id, token: b.Token, index: i, job: j, since: time.Now()}
		p.jobs, ids = append(p.jobs, x), append(ids, j.ID)
		if p.runs != nil {
			o := p.runs(&j)
			x.ends = time.AfterFunc(o.takes, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				if x.ended == nil {
					x.ended = &o
				}
			})
		}
	}
	p.batches = append(p.batches, ids)
	if err != nil {
		return "", err
	}
	return id, nil
}

func (p *played) List(ctx context.Context, visit func(cluster.Listed)) error {
	if _, err := p.call(ctx, p.lists); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listed++
	for _, x := range p.jobs {
		l := cluster.Listed{}
		if x.ended != nil {
			l = x.ended.Listed
		}
		if x.ended != nil && l.State == cluster.Alive && l.Held == "" || time.Since(x.since) < p.hidden {
			continue
		}
		l.ID, l.Index, l.Token = x.id, x.index, x.token
		visit(l)
	}
	return nil
}

func (p *played) Explain(_ context.Context, id, _ string, visit func(cluster.Listed)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.jobs {
		if x.id == id && x.ended != nil && x.ended.Held != "" && p.holds != "" {
			visit(cluster.Listed{ID: id, Index: x.index, Held: p.holds})
		}
		if x.id == id && x.ended != nil && x.ended.State == cluster.Failed {
			l := cluster.Listed{ID: id, Index: x.index, State: cluster.Ended, Reason: executions.ReasonLost, How: "failed, as it explains"}
			if x.ended.How != "" {
				l.State = cluster.Alive
			}
			visit(l)
		}
	}
	return cluster.ErrUnknown
}

func (p *played) Cancel(_ context.Context, ids []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancelled = append(p.cancelled, ids...)
	for _, x := range p.jobs {
		if slices.Contains(ids, x.id) || slices.Contains(ids, fmt.Sprintf("%s_%d", x.id, x.index)) {
			x.cancelled = true
			if x.ended == nil {
				x.ended = &outcome{Listed: cluster.Listed{State: cluster.Ended, Reason: executions.ReasonCancelled, How: "was cancelled"}}
			}
		}
	}
	return nil
}

// change changes what goes wrong.
func (p *played) change(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// alive counts the jobs that have not ended.
func (p *played) alive() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.jobs {
		if x.ended == nil {
			n++
		}
	}
	return n
}

// A rig is a submitter in a bubble.
type rig struct {
	*cluster.Submitter
	mu       sync.Mutex
	gone     map[string]dispatch.Gone
	warnings []string
}

// with plays a test in a bubble.
func with(t *testing.T, p *played, test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		p.traits.Name = "The cluster"
		r := &rig{gone: map[string]dispatch.Gone{}}
		r.Submitter = cluster.New(p, cluster.Options{Program: "e3", Repo: "r", Warn: func(text string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.warnings = append(r.warnings, text)
		}})
		r.Gone(func(g dispatch.Gone) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if was, twice := r.gone[g.ID]; twice {
				t.Errorf("%s is gone twice: %+v, then %+v", g.ID, was, g)
			}
			r.gone[g.ID] = g
		})
		test(t, r)
		r.Close()
	})
}

// submit submits jobs with these ids.
func (r *rig) submit(t *testing.T, ids ...string) {
	t.Helper()
	var jobs []queue.Job
	for _, id := range ids {
		jobs = append(jobs, queue.Job{ID: id, Queue: "q", Workspace: "dev", Task: "t"})
	}
	if err := r.Submit(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
}

// wants demands how a job is gone, after some time.
func (r *rig) wants(t *testing.T, after time.Duration, id string, reason executions.Reason, message string) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	g, ok := r.gone[id]
	switch {
	case reason == "" && ok:
		t.Errorf("after %v, %s is gone: %+v; want it to be followed", after, id, g)
	case reason != "" && (!ok || g.Reason != string(reason) || !strings.Contains(g.Message, message)):
		t.Errorf("after %v, %s is gone %v as %+v; want %s: %s", after, id, ok, g, reason, message)
	}
}

// warned demands the only warning.
func (r *rig) warned(t *testing.T, want string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.warnings) != 1 || !strings.Contains(r.warnings[0], want) {
		t.Errorf("the warnings are %q, want one: %s", r.warnings, want)
	}
}

// once is a fault of the first call.
func once(f fault) func() fault {
	return func() fault {
		now := f
		f = fault{}
		return now
	}
}

var errAway = fmt.Errorf("qsub: %w", cluster.ErrTemporary)

// A submission whose answer was lost is found, and not made again; one that had no effect is made again.
func TestLostAnswer(t *testing.T) {
	for name, does := range map[string]bool{"done": true, "not done": false} {
		t.Run(name, func(t *testing.T) {
			p := &played{submits: once(fault{hangs: 2 * time.Minute, err: errAway, does: does})}
			with(t, p, func(t *testing.T, r *rig) {
				r.submit(t, "a")
				r.wants(t, 10*time.Minute, "a", "", "")
				r.warned(t, "The cluster does not answer, trying again: qsub")
			})
			if len(p.batches) != 1 || p.alive() != 1 {
				t.Errorf("submitted were %v, want the job once", p.batches)
			}
		})
	}
}

// A double is cancelled, and the first submission followed.
func TestDouble(t *testing.T) {
	p := &played{submits: once(fault{err: errAway, does: true}), hidden: 8 * time.Second}
	with(t, p, func(t *testing.T, r *rig) {
		r.submit(t, "a")
		r.wants(t, 5*time.Minute, "a", "", "")
	})
	if len(p.batches) != 2 || p.alive() != 1 || !slices.Equal(p.cancelled, []string{"100"}) {
		t.Errorf("submitted %v, cancelled %v, %d live; want two, and the unknown one cancelled", p.batches, p.cancelled, p.alive())
	}
}

func TestRefused(t *testing.T) {
	p := &played{submits: once(fault{err: errors.New("qsub: unknown queue x")})}
	with(t, p, func(t *testing.T, r *rig) {
		r.submit(t, "a")
		r.wants(t, time.Second, "a", executions.ReasonStart, "The cluster refuses the job: qsub: unknown queue x (asked by: cores=0)")
		if err := r.Submit(t.Context(), []queue.Job{{ID: "b", Policy: record.Policy{CPU: -1}}}); err != nil {
			t.Fatal(err)
		}
		r.wants(t, time.Second, "b", executions.ReasonStart, "fewer cores")
	})
}

// A batch that the scheduler takes no more is split, and then waits for others to end.
func TestLimit(t *testing.T) {
	p := &played{}
	p.traits.Array = 4
	p.submits = func() fault {
		if len(p.jobs) > 0 && p.jobs[0].ended == nil {
			return fault{err: cluster.ErrLimit}
		}
		return fault{}
	}
	p.runs = func(*queue.Job) outcome { return outcome{takes: 10 * time.Minute} }
	with(t, p, func(t *testing.T, r *rig) {
		r.submit(t, "a")
		r.wants(t, time.Second, "a", "", "")
		r.submit(t, "b", "c", "d")
		r.wants(t, 9*time.Minute, "b", "", "")
		if n := p.alive(); n != 1 {
			t.Errorf("%d are submitted, want the first only", n)
		}
		r.warned(t, "takes no more jobs for now")
		time.Sleep(15 * time.Minute)
	})
	if got := slices.Sorted(slices.Values(slices.Concat(p.batches...))); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("submitted were %v, want each once", p.batches)
	}
}

// A list that fails or hangs delays, and decides nothing. A job that is not listed in two polls, and for long enough, is gone.
func TestList(t *testing.T) {
	away := false
	p := &played{hidden: 8 * time.Second, lists: func() fault {
		if away {
			return fault{hangs: time.Minute, err: errors.New("qstat: no answer")}
		}
		return fault{}
	}}
	p.runs = func(*queue.Job) outcome { return outcome{takes: 10 * time.Minute} }
	with(t, p, func(t *testing.T, r *rig) {
		r.submit(t, "a")
		r.wants(t, time.Minute, "a", "", "")
		p.change(func() { away = true })
		r.wants(t, time.Hour, "a", "", "")
		r.warned(t, "The cluster does not answer, trying again: qstat: no answer")
		p.change(func() { away = false })
		r.wants(t, 5*time.Minute, "a", executions.ReasonLost, "The cluster's job 100 is not known to The cluster any more")
	})
}

// How a job has ended is listed or explained; what is finished is not reported.
func TestEnds(t *testing.T) {
	p := &played{}
	p.runs = func(j *queue.Job) outcome {
		return map[string]outcome{
			"listed":    {time.Minute, cluster.Listed{State: cluster.Ended, Reason: executions.ReasonOOM, How: "ran out of memory", Node: "n1"}},
			"explained": {time.Minute, cluster.Listed{State: cluster.Failed}},
			"unclear":   {85 * time.Second, cluster.Listed{State: cluster.Failed, Reason: executions.ReasonLost, How: "has failed"}},
			"finished":  {time.Minute, cluster.Listed{State: cluster.Ended}},
		}[j.ID]
	}
	with(t, p, func(t *testing.T, r *rig) {
		r.submit(t, "listed", "explained", "finished", "unclear")
		r.wants(t, 30*time.Second, "listed", "", "")
		r.Finished("finished")
		r.wants(t, time.Minute, "listed", executions.ReasonOOM, " on n1 ran out of memory")
		r.wants(t, 0, "explained", executions.ReasonLost, "failed, as it explains")
		r.wants(t, 0, "finished", "", "")
		r.wants(t, 0, "unclear", "", "") // it may be explained later
		r.wants(t, time.Minute, "unclear", executions.ReasonLost, "has failed")
	})
}

// A held job is told with the words by which the scheduler explains it. Of jobs with the same demands, one is asked about.
func TestHeldExplained(t *testing.T) {
	p := &played{holds: "no node has so many cores"}
	p.runs = func(*queue.Job) outcome { return outcome{0, cluster.Listed{Held: "stuck"}} }
	with(t, p, func(t *testing.T, r *rig) {
		r.submit(t, "a", "b")
		r.wants(t, time.Minute, "a", "", "")
		r.warned(t, "(e3:dev.t) without help: stuck: no node has so many cores")
	})
}

// A reason that holds many jobs is told once.
func TestHeld(t *testing.T) {
	p := &played{}
	p.runs = func(*queue.Job) outcome { return outcome{0, cluster.Listed{Held: "no such image"}} }
	with(t, p, func(t *testing.T, r *rig) {
		r.submit(t, "a", "b")
		r.wants(t, time.Minute, "a", "", "")
		r.submit(t, "c")
		r.wants(t, time.Minute, "c", "", "")
		r.warned(t, "(e3:dev.t) without help: no such image")
	})
}

func TestCancel(t *testing.T) {
	for name, f := range map[string]fault{"before": {}, "amid": {hangs: time.Minute}, "lost answer": {hangs: time.Minute, err: errAway, does: true}} {
		t.Run(name, func(t *testing.T) {
			p := &played{submits: once(f)}
			with(t, p, func(t *testing.T, r *rig) {
				r.submit(t, "a", "b")
				time.Sleep(10 * time.Second)
				if err := r.Cancel(t.Context(), []string{"a", "unknown"}); err != nil {
					t.Error(err)
				}
				r.wants(t, 10*time.Minute, "a", "", "") // what is cancelled here is not reported
				r.wants(t, 0, "b", "", "")
			})
			if p.alive() != 1 {
				t.Errorf("%d jobs live, want one; cancelled %v of %v", p.alive(), p.cancelled, p.batches)
			}
		})
	}
}

// Whatever is lost, forgotten, late or doubled, each job is finished at last, and nothing is left in the scheduler. The
// test plays the queue: a worker whose job is finished ends at once, and a lost job is submitted again.
func TestFaults(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		trouble := rapid.IntRange(0, 60).Draw(rt, "trouble") // calls with faults
		luck := rapid.IntRange(0, 99)
		next := func(faults ...fault) func() fault {
			return func() fault {
				if trouble--; trouble < 0 {
					return fault{}
				}
				return faults[luck.Draw(rt, "fault")%len(faults)]
			}
		}
		finished := map[string]bool{}
		p := &played{hidden: time.Duration(rapid.IntRange(0, 9).Draw(rt, "hidden")) * time.Second}
		p.traits = cluster.Traits{Array: rapid.IntRange(1, 3).Draw(rt, "array")}
		p.submits = next(fault{}, fault{hangs: time.Minute}, fault{err: errAway}, fault{err: errAway, does: true}, fault{hangs: 2 * time.Minute, err: errAway, does: true},
			fault{err: cluster.ErrLimit})
		p.lists = next(fault{}, fault{}, fault{hangs: time.Minute}, fault{err: errAway}, fault{hangs: 2 * time.Minute, err: errors.New("hangs")})
		p.runs = func(j *queue.Job) outcome {
			takes := time.Duration(luck.Draw(rt, "takes")) * time.Second
			if trouble--; trouble > 0 {
				switch luck.Draw(rt, "worker") % 4 {
				case 0:
					return outcome{takes: takes} // lost without a word
				case 1:
					return outcome{takes, cluster.Listed{State: cluster.Failed, Reason: executions.ReasonLost, How: "failed"}}
				}
			}
			return outcome{takes, cluster.Listed{State: cluster.Ended, Reason: executions.ReasonLost, How: "is done"}}
		}
		synctest.Test(t, func(t *testing.T) {
			s := cluster.New(p, cluster.Options{Program: "e3", Repo: "r", Warn: func(string) {}})
			defer s.Close()
			var mu sync.Mutex
			lost := []string{}
			for i := range rapid.IntRange(1, 8).Draw(rt, "jobs") {
				id := fmt.Sprint("j", i)
				finished[id], lost = false, append(lost, id)
			}
			s.Gone(func(g dispatch.Gone) {
				mu.Lock()
				defer mu.Unlock()
				lost = append(lost, g.ID)
			})
			done := false
			for range 3600 {
				mu.Lock()
				again := lost
				lost = nil
				mu.Unlock()
				p.mu.Lock()
				for _, x := range p.jobs { // workers that have ended well have finished their jobs
					if x.ended != nil && x.ended.How == "is done" && !x.cancelled && !finished[x.job.ID] {
						finished[x.job.ID] = true
						p.mu.Unlock()
						s.Finished(x.job.ID)
						p.mu.Lock()
					}
				}
				p.mu.Unlock()
				for _, id := range again {
					if !finished[id] {
						if err := s.Submit(t.Context(), []queue.Job{{ID: id, Queue: "q"}}); err != nil {
							t.Fatal(err)
						}
					}
				}
				time.Sleep(time.Second)
				done = true
				for _, f := range finished {
					done = done && f
				}
				if done {
					break
				}
			}
			if !done {
				rt.Fatalf("after an hour, finished are %v; submitted %v", finished, p.batches)
			}
			time.Sleep(5 * time.Minute)
			if n := p.alive(); n > 0 {
				rt.Fatalf("%d jobs live on, of %v", n, p.batches)
			}
		})
	})
}
