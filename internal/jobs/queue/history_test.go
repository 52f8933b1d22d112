package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"e3/internal/jobs/queue"
	"e3/internal/testing/linear"
	"e3/internal/testing/suite"
	"e3/refstore"
	"e3/refstore/mem"
)

// An action is a worker's operation on a job. A claim learns only afterwards which job it got.
type action struct {
	op    string // claim, finish, again, release, enqueue
	job   string
	token uint64
}

func (a *action) String() string { return fmt.Sprintf("%s %.8s with %d", a.op, a.job, a.token) }

// result is the result of an action.
type result struct {
	token   uint64 // of a claim
	adopted bool
	refused bool
	unknown bool // the action may have taken effect or not
}

// jobState is the state of a job in the model of histories.
type jobState struct {
	state string // "", queued, running, finished
	token uint64
}

// historyModel is the specification of a job: its token rises with each claim, the holder of the greatest token may
// write, and the job is finished once.
func historyModel(most int64) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{jobState{}} },
		Step: func(state, input, output any) []any {
			s, a, r := state.(jobState), input.(*action), output.(result)
			did := stepped(s, a, r, most)
			if r.unknown {
				return append(did, s)
			}
			return did
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return m.ToModel()
}

// stepped are the states after an action that took effect; none if it cannot have.
func stepped(s jobState, a *action, r result, most int64) []any {
	mine := s.state == "running" && s.token == a.token
	switch a.op {
	case "":
		return []any{s}
	case "enqueue": // otherwise it changes nothing
		if s.state == "" {
			return []any{jobState{"queued", 0}}
		}
		return []any{s}
	case "claim":
		// The worker of a running job was lost; the history does not say when that was noticed.
		if r.token == s.token+1 && (s.state == "queued" && !r.adopted || s.state == "running" && r.adopted) {
			return []any{jobState{"running", r.token}}
		}
		return nil
	}
	switch {
	case r.refused && !mine, r.refused && s.state == "running": // or its session has ended, but no worker has taken the job yet
		return []any{s}
	case r.refused || !mine:
		return nil
	case a.op == "finish":
		return []any{jobState{"finished", s.token}}
	case a.op == "release":
		return []any{jobState{"queued", s.token}, jobState{"running", s.token}} // the job may have been adopted
	}
	return []any{jobState{"queued", s.token}, jobState{"finished", s.token}} // again, with attempts left or not
}

// TestHistories runs workers on several machines that take jobs, finish them, give them up and back, while some are
// killed and others are lost without knowing it. Their results are linearizable: tokens rise, and each job is finished
// once.
func TestHistories(t *testing.T) {
	stores := map[string]func(t *testing.T) refstore.Store{
		"mem": func(*testing.T) refstore.Store { return mem.New() },
		"fs":  func(t *testing.T) refstore.Store { return openFolder(t, t.TempDir()) },
	}
	stores["mem, in batches"], stores["mem, in moves"], stores["mem, in aliases"] = stores["mem"], stores["mem"], stores["mem"]
	const schedules, workers, jobs = 4, 4, 12
	for name, open := range stores {
		for n := range schedules {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				t.Parallel()
				h := &histories{t: t, w: worldOn(t, open(t)), history: linear.NewHistory(), finished: make(map[string]int)}
				h.w.batches, h.w.aliases = strings.Contains(name, "batches"), name == "fs" || strings.Contains(name, "aliases")
				h.w.moves = h.w.aliases || strings.Contains(name, "moves")
				h.run(workers, jobs)
			})
		}
	}
}

type histories struct {
	t       *testing.T
	w       *world
	history *linear.History

	mu       sync.Mutex
	clients  int
	finished map[string]int // how often a job was reported as finished
}

func (h *histories) client() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clients++
	return h.clients
}

// do records an action. A failed one may have taken effect.
func (h *histories) do(client int, a *action, f func() (result, error)) error {
	var err error
	h.history.Do(client, a, func() (any, bool) {
		var r result
		r, err = f()
		var transition *queue.TransitionError
		switch {
		case errors.Is(err, refstore.ErrLost) || errors.As(err, &transition):
			r.refused = true
		case err != nil:
			r.unknown = true
		}
		return r, r.unknown
	})
	return err
}

func (h *histories) run(workers, jobs int) {
	front := h.w.on("front")
	me := h.client()
	for n := range jobs {
		h.enqueue(me, front, n)
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), suite.Stuck)
	defer cancel()
	var all, tending sync.WaitGroup
	tending.Go(func() {
		for ctx.Err() == nil {
			if err := errors.Join(front.Reap(ctx, queue.DefaultQueue), front.Repair(ctx, queue.DefaultQueue)); err != nil && ctx.Err() == nil {
				h.t.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Millisecond):
			}
		}
	})
	all.Go(func() { // enqueues all of them again
		other, me := h.w.on("else"), h.client()
		for n := range jobs {
			h.enqueue(me, other, n)
		}
	})
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil && h.work(ctx, front, jobs) {
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		h.t.Fatalf("it did not end: %d of %d jobs are finished", len(h.finished), jobs)
	}
	cancel()
	tending.Wait()
	linear.Check(h.t, h.history.Operations(), historyModel(3), func(input any) string { return input.(*action).job })
	for id, n := range h.finished {
		if n > 1 {
			h.t.Errorf("job %s was finished %d times", id, n)
		}
	}
	front.repair(h.t)
	h.w.sound(h.t)
}

func (h *histories) enqueue(client int, p *peer, n int) {
	j := job(n)
	_ = h.do(client, &action{op: "enqueue", job: queue.Identity(j)}, func() (result, error) {
		_, err := p.Enqueue(h.t.Context(), j)
		if err != nil {
			h.t.Error(err)
		}
		return result{}, err
	})
}

// work is the life of one worker. It returns false when no job is left.
func (h *histories) work(ctx context.Context, front *peer, jobs int) bool {
	p, me := h.w.on("back"), h.client()
	for range 1 + rand.IntN(6) {
		if all := h.w.all(h.t); len(all) == jobs {
			unfinished := false
			for _, j := range all {
				unfinished = unfinished || !j.Status.Terminal()
			}
			if !unfinished {
				return false
			}
		}
		a := &action{}
		var l *queue.Lease
		err := h.do(me, a, func() (r result, err error) {
			if l, err = p.Claim(ctx, p.want()); l == nil {
				return r, nil // any error: a claim without a response counts as a lost worker's
			}
			*a = action{op: "claim", job: l.Job().ID}
			return result{token: l.Job().Token, adopted: l.Adopted()}, err
		})
		if err != nil || l == nil {
			continue
		}
		switch rand.IntN(10) {
		case 0: // killed
			h.w.kill(p)
			return true
		case 1: // presumed dead without knowing it: its last writes arrive later
			h.w.mu.Lock()
			h.w.dead[p.pid] = true
			h.w.mu.Unlock()
			_ = front.Reap(ctx, queue.DefaultQueue)
			h.end(ctx, me, l, "finish")
			return true
		case 2:
			h.end(ctx, me, l, "again")
		case 3:
			h.end(ctx, me, l, "release")
		default:
			h.end(ctx, me, l, "finish")
		}
	}
	h.w.kill(p)
	return true
}

func (h *histories) end(ctx context.Context, client int, l *queue.Lease, op string) {
	j := l.Job()
	err := h.do(client, &action{op: op, job: j.ID, token: j.Token}, func() (result, error) {
		switch op {
		case "again":
			_, err := l.Again(ctx, "lost", 0)
			return result{}, err
		case "release":
			return result{}, l.Release(ctx)
		}
		return result{}, l.Finish(ctx, success(l))
	})
	if err == nil && op == "finish" {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.finished[j.ID]++
	}
}
