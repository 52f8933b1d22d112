package runview

import (
	"context"
	"errors"
	"slices"
	"time"

	"e3/internal/events"
)

// A Span is an attempt at a task in a run.
type Span struct {
	Task, Worker string
	Attempt      int64
	State        TaskState
	Start, End   time.Time
}

// Took is how long the attempt took.
func (s *Span) Took() time.Duration { return s.End.Sub(s.Start) }

// Spans gathers the attempts and the waits of a run from its events.
type Spans struct {
	Last     time.Time // of the events
	Ended    []Span
	waits    WaitFold
	attempts AttemptFold
	open     map[*Attempt]Span
}

// Add notes when attempts begin and end. The fold has the event already.
func (s *Spans) Add(e *events.Event, f *Fold) {
	if e.Time.After(s.Last) {
		s.Last = e.Time
	}
	s.waits.Add(e)
	a, first := s.attempts.Add(e)
	if first && a.State == "" {
		if s.open == nil {
			s.open = map[*Attempt]Span{}
		}
		t := f.Find(e.Task) // it has the names of all attempts
		s.open[a] = Span{Task: t.Task, Worker: t.Worker, Attempt: a.Number, Start: a.StartedAt}
	}
	if at, ok := s.open[a]; ok && a.State != "" {
		delete(s.open, a)
		at.State, at.End = a.State, a.EndedAt
		s.Ended = append(s.Ended, at.sound())
	}
}

// sound is the span if no clock went back.
func (s Span) sound() Span {
	if s.End.Before(s.Start) {
		s.End = s.Start
	}
	return s
}

// All are the attempts of the run, those that are at work up to now.
func (s *Spans) All(r *Report, now time.Time) []Span {
	list := slices.Clone(s.Ended)
	for _, at := range s.open {
		at.State, at.End = TaskInterrupted, s.Last
		if r.Live {
			at.State, at.End = TaskRunning, now
		}
		list = append(list, at.sound())
	}
	if len(list) > 0 {
		return list
	}
	for i := range r.Tasks { // an imported run may come without its events
		t := &r.Tasks[i]
		if t.State == TaskCached || t.ExecutionID == "" || t.StartedAt.IsZero() || t.StartedAt.Before(r.StartedAt) ||
			!r.CompletedAt.IsZero() && t.StartedAt.After(r.CompletedAt) {
			continue
		}
		list = append(list, Span{Task: t.Task, Attempt: t.Attempt, State: t.State, Start: t.StartedAt.Time, End: t.StartedAt.Add(t.Duration.Duration())})
	}
	return list
}

// Waits are the waits of the run, those that go on up to now. Those of a run that died end with its last sign of life.
func (s *Spans) Waits(r *Report, now time.Time) []Wait {
	until := s.Last
	if r.Live {
		until = now
	}
	list := s.waits.All(until)
	if r.Run != nil && r.Crashed() {
		list = slices.DeleteFunc(list, func(w Wait) bool { return !w.Start.Before(r.CompletedAt) })
		for i := range list {
			if list[i].End.After(r.CompletedAt) {
				list[i].End = r.CompletedAt
			}
		}
	}
	return list
}

// Spent says where the time of a run went, by its report with its tasks; nil: nothing ran.
func (v *Runs) Spent(ctx context.Context, r *Report) (*Spent, error) {
	var s Spans
	f := NewFold()
	for e, err := range events.Read(ctx, v.Records, r.WorkspaceName, r.RunID) {
		if errors.As(err, new(*events.DamagedError)) {
			break
		}
		if err != nil {
			return nil, err
		}
		f.Add(&e.Event)
		s.Add(&e.Event, f)
	}
	g, err := v.graphOf(ctx, r.PackageHash)
	if err != nil {
		return nil, err
	}
	now := v.Now()
	return SpentOf(g, &s, r, now), nil
}
