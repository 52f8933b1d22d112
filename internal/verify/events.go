package verify

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
		if bad != nil { // a dead writer may have left a line that has been cut meanwhile
			_, bad, err = events.Readable(ctx, v.Records, ws, key.Sort, told)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if bad == nil {
			bad = err
		}
		if bad != nil {
			v.badEvents(ws, key.Sort, bad, "what can be read stays; the rest is lost", v.mendEvents)
		}
	}
	if err := v.journal(ctx, ws); err != nil {
		return err
	}
	for i := range v.imported {
		if err := v.imported[i].check(ctx, v.verifier); err != nil {
			return err
		}
	}
	v.imported = nil
	return v.history(ctx, ws)
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

// importedEvents are those that an imported run came with: last is the number of the last one.
type importedEvents struct{ workspace, run, last string }

// check looks for these events, which must exist as long as the run's record does.
func (i *importedEvents) check(ctx context.Context, v *verifier) error {
	last, err := events.Last(ctx, v.Records, i.workspace, i.run)
	if err != nil || last != nil && strconv.FormatInt(last.Seq, 10) == i.last {
		return err
	}
	lack := "have no end"
	if _, err := v.Records.Size(ctx, refstore.Key{Partition: "EVENTS/" + i.workspace, Sort: i.run}); errors.Is(err, refstore.ErrNotFound) {
		lack = "are gone"
	}
	if _, err := v.Records.Get(ctx, refstore.Key{Partition: "DATAFLOW/" + i.workspace, Sort: i.run}); err == nil { // else it went with them
		v.note("the events of run %s of workspace %s %s: import it again", i.run, i.workspace, lack)
	}
	return ctx.Err()
}

// badEvents reports a fault of a run's events.
func (v *eventLogs) badEvents(ws, run string, problem error, advice string, mend func(ctx context.Context, ws, run string) (string, error)) {
	f := Fault{
		Kind: BadEvents, Where: "events/" + ws + "/" + run + ".ndjson", Problem: problem.Error(),
		For: []string{"run " + run + " of workspace " + ws}, Advice: advice,
	}
	if mend != nil {
		f.mend = func(ctx context.Context) (string, bool, error) {
			remedy, err := mend(ctx, ws, run)
			return remedy, err == nil, err
		}
	}
	v.fault(f)
}

func (v *eventLogs) mendEvents(ctx context.Context, ws, run string) (string, error) {
	lost, err := v.Workspaces.Repairer.MendEvents(ctx, ws, run)
	if err != nil {
		return "", err
	}
	if lost == 0 {
		return "cut off there; what comes before can be read again", nil
	}
	return fmt.Sprintf("events that are lost: %d; all others can be read again", lost), nil
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
	next := ""
	for run := s.CurrentRunID; run != "" && run != next; {
		before, more, err := v.log(ctx, ws, run, next, oldest)
		if err != nil || !more {
			return err
		}
		run, next = before, run
	}
	return nil
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

// log checks the log of one run, and returns the run before. next is the run that came after it.
func (v *eventLogs) log(ctx context.Context, ws, run, next string, oldest time.Time) (before string, more bool, err error) {
	rec, own, err := v.ownRun(ctx, ws, run)
	if _, imported := rec.Field(runview.FieldProvenance); err != nil || imported {
		return "", false, err
	}
	info, err := v.Records.Size(ctx, refstore.Key{Partition: "EVENTS/" + ws, Sort: run})
	switch {
	case errors.Is(err, refstore.ErrNotFound):
		return "", false, v.noLog(ctx, ws, run, next, oldest, own != nil)
	case err != nil:
		return "", false, err
	case info.Sealed && own == nil:
		return "", false, nil // imported, as far as known
	case info.Sealed:
		v.badEvents(ws, run, errors.New("its file cannot be written, as those of imported runs"), "give it its write bits back", v.unsealEvents)
	}
	first, err := events.First(ctx, v.Records, ws, run)
	if err != nil || first == nil || first.Data == nil {
		return "", false, err
	}
	end, err := events.End(ctx, v.Records, ws, run)
	if err == nil && end == nil && (own == nil || own.State != record.RunRunning) {
		v.note("the events of run %s of workspace %s have no end%s", run, ws, madeAgain[own != nil])
	}
	return first.Data.After, true, err
}

// madeAgain is the remedy for a missing log of a run with a record.
var madeAgain = map[bool]string{true: ": the next start makes it from the run's record"}

// noLog reports missing events.
func (v *eventLogs) noLog(ctx context.Context, ws, run, next string, oldest time.Time, onRecord bool) error {
	if began, ok := events.Began(run); !onRecord && (!ok || began.Before(oldest)) {
		return nil
	}
	if s, err := v.Workspaces.State(ctx, ws); err != nil || next == "" && s.CurrentRunID != run {
		return ctx.Err() // a run has just replaced it
	}
	v.note("the events of run %s of workspace %s are gone%s", run, ws, madeAgain[onRecord])
	return nil
}

func (v *eventLogs) unsealEvents(ctx context.Context, ws, run string) (string, error) {
	return "made writable", v.Workspaces.Repairer.UnsealEvents(ctx, ws, run)
}
