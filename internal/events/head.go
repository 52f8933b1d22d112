package events

import (
	"bufio"
	"cmp"
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

// PackageOf returns the hash of the package of a run, given its first event: the last one, if the graph has grown. It is ""
// if no event names it. The log is read only as far as the first event requires.
func PackageOf(ctx context.Context, streams refstore.Streams, workspace, run string, first *Event) (string, error) {
	if first == nil || first.Type != RunStarted {
		return "", nil
	}
	hash := first.Facts().PackageHash
	if !first.Facts().Grows {
		return hash, nil
	}
	end, err := End(ctx, streams, workspace, run)
	if err != nil {
		return "", err
	}
	if end != nil {
		return cmp.Or(end.Facts().PackageHash, hash), nil
	}
	for e, err := range Read(ctx, streams, workspace, run) {
		if errors.As(err, new(*DamagedError)) {
			break
		}
		if err != nil {
			return "", err
		}
		if e.Type == GraphGrown {
			hash = cmp.Or(e.Facts().PackageHash, hash)
		}
	}
	return hash, nil
}
