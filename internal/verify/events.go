package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/settings"
	"e3/refstore"
)

// eventLogs checks the logs of events, and the list of them.
type eventLogs struct {
	*verifier
	imported []importedEvents // of the workspace whose runs were read last
	torn     map[string]int   // runs of this workspace whose logs have a damaged line, with the places of their faults
}

// events checks that the events of a workspace's runs exist and can be read without gaps. A torn last line is no
// fault.
func (v *eventLogs) events(ctx context.Context, ws string) error {
	since := v.Now().Add(-executions.TombstoneLifetime + 24*time.Hour) // clocks differ
	for key, err := range v.Records.ListStreams(ctx, refstore.Query{Partition: "EVENTS/" + ws}) {
		if err != nil {
			return err
		}
		info, err := v.Records.Size(ctx, key)
		if errors.Is(err, refstore.ErrNotFound) {
			continue // it was cleaned meanwhile
		}
		told := func(e *events.Event) {
			if !info.Sealed { // only imports seal logs
				v.promises.told(e, since)
			}
		}
		_, bad, err := events.Readable(ctx, v.Records, ws, key.Sort, told)
		if bad != nil { // the damage may be a line of a dead writer that has been cut meanwhile
			_, bad, err = events.Readable(ctx, v.Records, ws, key.Sort, told)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if bad == nil {
			bad = err
		}
		if bad != nil {
			if v.torn == nil {
				v.torn = map[string]int{}
			}
			v.torn[key.Sort] = len(v.report.Faults)
			v.badEvents(ws, key.Sort, bad, "what can be read stays, with what the record of the run knows; the rest is lost", v.mendEvents)
		}
	}
	if err := v.journal(ctx, ws); err != nil {
		return err
	}
	for i := range v.imported {
		if err := v.imported[i].check(ctx, v); err != nil {
			return err
		}
	}
	err := v.history(ctx, ws)
	v.imported, v.torn = nil, nil
	return err
}

// journal checks that a workspace's journal can be read without gaps.
func (v *eventLogs) journal(ctx context.Context, ws string) error {
	for _, err := range events.ReadJournal(ctx, v.Records, ws, 0) {
		var bad *events.JournalError
		switch {
		case errors.As(err, &bad):
			v.fault(Fault{
				Kind: BadEvents, Where: "journals/" + ws, Problem: err.Error(), For: []string{"the journal of workspace " + ws},
				Advice: "what can be read stays; the rest is lost",
				mend: func(ctx context.Context) (string, bool, error) {
					lost, err := events.MendJournal(ctx, v.Records, ws, v.Now)
					return fmt.Sprintf("events that are lost: %d; all others can be read again", lost), err == nil, err
				},
			})
		case err != nil:
			return err
		}
	}
	return nil
}

// importedEvents are the events with which an imported run came.
type importedEvents struct {
	workspace, run string
	bounds         events.Bounds
}

// check looks for these events, which must exist as long as the run's record does.
func (i *importedEvents) check(ctx context.Context, v *eventLogs) error {
	err := i.bounds.Check(ctx, v.Records, i.workspace, i.run)
	var bad *events.BoundsError
	if !errors.As(err, &bad) {
		return err
	}
	if _, err := v.Records.Get(ctx, runview.Key(i.workspace, i.run)); errors.Is(err, refstore.ErrNotFound) {
		return nil // the run's record was removed with them
	}
	v.badEvents(i.workspace, i.run, bad, "import the run again", nil)
	return ctx.Err()
}

// badEvents reports a fault of a run's events.
func (v *eventLogs) badEvents(ws, run string, problem error, advice string, mend func(ctx context.Context, ws, run string) (string, error)) {
	f := Fault{
		Kind: BadEvents, Where: "events/" + ws + "/" + run + ".ndjson", Problem: problem.Error(),
		For: []string{"run " + run + " of workspace " + ws}, Advice: advice,
	}
	if mend != nil {
		f.mend = v.mending(ws, run, mend)
	}
	v.fault(f)
}

func (v *eventLogs) mending(ws, run string, mend func(ctx context.Context, ws, run string) (string, error)) func(context.Context) (string, bool, error) {
	return func(ctx context.Context) (string, bool, error) {
		remedy, err := mend(ctx, ws, run)
		return remedy, err == nil, err
	}
}

func (v *eventLogs) mendEvents(ctx context.Context, ws, run string) (string, error) {
	return v.mendUpTo(0)(ctx, ws, run)
}

// mendUpTo mends a log whose last event had a number, 0 if it is not known.
func (v *eventLogs) mendUpTo(last int64) func(ctx context.Context, ws, run string) (string, error) {
	return func(ctx context.Context, ws, run string) (string, error) {
		lost, err := v.Workspaces.Runner.MendEvents(ctx, ws, run, last, v.Curator)
		if err != nil {
			return "", err
		}
		if lost == 0 {
			return "made whole: what comes before the damage, and what the record of the run knows", nil
		}
		return fmt.Sprintf("events that are lost: %d; all others can be read again", lost), nil
	}
}

// history checks the logs of the runs of a workspace, from the latest one backwards: each log names the run before.
// Imported runs are not part of this history. A log that "events clean" may have removed is no fault.
func (v *eventLogs) history(ctx context.Context, ws string) error {
	s, err := v.Workspaces.State(ctx, ws)
	if err != nil {
		return ctx.Err() // a fault of its own
	}
	oldest, err := v.oldestEvents(ctx)
	if err != nil {
		return err
	}
	next := follower{}
	for run := s.CurrentRunID; run != "" && run != next.run; {
		first, more, err := v.log(ctx, ws, run, next, oldest)
		if err != nil || !more {
			return err
		}
		run, next = first.Data.After, follower{run, first.Data.AfterSeq, first.Data.AfterSum}
	}
	return nil
}

// follower is the run after another run, and what its first event says about the end of the other run's log.
type follower struct {
	run string
	seq int64
	sum string
}

// oldestEvents is the time since which the events of all runs should exist.
func (v *eventLogs) oldestEvents(ctx context.Context) (time.Time, error) {
	s, err := settings.Get(ctx, v.Records)
	if err != nil {
		return v.Now(), ctx.Err() // a fault of its own
	}
	keep := s.KeepEvents()
	if keep == 0 {
		return time.Time{}, nil
	}
	return v.Now().Add(-keep), nil
}

// log checks the log of one run, and returns its first event. next is the run that came after it.
func (v *eventLogs) log(ctx context.Context, ws, run string, next follower, oldest time.Time) (first *events.Event, more bool, err error) {
	rec, own, err := v.ownRun(ctx, ws, run)
	if _, imported := rec.Field(runview.FieldProvenance); err != nil || imported {
		return nil, false, err
	}
	info, err := v.Records.Size(ctx, refstore.Key{Partition: "EVENTS/" + ws, Sort: run})
	switch {
	case errors.Is(err, refstore.ErrNotFound):
	case err != nil:
		return nil, false, err
	case info.Sealed && own == nil:
		return nil, false, nil // imported, as far as known
	case info.Sealed:
		v.badEvents(ws, run, errors.New("its file cannot be written, as those of imported runs"), "give it its write bits back", v.unsealEvents)
	}
	gone := err != nil
	if gone && own == nil {
		if began, ok := events.Began(run); !ok || began.Before(oldest) {
			return nil, false, nil // retention may have removed it
		}
	}
	bounds := runview.BoundsOf(rec)
	if own != nil && bounds.Last != nil {
		err = bounds.Check(ctx, v.Records, ws, run)
	} else if err = nil; !gone { // else it may have been cleaned by hand
		err = events.CheckEnd(ctx, v.Records, ws, run, next.seq, next.sum)
	}
	if bad := (*events.BoundsError)(nil); errors.As(err, &bad) {
		if at, err := v.changing(ctx, ws, run, next.run); at || err != nil {
			return nil, false, err
		}
		advice := "with --repair what is lost is marked as lost"
		if own != nil {
			advice = "with --repair, or by the next start, what the record of the run knows is told again"
		}
		if at, torn := v.torn[run]; torn { // already reported, but only now is the log's true end known
			v.report.Faults[at].mend = v.mending(ws, run, v.mendUpTo(next.seq))
		} else {
			v.badEvents(ws, run, bad, advice, v.mendUpTo(next.seq))
		}
	} else if err != nil {
		return nil, false, err
	} else if lack, err := v.lacks(ctx, ws, run, own, gone); err != nil || lack != "" {
		if at, err := v.changing(ctx, ws, run, next.run); at || err != nil {
			return nil, false, err
		}
		remedy := ""
		if own != nil {
			remedy = ": the next start makes it from the run's record"
		}
		v.note("the events of run %s of workspace %s %s%s", run, ws, lack, remedy)
	}
	first, err = events.First(ctx, v.Records, ws, run)
	if err != nil || first == nil || first.Data == nil {
		return nil, false, err
	}
	return first, true, nil
}

// lacks says what is missing in the log of a run if nothing tells how the run ended.
func (v *eventLogs) lacks(ctx context.Context, ws, run string, own *record.Run, gone bool) (string, error) {
	if gone {
		return "are gone", nil
	}
	end, err := events.Ended(ctx, v.Records, ws, run)
	if err != nil || end || own != nil && own.State == record.RunRunning {
		return "", err
	}
	last, err := events.Last(ctx, v.Records, ws, run)
	if err != nil || last != nil && last.Type == events.EventLost { // it was mended
		return "", err
	}
	return "have no end", nil
}

// changing tells whether a run is at work, which may be about to end, or whether a run has just replaced this one.
func (v *eventLogs) changing(ctx context.Context, ws, run, next string) (bool, error) {
	s, err := v.Workspaces.State(ctx, ws)
	if err != nil || next == "" && s.CurrentRunID != run {
		return true, ctx.Err()
	}
	busy, err := v.Workspaces.Busy(ctx, ws)
	return busy != nil && next == "", err
}

func (v *eventLogs) unsealEvents(ctx context.Context, ws, run string) (string, error) {
	return "made writable", v.Workspaces.Repairer.UnsealEvents(ctx, ws, run)
}
