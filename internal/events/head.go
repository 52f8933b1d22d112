package events

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"e3/refstore"
)

// Head yields the first events of a run, in order, like Read. It is for a caller that stops after a few: it reads
// little at a time. It ends before an unreadable line, without an error.
func Head(ctx context.Context, streams refstore.Streams, workspace, run string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		r, err := streams.Open(ctx, streamKey(workspace, run), 0)
		if errors.Is(err, refstore.ErrNotFound) {
			return
		}
		if err != nil {
			yield(Event{}, fmt.Errorf("events of run %s: %w", run, err))
			return
		}
		defer r.Close() // only read, so errors do not matter
		bounded := &io.LimitedReader{R: r}
		for in, seq := bufio.NewReaderSize(bounded, 1<<10), int64(1); ; seq++ {
			bounded.N = maxFirst
			line, err := in.ReadBytes('\n')
			if errors.Is(err, io.EOF) || errors.Is(err, refstore.ErrDamaged) {
				return
			}
			if err != nil {
				yield(Event{}, fmt.Errorf("events of run %s: %w", run, err))
				return
			}
			e, err := Parse(line)
			if err != nil || e.Seq != seq || !yield(*e, nil) {
				return
			}
		}
	}
}
