package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"e3/internal/jobs/queue"
	"e3/refstore"
)

// A situation is a job in a state, with its present and its previous holder.
type situation struct {
	w      *world
	front  *peer
	worker *peer // has, or had, the job; its session is alive unless the job is an orphan
	job    queue.Job
	lease  *queue.Lease // the last one; nil if there was none
}

// states creates each state of the diagram.
var states = map[string]func(t *testing.T, s *situation){
	"none": func(t *testing.T, s *situation) {
		s.job = *job(1)
		s.job.Queue, s.job.ID = queue.DefaultQueue, queue.Identity(&s.job)
	},
	"queued": func(t *testing.T, s *situation) {
		s.job = s.front.enqueue(t, job(1))
		s.lease = s.worker.claim(t)
		if err := s.lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	},
	"running": func(t *testing.T, s *situation) { s.running(t, 3) },
	"running, no attempts left": func(t *testing.T, s *situation) {
		s.running(t, 1)
	},
	"adopted": func(t *testing.T, s *situation) { s.adopted(t, 3) },
	"orphan": func(t *testing.T, s *situation) {
		s.adopted(t, 3)
		s.w.kill(s.worker)
		s.front.reap(t)
		s.worker.wire.hook(nil)
	},
	"succeeded": func(t *testing.T, s *situation) { s.finished(t, queue.Succeeded) },
	"failed":    func(t *testing.T, s *situation) { s.finished(t, queue.Failed) },
	"timed_out": func(t *testing.T, s *situation) { s.finished(t, queue.TimedOut) },
	"cancelled": func(t *testing.T, s *situation) { s.finished(t, queue.Cancelled) },
}

func (s *situation) running(t *testing.T, attempts int64) {
	s.job = s.front.enqueue(t, job(1, func(j *queue.Job) { j.MaxAttempts = attempts }))
	s.lease = s.worker.claim(t)
}

func (s *situation) adopted(t *testing.T, attempts int64) {
	s.running(t, attempts)
	s.w.kill(s.worker)
	s.front.reap(t)
	s.worker = s.w.on("back")
	s.lease = s.worker.claim(t)
}

func (s *situation) finished(t *testing.T, state queue.Status) {
	s.running(t, 3)
	if err := s.lease.Finish(t.Context(), queue.Outcome{State: state, ExecutionID: s.lease.Job().Execution}); err != nil {
		t.Fatal(err)
	}
}

// state names the present state of the job.
func (s *situation) state(t *testing.T) string {
	j, err := s.front.Job(t.Context(), s.job.Queue, s.job.ID)
	switch {
	case errors.Is(err, queue.ErrNotFound):
		return "none"
	case err != nil:
		t.Fatal(err)
	case j.Orphaned():
		return "orphan"
	}
	return string(j.Status)
}

var errNothing = errors.New("there was nothing to claim")

// edges are the operations. An error means that the operation was refused.
var edges = map[string]func(ctx context.Context, s *situation) error{
	"enqueue": func(ctx context.Context, s *situation) error {
		_, err := s.front.Enqueue(ctx, job(1))
		return err
	},
	"claim": func(ctx context.Context, s *situation) error {
		other := s.w.on("there")
		l, err := other.Claim(ctx, other.want())
		if err == nil && l == nil {
			err = errNothing
		}
		return err
	},
	"only": func(ctx context.Context, s *situation) error {
		other := s.w.on("there")
		l, err := other.Only(ctx, s.job.Queue, s.job.ID, other.want())
		if err == nil && l == nil {
			err = errNothing
		}
		return err
	},
	"start":   func(ctx context.Context, s *situation) error { return s.lease.Started(ctx, time.Now()) },
	"succeed": func(ctx context.Context, s *situation) error { return s.end(ctx, queue.Succeeded) },
	"fail":    func(ctx context.Context, s *situation) error { return s.end(ctx, queue.Failed) },
	"time out": func(ctx context.Context, s *situation) error {
		return s.end(ctx, queue.TimedOut)
	},
	"end as cancelled":         func(ctx context.Context, s *situation) error { return s.end(ctx, queue.Cancelled) },
	"end as no state":          func(ctx context.Context, s *situation) error { return s.end(ctx, "") },
	"end as queued":            func(ctx context.Context, s *situation) error { return s.end(ctx, queue.Queued) },
	"again":                    func(ctx context.Context, s *situation) error { _, err := s.lease.Again(ctx, "lost", 0); return err },
	"release":                  func(ctx context.Context, s *situation) error { return s.lease.Release(ctx) },
	"revoke":                   func(ctx context.Context, s *situation) error { return s.lease.Revoke(ctx, "its worker was stopped") },
	"expire, its worker alive": func(ctx context.Context, s *situation) error { return s.front.Reap(ctx, s.job.Queue) },
	"expire, its worker killed": func(ctx context.Context, s *situation) error {
		s.w.kill(s.worker)
		return s.front.Reap(ctx, s.job.Queue)
	},
	"cancel": func(ctx context.Context, s *situation) error {
		_, err := s.front.Cancel(ctx, s.job.Queue, s.job.ID, "me", "")
		return err
	},
	"withdraw": func(ctx context.Context, s *situation) error {
		_, err := s.front.Withdraw(ctx, s.job.Queue, s.job.ID, "me", "")
		return err
	},
	"retry": func(ctx context.Context, s *situation) error {
		_, err := s.front.Retry(ctx, s.job.Queue, s.job.ID)
		return err
	},
	"reprioritise": func(ctx context.Context, s *situation) error {
		_, err := s.front.Reprioritise(ctx, s.job.Queue, s.job.ID, 5)
		return err
	},
}

func (s *situation) end(ctx context.Context, state queue.Status) error {
	return s.lease.Finish(ctx, queue.Outcome{State: state, ExecutionID: s.lease.Job().Execution})
}

// diagram is the target of each operation from each state. An operation without an entry is refused, or changes
// nothing.
var diagram = map[string]map[string]string{
	"none":   {"enqueue": "queued"},
	"queued": {"claim": "running", "only": "running", "cancel": "cancelled", "withdraw": "cancelled"},
	"running": {
		"succeed": "succeeded", "fail": "failed", "time out": "timed_out", "end as cancelled": "cancelled", "again": "queued", "release": "queued", "revoke": "queued",
		"expire, its worker killed": "orphan",
	},
	"running, no attempts left": {
		"succeed": "succeeded", "fail": "failed", "time out": "timed_out", "end as cancelled": "cancelled", "again": "failed", "release": "queued", "revoke": "queued",
		"expire, its worker killed": "orphan",
	},
	"adopted": {
		"succeed": "succeeded", "fail": "failed", "time out": "timed_out", "end as cancelled": "cancelled", "again": "queued", "release": "orphan", "revoke": "queued",
		"expire, its worker killed": "orphan",
	},
	"orphan":    {"claim": "running", "only": "running", "cancel": "cancelled"},
	"succeeded": {},
	"failed":    {"retry": "queued"},
	"timed_out": {"retry": "queued"},
	"cancelled": {},
}

// silent are operations without an edge that change nothing and return no error.
var silent = map[string][]string{
	"enqueue":                   {"queued", "running", "running, no attempts left", "adopted", "orphan", "succeeded", "failed", "timed_out", "cancelled"},
	"expire, its worker alive":  {"none", "queued", "running", "running, no attempts left", "adopted", "orphan", "succeeded", "failed", "timed_out", "cancelled"},
	"expire, its worker killed": {"none", "queued", "orphan", "succeeded", "failed", "timed_out", "cancelled"},
	"start":                     {"running", "running, no attempts left", "adopted"},
	"cancel":                    {"running", "running, no attempts left", "adopted", "cancelled"}, // its worker is notified
	"withdraw":                  {"running", "running, no attempts left", "adopted", "orphan", "succeeded", "failed", "timed_out", "cancelled"},
	"reprioritise":              {"queued", "orphan"},
	"release":                   {"orphan"}, // an adopter's release would have the same result
}

// byHolder are the operations of the job's present or previous holder.
var byHolder = []string{"start", "succeed", "fail", "time out", "end as cancelled", "end as no state", "end as queued", "again", "release", "revoke"}

// TestDiagram walks every edge of the diagram, and shows that there is no other, by the job's present and its previous
// holder.
func TestDiagram(t *testing.T) {
	for from, prepare := range states {
		for op, do := range edges {
			if from == "none" && slices.Contains(byHolder, op) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", from, op), func(t *testing.T) {
				w := newWorld(t)
				s := &situation{w: w, front: w.on("front"), worker: w.on("back")}
				prepare(t, s)
				before := s.state(t)
				err := do(t.Context(), s)
				after := s.state(t)
				to, edge := diagram[from][op]
				quiet := slices.Contains(silent[op], from)
				switch {
				case edge && (err != nil || after != to):
					t.Errorf("got %s, %v, want %s", after, err, to)
				case !edge && after != before:
					t.Errorf("got %s, want it to stay %s", after, before)
				case !edge && !quiet && err == nil:
					t.Error("got no error, want it refused")
				case !edge && quiet && err != nil:
					t.Errorf("got %v, want no error", err)
				case !edge && !quiet && !refused(err):
					t.Errorf("got %v, want a refusal", err)
				}
				w.sound(t)
			})
		}
	}
}

func refused(err error) bool {
	var transition *queue.TransitionError
	return errors.As(err, &transition) || errors.Is(err, refstore.ErrLost) || errors.Is(err, refstore.ErrInvalid) || errors.Is(err, queue.ErrNotFound) || errors.Is(err, errNothing)
}
