package executions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"e3/internal/format/record"
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

// Passed says why an execution was not an answer.
type Passed struct {
	ExecutionID string
	Reason      string
	Untrusted   bool // the reason is the lack of a trusted signature (Demand)
}

// Answer is what Lookup found: a hit, or the reason why each execution of the key was passed over. Running lists
// executions that have not ended.
type Answer struct {
	Hit     *Hit
	Passed  []Passed
	Running []string
	Latest  *record.Status // the latest execution, whatever its state

	greatest      string // the id of the latest execution on record, readable or not
	passedSuccess bool   // a success is, or may be, among the executions that were passed over
	failed        bool   // Latest is a failure that counts (Demand)
}

// Lookup finds the latest success of the key that is not rejected and whose output is complete, with everything below a
// directory. Where the repository demands signatures (Requiring), a trusted key must have signed it; the check costs no
// request. A later failure never hides an earlier success. Records that cannot be decoded and missing objects are
// reasons for a miss; a store that cannot be read is an error.
//
// On an object store that presumes (Presumes) the output is taken to exist, with the recorded size.
func (s *Store) Lookup(ctx context.Context, k Key) (a Answer, err error) {
	defer func() {
		if log := slog.Default(); log.Enabled(ctx, slog.LevelDebug) {
			log.DebugContext(ctx, "lookup", "topic", "lookups", "key", k, "hit", a.Hit != nil, "passed", a.Passed, "error", err)
		}
	}()
	demand, err := s.demand(ctx)
	if err != nil {
		return a, fmt.Errorf("look up %s: %w", k, err)
	}
	q := refstore.Query{Partition: partition(k), Descending: true, Fields: []string{fieldRejected, fieldDetail}}
	if demand != nil {
		q.Fields = append(q.Fields, fieldSignature)
	}
	for rec, err := range s.records.List(ctx, q) {
		bad := err
		if err != nil && !errors.Is(err, refstore.ErrDamaged) {
			return a, fmt.Errorf("look up %s: %w", k, err)
		}
		id := rec.Key.Sort
		if _, err := ParseID(id); err != nil {
			continue
		}
		if a.greatest == "" {
			a.greatest = id
		}
		pass := func(format string, args ...any) {
			a.Passed = append(a.Passed, Passed{ExecutionID: id, Reason: fmt.Sprintf(format, args...)})
		}
		e, err := decodeFound(k, rec, bad)
		if err != nil {
			pass("%v", err)
			a.passedSuccess = true
			continue
		}
		if a.Latest == nil {
			a.Latest = &e.Status
			a.failed = e.State == record.Failed && demand.refuses(e) == ""
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
			a.passedSuccess = true
			continue
		}
		if why := demand.refuses(e); why != "" {
			pass("%s", why)
			a.Passed[len(a.Passed)-1].Untrusted = true
			a.passedSuccess = true
			continue
		}
		h, err := objectstore.ParseHash(e.OutputHash)
		if err != nil {
			pass("its record names the output %q", e.OutputHash)
			a.passedSuccess = true
			continue
		}
		size, err := s.whole(ctx, e, h)
		if missing := (*missingError)(nil); errors.As(err, &missing) {
			pass("%v", missing)
			a.passedSuccess = true
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

// greatest returns the greatest id on record under a key, "" for none.
func (s *Store) greatest(ctx context.Context, k Key) (string, error) {
	for rec, err := range s.records.List(ctx, refstore.Query{Partition: partition(k), Descending: true, KeysOnly: true}) {
		if err != nil {
			return "", fmt.Errorf("look up %s: %w", k, err)
		}
		if _, err := ParseID(rec.Key.Sort); err == nil {
			return rec.Key.Sort, nil
		}
	}
	return "", nil
}

// Without drops the hit if it is execution id, whose output is lost, or an earlier execution. A lookup may not notice
// the loss.
func (a Answer) Without(id string) Answer {
	if id == "" || a.Hit == nil || a.Hit.ExecutionID > id {
		return a
	}
	a.Passed = append(a.Passed, Passed{ExecutionID: a.Hit.ExecutionID, Reason: "its output is damaged or gone"})
	a.Hit, a.passedSuccess = nil, true
	return a
}

// outputSize returns the size of an execution's output, or objectstore.ErrNotFound.
func (s *Store) outputSize(ctx context.Context, e *Execution, h objectstore.Hash) (int64, error) {
	if s.presumes && e.Detail != nil && e.Detail.BytesOut >= 0 {
		return e.Detail.BytesOut, nil
	}
	return s.objects.Stat(ctx, h)
}

// day formats a date for messages that do not give an age.
func day(t time.Time) string { return t.UTC().Format("2006-01-02") }

// because appends a reason to a sentence if there is one.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
