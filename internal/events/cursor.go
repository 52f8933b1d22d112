package events

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"e3/refstore"
)

// A Place is where an event of a journal is.
type Place struct {
	Seq    int64 // its number
	Stream int64 // the number of the first event of its stream
}

// A Latest is the end of a journal as LookAhead found it. Where a look is a request, it saves the next append that
// look. The zero value knows nothing.
type Latest struct{ end *end }

// LookAhead returns the end of a journal. known is the stream in which an earlier run was recorded, from the end of
// that run (Data.Journal), or 0: it saves looking for the latest stream. LookAhead does nothing where a look is
// cheap; there, an overlay may also have an old copy of the stream.
func LookAhead(ctx context.Context, streams refstore.Streams, workspace string, known int64) (Latest, error) {
	if _, ok := streams.(refstore.Tailer); !ok || !recording {
		return Latest{}, nil
	}
	end, err := knownEnd(ctx, streams, workspace, known)
	if errors.Is(err, refstore.ErrConflict) { // the append looks again
		return Latest{}, nil
	}
	if err != nil {
		return Latest{}, fmt.Errorf("journal of workspace %s: %w", workspace, err)
	}
	return Latest{&end}, nil
}

// RecordRun is LookAhead and RecordRunAt.
func RecordRun(ctx context.Context, streams refstore.Streams, workspace, run string, now func() time.Time, known int64) (Place, error) {
	at, err := LookAhead(ctx, streams, workspace, known)
	if err != nil {
		return Place{}, err
	}
	return RecordRunAt(ctx, streams, workspace, run, now, at)
}

// RecordRunAt appends a RunRecorded to the journal, and returns that event's place.
func RecordRunAt(
	ctx context.Context, streams refstore.Streams, workspace, run string, now func() time.Time, at Latest,
) (Place, error) {
	list, stream, err := appendJournal(ctx, streams, workspace, now, at, []Event{{Type: RunRecorded, Data: &Data{Run: run}}})
	if err != nil || len(list) == 0 {
		return Place{}, err
	}
	return Place{Seq: list[0].Seq, Stream: stream}, nil
}

// A Cursor is a place in the events of a workspace. Before it lie the first events of its journal up to a number, the
// first events of the last run recorded by then up to a number, and all earlier runs. Any process may append to the
// journal while a run has events, so readers see these two in different orders; a cursor is valid for each order.
// Runs whose line the journal has lost count as recorded before it began, in the order of their ids.
type Cursor struct {
	Journal int64
	Run     string
	Seq     int64
}

// cursorVersion is the prefix of a cursor's text.
const cursorVersion = "c1"

// String is the text of a cursor, which is opaque to readers.
func (c Cursor) String() string {
	if c.Run == "" {
		return fmt.Sprintf("%s.%d", cursorVersion, c.Journal)
	}
	return fmt.Sprintf("%s.%d.%d.%s", cursorVersion, c.Journal, c.Seq, c.Run)
}

// ErrCursor says that a text is no cursor.
var ErrCursor = errors.New("not the cursor of an event")

// ParseCursor reads what String returns.
func ParseCursor(text string) (Cursor, error) {
	fail := func() (Cursor, error) { return Cursor{}, fmt.Errorf("%.80q is %w", text, ErrCursor) }
	parts := strings.SplitN(text, ".", 4)
	if len(parts) < 2 || len(parts) == 3 || parts[0] != cursorVersion {
		return fail()
	}
	var c Cursor
	var err error
	if c.Journal, err = strconv.ParseInt(parts[1], 10, 64); err != nil || c.Journal < 0 {
		return fail()
	}
	if len(parts) == 4 {
		if c.Seq, err = strconv.ParseInt(parts[2], 10, 64); err != nil || c.Seq < 0 {
			return fail()
		}
		if c.Run = parts[3]; c.Run == "" || len(c.Run) > 64 || strings.ContainsFunc(c.Run, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fail()
		}
	}
	if c.String() != text {
		return fail()
	}
	return c, nil
}
