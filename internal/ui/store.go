package ui

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"e3/executions"
	"e3/gc"
	"e3/internal/events"
	"e3/internal/insight/stats"
)

// storeBody shows how large a repository is.
type storeBody struct {
	At                 time.Time
	Garbage            gc.Report
	Warnings           []string // warnings of Garbage, and why it is not known
	Stats              *stats.Stats
	Tasks              []taskSize // the largest, by the outputs of their executions
	Executions, Pinned int
}

// taskSize is the outputs of all executions of a task that are on record; content that two executions share counts
// twice.
type taskSize struct {
	Workspace, Task string
	Executions      int
	Bytes           int64
}

// mostSizes is the number of tasks whose sizes a page shows.
const mostSizes = 50

// measured keeps the result of measuring the repository, since measuring reads all of it.
type measured struct {
	mu   sync.Mutex
	at   *storeBody
	took time.Duration
}

// How long a measure is shown, unless a person asks for a new one: longer where reads are charged for.
const (
	measureAgain     = 5 * time.Minute
	measureAgainPaid = time.Hour
)

func (s *Server) storePage(ctx context.Context, f *frame) (body, error) {
	f.Title = "Store"
	f.Crumbs = []crumb{{"Workspaces", f.To(viewWorkspaces)}, {"Store", ""}}
	f.Command = "e3 stats " + f.Repo() + "; e3 gc " + f.Repo() + " --dry-run"
	if f.Place.get("again") == "" { // each look would measure
		s.live(f)
	}
	s.sizes.mu.Lock()
	defer s.sizes.mu.Unlock()
	again := max(measureAgain, 60*s.sizes.took)
	if _, paced := s.stores.Records.(events.Paced); paced {
		again = measureAgainPaid
	}
	if s.sizes.at == nil || s.o.Now().Sub(s.sizes.at.At) > again || f.Place.get("again") != "" {
		began := s.o.Now()
		st, err := s.measure(ctx)
		if err != nil {
			return nil, err
		}
		s.sizes.at, s.sizes.took = st, s.o.Now().Sub(began)
	}
	return s.sizes.at, nil
}

// measure reads all of the repository.
func (s *Server) measure(ctx context.Context) (*storeBody, error) {
	b := &storeBody{At: s.o.Now()}
	report, err := s.stores.Answers.Garbage(ctx)
	if report != nil {
		b.Garbage, b.Warnings = *report, report.Warnings
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		b.Warnings = append(slices.Clip(b.Warnings), err.Error())
	}
	if b.Stats, err = stats.Read(ctx, s.stores.Records, stats.Options{}); err != nil {
		return nil, err
	}
	sizes := map[taskSize]*taskSize{} // by their names
	for e, err := range s.stores.Executions.All(ctx) {
		if errors.Is(err, executions.ErrMalformed) {
			continue
		}
		if err != nil {
			return nil, err
		}
		b.Executions++
		if d := e.Detail; d != nil && d.Task != "" {
			of := taskSize{Workspace: d.Workspace, Task: d.Task}
			if sizes[of] == nil {
				size := of
				sizes[of] = &size
			}
			sizes[of].Executions++
			sizes[of].Bytes += d.BytesOut
		}
	}
	for p, err := range s.stores.Executions.Pins(ctx) {
		if err == nil || errors.Is(err, executions.ErrMalformed) && p.ExecutionID != "" {
			b.Pinned++
		}
	}
	for _, size := range sizes {
		b.Tasks = append(b.Tasks, *size)
	}
	slices.SortFunc(b.Tasks, func(x, y taskSize) int {
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Workspace, y.Workspace), cmp.Compare(x.Task, y.Task))
	})
	b.Tasks = b.Tasks[:min(len(b.Tasks), mostSizes)]
	return b, nil
}
