package events

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"e3/refstore"
)

// maxFirst bounds a first line: e3 writes no longer ones.
const maxFirst = 1 << 20

// First returns the first event of a run; nil if there is none or it is unreadable. It reads only the head.
func First(ctx context.Context, streams refstore.Streams, workspace, run string) (*Event, error) {
	r, err := streams.Open(ctx, streamKey(workspace, run), 0)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("events of run %s: %w", run, err)
	}
	defer r.Close() // only read, so errors do not matter
	line, err := bufio.NewReaderSize(io.LimitReader(r, maxFirst), 1<<10).ReadBytes('\n')
	if errors.Is(err, io.EOF) || errors.Is(err, refstore.ErrDamaged) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("events of run %s: %w", run, err)
	}
	e, err := Parse(line)
	if err != nil || e.Seq != 1 || e.Run != run {
		return nil, nil
	}
	return e, nil
}
