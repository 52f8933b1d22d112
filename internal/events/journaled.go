package events

import (
	"context"
	"errors"

	"e3/refstore"
)

// journals are the contributions of workspaces' journals to a query.
type journals struct {
	at      map[RunRef]int64   // number of the event that records a run
	list    []Event            // the selected events, journal by journal
	of      map[RunRef][]Event // selected events that follow a run
	head    []Event            // selected events before the first run
	damaged []error
}

// journaled reads the journals of the selected workspaces.
func journaled(ctx context.Context, streams refstore.Streams, f *Filter) (*journals, error) {
	j := &journals{at: map[RunRef]int64{}, of: map[RunRef][]Event{}}
	if f.FromSeq > 1 { // FromSeq is a number in a run
		return j, nil
	}
	names := []string{f.Workspace}
	if f.Workspace == "" {
		var err error
		if names, err = Journals(ctx, streams); err != nil {
			return nil, err
		}
	}
	for _, ws := range names {
		for e, err := range ReadJournal(ctx, streams, ws, 0) {
			switch {
			case errors.As(err, new(*JournalError)):
				j.damaged = append(j.damaged, err)
				continue
			case err != nil:
				return nil, err
			case e.Type == RunRecorded && e.Data != nil:
				j.at[RunRef{ws, e.Data.Run}] = e.Seq
			}
			if f.ofJournal(&e) {
				j.list = append(j.list, e)
			}
		}
	}
	return j, nil
}

// place puts each event of a journal after the last of the given runs that was recorded before the event.
func (j *journals) place(runs []RunRef) {
	for _, e := range j.list {
		behind, found := RunRef{}, false
		for _, run := range runs {
			if at := j.at[run]; run.Workspace == e.Workspace && at <= e.Seq && (!found || at >= j.at[behind]) {
				behind, found = run, true
			}
		}
		if !found {
			j.head = append(j.head, e)
			continue
		}
		j.of[behind] = append(j.of[behind], e)
	}
}

// merge inserts each event of the journal after the events of the runs that were recorded before it.
func (j *journals) merge(list []Event) []Event {
	var all []Event
	next := 0
	for _, e := range list {
		for at := j.at[RunRef{e.Workspace, e.Run}]; next < len(j.list) && j.list[next].Seq < at; next++ {
			all = append(all, j.list[next])
		}
		all = append(all, e)
	}
	return append(all, j.list[next:]...)
}

// last merges the events of the journal with the last events of the runs of one workspace, and yields the last of all.
func (j *journals) last(ctx context.Context, q *query, runs []RunRef, yield func(Event, error) bool) {
	var list []Event
	more := true
	q.last(ctx, runs, func(e Event, err error) bool {
		if err != nil {
			more = yield(e, err)
			return more
		}
		list = append(list, e)
		return true
	})
	if q.f.Workspace != "" {
		list = j.merge(list)
	}
	for _, e := range list[max(0, len(list)-q.f.Last):] {
		if !more || !yield(e, nil) {
			return
		}
	}
}

// placed identifies an event of a journal.
type placed struct {
	workspace string
	seq       int64
}

// withCursors adds cursors to events. The cursor of an event of the journal comes after the events that its run had
// when the query began.
func (j *journals) withCursors(ctx context.Context, streams refstore.Streams, yield func(Event, error) bool) func(Event, error) bool {
	had := map[RunRef]int64{}
	behind := map[placed]RunRef{}
	for run, list := range j.of {
		if e, err := Last(ctx, streams, run.Workspace, run.Run); err == nil && e != nil {
			had[run] = e.Seq
		}
		for _, e := range list {
			behind[placed{e.Workspace, e.Seq}] = run
		}
	}
	return func(e Event, err error) bool {
		if err == nil {
			c := Cursor{Journal: j.at[RunRef{e.Workspace, e.Run}], Run: e.Run, Seq: e.Seq}
			if e.Run == "" {
				run := behind[placed{e.Workspace, e.Seq}]
				c = Cursor{Journal: e.Seq, Run: run.Run, Seq: had[run]}
			}
			e.Cursor = c.String()
		}
		return yield(e, err)
	}
}
