package events

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"e3/internal/human"
	"e3/refstore"
)

// Bounds are the first and the last event of a run's log, as the run's record keeps them (doc/history.md, "What a
// run's record knows of its events"). The record is written before the last event. So a log without the recorded end
// was cut, or its writer died in the milliseconds between; in both cases the end is added again from the bounds.
type Bounds struct {
	First *Event // nil: not known
	Last  *Event // nil: the run goes on, or was exported before it had ended
	last  []byte // its line
}

// maxBounds bounds the lines in a record, in bytes. A longer line is left out, and is then not known.
const maxBounds = 128 << 10

// Text returns the lines of a record for a log with these events.
func (b Bounds) Text() ([]byte, error) {
	var text []byte
	for _, e := range []*Event{b.First, b.Last} {
		if e == nil {
			continue
		}
		longer, err := AppendLine(text, e)
		if err != nil {
			return nil, err
		}
		if len(longer)-len(text) <= maxBounds {
			text = longer
		}
	}
	return text, nil
}

// ParseBounds reads what Text returns, or the first and the last line of a log. A line that is damaged is not known.
func ParseBounds(text []byte) (b Bounds) {
	for line := range bytes.Lines(text) {
		e, err := Parse(line)
		switch {
		case err != nil:
		case e.Seq == 1 && b.First == nil:
			b.First = e
		default:
			b.Last, b.last = e, line
		}
	}
	return b
}

// A BoundsError says how a log differs from what the record of its run knows.
type BoundsError struct{ Lacks, Last int64 } // numbers of the last event that is there, and of the recorded last event

func (e *BoundsError) Error() string {
	switch {
	case e.Lacks == 0:
		return fmt.Sprintf("its %d events are gone", e.Last)
	case e.Lacks < e.Last:
		return fmt.Sprintf("it ends after event %d of %d", e.Lacks, e.Last)
	}
	return fmt.Sprintf("its last event, %d, is another one", e.Last)
}

// Check compares the end of a run's log with the bounds. It reads only the tail. A difference is a *BoundsError.
func (b *Bounds) Check(ctx context.Context, streams refstore.Streams, workspace, run string) error {
	if b.Last == nil || !recording {
		return nil
	}
	want := bytes.TrimSuffix(b.last, []byte("\n"))
	return checkTail(ctx, streams, workspace, run, b.Last.Seq, func(line []byte) bool { return bytes.Equal(line, want) })
}

// CheckEnd compares the end of a run's log with the number and the sum that the next run knows. A log whose last
// event of that number is an EventLost was mended. A difference is a *BoundsError.
func CheckEnd(ctx context.Context, streams refstore.Streams, workspace, run string, seq int64, sum string) error {
	if seq == 0 || !recording {
		return nil
	}
	return checkTail(ctx, streams, workspace, run, seq, func(line []byte) bool { return sumIn(line) == sum })
}

// checkTail looks for the end of a log: the line of this number, or a mark in its place.
func checkTail(ctx context.Context, streams refstore.Streams, workspace, run string, seq int64, is func(line []byte) bool) error {
	e, line, torn, err := source{streams, RunRef{workspace, run}}.tail(ctx)
	switch {
	case err != nil:
		return err
	case e == nil:
		return &BoundsError{0, seq}
	case torn || e.Seq != seq:
		return &BoundsError{min(e.Seq, seq-1), seq}
	case !is(line) && e.Type != EventLost:
		return &BoundsError{seq, seq}
	}
	return nil
}

// BoundsOf collects the bounds of a log that comes from elsewhere, line by line.
type BoundsOf struct{ first, last []byte }

// Add takes the next line.
func (b *BoundsOf) Add(line []byte) {
	switch {
	case len(line) > maxBounds:
		b.last = b.last[:0]
	case b.first == nil:
		b.first = bytes.Clone(line)
	default:
		b.last = append(b.last[:0], line...)
	}
}

// Text is the text of the bounds; empty if there was no line.
func (b *BoundsOf) Text() []byte { return append(bytes.Clone(b.first), b.last...) }

// Draft returns an event as the log will have it if Emit first gets so many others: with its number, and with the
// present time unless it has one.
func (l *Log) Draft(e Event, others int) Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.completed(e, l.seq+1+int64(others))
}

// completed sets what the log decides about an event.
func (l *Log) completed(e Event, seq int64) Event {
	e.Run, e.Workspace = l.run, l.workspace
	if drafted := e.Seq == seq; drafted {
		return e // the clock may have been set back since
	}
	e.Seq = seq
	return stamped(e, l.now)
}

// stamped returns an event as it is written: with a time, in whole milliseconds, and a message of bounded length.
func stamped(e Event, now func() time.Time) Event {
	if e.Time.IsZero() {
		e.Time = now()
	}
	e.Time = e.Time.UTC().Truncate(time.Millisecond)
	if e.Data != nil && len(e.Data.Message) > maxMessage {
		d := *e.Data
		d.Message = human.Truncate(d.Message, maxMessage)
		e.Data = &d
	}
	return e
}

// Sealed is the end of a log with the sum of its line, for the run that comes after it.
type Sealed struct {
	*Event        // nil: there is no end
	Sum    string // "": the line has no sum
}

// Number is the number of the event, 0 without one.
func (s Sealed) Number() int64 {
	if s.Event == nil {
		return 0
	}
	return s.Seq
}

// SealedEnd is End, with the sum.
func SealedEnd(ctx context.Context, streams refstore.Streams, workspace, run string) (Sealed, error) {
	e, line, err := endLine(ctx, streams, workspace, run)
	if err != nil || e == nil {
		return Sealed{}, err
	}
	return Sealed{e, sumIn(line)}, nil
}

// sumIn returns the sum at the end of a line; "": none.
func sumIn(line []byte) string {
	if _, err := checkSum(line); err != nil {
		return ""
	}
	return string(line[len(line)-sumDigits-len(`"}`) : len(line)-len(`"}`)])
}
