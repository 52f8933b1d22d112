package events

import (
	"bytes"
	"context"
	"errors"
	"io"

	"e3/refstore"
)

// maxLine bounds a line, as imports do. A longer line is damage, so no log can make a reader hold more.
const maxLine = 1 << 20

// chunk is how much of a stream is read at a time, and firstChunk how much at first: a caller may stop after a few
// lines.
const (
	firstChunk = 4 << 10
	chunk      = 256 << 10
)

var errLongLine = errors.New("the line has more than 1 MiB")

// A lineCursor is a place in a stream of lines, the log of a run or a part of a journal, and reads forward from it.
type lineCursor struct {
	open  func(off int64) (io.ReadCloser, error)
	parse func(line []byte) (*Event, error)
	r     io.ReadCloser
	buf   []byte
	part  []byte // of buf: not yet consumed
	off   int64  // of part in the stream: where the last line ends
	start int64  // where the last line begins
	eof   bool
	again bool // a damaged line was read a second time
}

// A lineError says what is damaged about a line. The cursor is behind it.
type lineError struct{ err error }

func (e *lineError) Error() string { return e.err.Error() }

// openLines returns a cursor at an offset of a stream. It reads into buf, which may be nil and which the caller may
// use again afterwards.
func openLines(
	ctx context.Context, streams refstore.Streams, key refstore.Key, off int64, buf []byte,
	parse func([]byte) (*Event, error),
) (*lineCursor, error) {
	c := &lineCursor{off: off, buf: buf[:cap(buf)], parse: parse, open: func(off int64) (io.ReadCloser, error) {
		return streams.Open(ctx, key, off)
	}}
	var err error
	c.r, err = c.open(off)
	return c, err
}

// Close closes the stream. An error would mean nothing, as it was only read.
func (c *lineCursor) Close() { c.r.Close() }

// next returns the next event whose line the plan keeps, and that line with its newline, which is valid until the next
// call. The error is a [*lineError] for a damaged line, and io.EOF at the end: bytes after the last newline are a torn
// tail, not a line.
func (c *lineCursor) next(ctx context.Context, p *plan) (*Event, []byte, error) {
	for {
		line, err := c.line(ctx, p.scan)
		switch {
		case err == nil:
			if !p.keeps(line) {
				continue
			}
			var e *Event
			if e, err = c.parse(line); err == nil {
				return e, line, nil
			}
		case errors.Is(err, refstore.ErrDamaged): // the stream is damaged here, so nothing follows
			c.part, c.eof = nil, true
			return nil, nil, &lineError{err}
		case !errors.Is(err, errLongLine):
			return nil, nil, err
		}
		if c.again {
			return nil, line, &lineError{err}
		}
		// A torn line may be cut and replaced at any time, so this line may consist of bytes from before and after a
		// cut.
		c.again = true
		if err := c.reopen(c.start); err != nil {
			return nil, nil, err
		}
		if p.scan != nil {
			clear(p.scan.next)
		}
	}
}

// reopen moves to an offset in the stream as it is now.
func (c *lineCursor) reopen(off int64) error {
	r, err := c.open(off)
	if err != nil {
		return err
	}
	c.r.Close()
	c.r, c.part, c.off, c.eof = r, nil, off, false
	return nil
}

// line returns the next line that the sieve keeps. io.EOF after the last one; errLongLine behind a line that is too
// long.
func (c *lineCursor) line(ctx context.Context, s *sieve) ([]byte, error) {
	for {
		whole := bytes.LastIndexByte(c.part, '\n') + 1
		if whole > 0 {
			from, to := s.find(c.part[:whole], c.off)
			line := c.part[from:to]
			c.start = c.off + int64(from)
			c.take(to)
			if len(line) > 0 {
				return line, nil
			}
			continue
		}
		if c.eof {
			return nil, io.EOF
		}
		if len(c.part) >= maxLine {
			c.start = c.off
			if err := c.dropLine(ctx); err != nil { // without a newline it is a torn tail
				return nil, err
			}
			return nil, errLongLine
		}
		if err := c.fill(ctx); err != nil {
			return nil, err
		}
	}
}

func (c *lineCursor) take(n int) {
	c.part = c.part[n:]
	c.off += int64(n)
}

// dropLine moves behind the next newline. io.EOF if there is none.
func (c *lineCursor) dropLine(ctx context.Context) error {
	for {
		if i := bytes.IndexByte(c.part, '\n'); i >= 0 {
			c.take(i + 1)
			return nil
		}
		c.take(len(c.part))
		if c.eof {
			return io.EOF
		}
		if err := c.fill(ctx); err != nil {
			return err
		}
	}
}

// fill reads more after the unconsumed bytes.
func (c *lineCursor) fill(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	n := len(c.part)
	if n == len(c.buf) || len(c.buf) < chunk {
		larger := make([]byte, min(max(2*len(c.buf), firstChunk), maxLine))
		copy(larger, c.part)
		c.buf = larger
	} else {
		copy(c.buf, c.part)
	}
	for empty := 0; ; {
		k, err := c.r.Read(c.buf[n:])
		c.part = c.buf[:n+k]
		switch {
		case err == io.EOF:
			c.eof = true
			return nil
		case err != nil:
			return err
		case k > 0:
			return nil
		}
		if empty++; empty > 100 {
			return io.ErrNoProgress
		}
	}
}
