package executions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"e3/internal/format/record"
)

// torn tells whether the record here is the incoming execution with the same provenance, but with a log that a loss of
// power has cut off or zeroed. Only the log shows that, so a repeated import reads it.
func (c *Curator) torn(ctx context.Context, in *Incoming, here onRecord) (bool, error) {
	if here.provenance == nil || here.status == nil || !bytes.Equal(here.status, in.Status.Encode()) || !bytes.Equal(route(here.provenance), route(in.Provenance)) {
		return false, nil
	}
	for _, log := range []struct {
		stream Stream
		open   func() (io.ReadCloser, int64, error)
	}{{Stdout, in.Stdout}, {Stderr, in.Stderr}} {
		if log.open == nil {
			continue
		}
		is, err := c.tornLog(ctx, in, log.stream, log.open)
		if err != nil || is {
			return is, err
		}
	}
	return false, nil
}

// route is the encoded provenance, without the fields that one import adds.
func route(p *record.Provenance) []byte {
	steps := append([]record.Step(nil), p.Steps...)
	if n := len(steps); n > 0 {
		last := record.Step{By: steps[n-1].By, Repository: steps[n-1].Repository, At: steps[n-1].At, Version: steps[n-1].Version, Signer: steps[n-1].Signer}
		steps[n-1] = last
	}
	return (&record.Provenance{Steps: steps}).Encode()
}

func (c *Curator) tornLog(ctx context.Context, in *Incoming, stream Stream, open func() (io.ReadCloser, int64, error)) (bool, error) {
	id := in.Status.ExecutionID
	size, err := c.LogSize(ctx, in.Key, id, stream)
	if err != nil {
		return false, err
	}
	theirs, want, err := open()
	if err != nil {
		return false, err
	}
	defer theirs.Close()
	if size != want {
		return size < want, nil
	}
	ours, err := c.OpenLog(ctx, in.Key, id, stream, 0)
	if err != nil {
		return false, err
	}
	defer ours.Close()
	// Lost bytes read as zeros. Any other difference has another cause.
	a, b := make([]byte, 32<<10), make([]byte, 32<<10)
	for {
		n, err := io.ReadFull(ours, a)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false, err
		}
		if m, err := io.ReadFull(theirs, b[:n]); err != nil {
			return false, fmt.Errorf("%s: it ends %d bytes before its declared length: %w", stream, n-m, err)
		}
		for i := range n {
			if a[i] == 0 && b[i] != 0 {
				return true, nil
			}
		}
	}
}
