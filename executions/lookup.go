package executions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/internal/record"
	"e3/objectstore"
	"e3/refstore"
)

// Hit is a success that answers a key.
type Hit struct {
	ExecutionID string
	Output      objectstore.Hash
	Size        int64 // of the output object, in bytes
	Status      *record.Status
}

// Passed says why an execution was no answer.
type Passed struct {
	ExecutionID string
	Reason      string
}

// Answer is what Lookup found: a hit, or the reasons why each execution of the key was
// passed over. Running names an execution that has not ended, if there is one.
type Answer struct {
	Hit     *Hit
	Passed  []Passed
	Running []string
	Latest  *record.Status // the latest execution, whatever its state

	lost bool // a success is, or may be, among those that were passed over
}

// Lookup descends from the latest execution of the key to the first success that is not
// rejected and whose output object exists. A later failure never hides an earlier success. Records that cannot
// be decoded and objects that are gone are reasons for a miss, not errors; a
// store that cannot be read is an error.
//
// On an object store that presumes (Presumes) the object is taken to be there, with the size on record.
func (s *Store) Lookup(ctx context.Context, k Key) (Answer, error) {
	var a Answer
	q := refstore.Query{Partition: partition(k), Descending: true, Fields: []string{fieldRejected}}
	if s.presumes {
		q.Fields = append(q.Fields, fieldDetail)
	}
	for rec, err := range s.records.List(ctx, q) {
		if err != nil {
			return a, fmt.Errorf("look up %s: %w", k, err)
		}
		id := rec.Key.Sort
		if _, err := ParseID(id); err != nil {
			continue
		}
		pass := func(format string, args ...any) {
			a.Passed = append(a.Passed, Passed{ExecutionID: id, Reason: fmt.Sprintf(format, args...)})
		}
		e, err := decode(k, rec)
		if err != nil {
			pass("%v", err)
			a.lost = true
			continue
		}
		if a.Latest == nil {
			a.Latest = &e.Status
		}
		switch e.State {
		case record.Running:
			a.Running = append(a.Running, id)
			pass("it has not ended")
			continue
		case record.Failed:
			pass("it failed with exit code %d", e.ExitCode)
			continue
		case record.Error:
			pass("it ended in error: %s", e.Message)
			continue
		}
		if e.Rejected() {
			pass("it was rejected by %s on %s%s", e.Rejection.By, day(e.Rejection.At), because(e.Rejection.Reason))
			a.lost = true
			continue
		}
		h, err := objectstore.ParseHash(e.OutputHash)
		if err != nil {
			pass("its record names the output %q", e.OutputHash)
			a.lost = true
			continue
		}
		size, err := s.outputSize(ctx, e, h)
		if errors.Is(err, objectstore.ErrNotFound) {
			pass("its output object %s is gone", h)
			a.lost = true
			continue
		}
		if err != nil {
			return a, fmt.Errorf("look up %s: %w", k, err)
		}
		a.Hit = &Hit{ExecutionID: id, Output: h, Size: size, Status: &e.Status}
		return a, nil
	}
	return a, nil
}

// outputSize returns the size of an execution's output, or objectstore.ErrNotFound.
func (s *Store) outputSize(ctx context.Context, e *Execution, h objectstore.Hash) (int64, error) {
	if s.presumes && e.Detail != nil && e.Detail.BytesOut >= 0 {
		return e.Detail.BytesOut, nil
	}
	return s.objects.Stat(ctx, h)
}

// day shows a moment to those who have no clock.
func day(t time.Time) string { return t.UTC().Format("2006-01-02") }

// because adds a reason to a sentence if there is one.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
