package objectstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"sync/atomic"
)

// zeroUnit is the granularity in which runs of zeros become holes. It is a multiple of every file system's block size.
const zeroUnit = 64 << 10

var zeros [zeroUnit]byte

// A span reads a file from at to end. Holes are not read from the disk: they are zeros in memory. Where the system
// tells the holes, reading moves the position of f; nothing in this package relies on that position.
type span struct {
	f       *os.File
	at, end int64
	until   int64 // between at and here lies either data or one hole
	hole    bool
}

// fromStart reads f from its first byte, whatever its position. The first chunk counts as data, so that small files
// need no search for holes.
func fromStart(f *os.File) *span { return &span{f: f, end: 1<<63 - 1, until: chunkSize} }

func (s *span) Read(p []byte) (int, error) {
	if s.at >= s.end {
		return 0, io.EOF
	}
	s.look()
	p = p[:min(int64(len(p)), s.until-s.at)]
	if s.hole {
		clear(p)
		s.at += int64(len(p))
		return len(p), nil
	}
	n, err := s.f.ReadAt(p, s.at)
	s.at += int64(n)
	return n, err
}

// look finds out whether data or a hole lies at s.at, unless it is known.
func (s *span) look() {
	if s.at < s.until {
		return
	}
	s.until, s.hole = s.end, false
	data, err := nextData(s.f, s.at)
	if errors.Is(err, errNoData) {
		// Up to the end of the file there is only a hole, or nothing.
		if st, err := fstat(s.f); err == nil && st.size > s.at {
			s.until, s.hole = min(st.size, s.end), true
		}
		return
	}
	switch {
	case err != nil: // no such question here: everything counts as data
	case data > s.at:
		s.until, s.hole = min(data, s.end), true
	default:
		if hole, err := nextHole(s.f, s.at); err == nil && hole > s.at {
			s.until = min(hole, s.end)
		}
	}
}

// A sparseWriter writes an empty file from its start, and leaves holes where there are zeros. finish must follow the last
// write.
type sparseWriter struct {
	f    *os.File
	size int64 // size of the content, with the zeros
	end  int64 // end of the file so far
	kept *writeBack
}

func (w *sparseWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := zeroRun(rest, true)
		w.size += int64(n)
		rest = rest[n:]
		n = zeroRun(rest, false)
		if n == 0 {
			continue
		}
		if _, err := w.f.WriteAt(rest[:n], w.size); err != nil {
			return 0, err
		}
		w.size += int64(n)
		w.end = w.size
		rest = rest[n:]
	}
	w.kept.reached(w.f, w.end)
	return len(p), nil
}

// zeroRun returns the length of the run at the beginning of p of units that are all zero, or of units that are not.
func zeroRun(p []byte, zero bool) int {
	n := 0
	for n < len(p) {
		unit := p[n:min(n+zeroUnit, len(p))]
		if bytes.Equal(unit, zeros[:len(unit)]) != zero {
			break
		}
		n += len(unit)
	}
	return n
}

// finish gives the file its size if it ends in a hole.
func (w *sparseWriter) finish() error {
	if w.end == w.size {
		return nil
	}
	return w.f.Truncate(w.size)
}

// writeBackStep is the number of bytes of a new object after which write-back is asked for.
const writeBackStep = 16 << 20

// A writeBack asks the system to begin writing a large object to the disk while it is still being made: the sync before the
// reference then waits only for the rest. Otherwise the system would begin when a tenth of the memory is full of such data. A nil
// *writeBack asks for nothing.
type writeBack struct {
	asked int64
	busy  atomic.Bool
}

// reached says that the file f has been written up to end. The request is made by another goroutine, since it waits
// when the disk is busy; bytes written meanwhile are part of the next request.
func (b *writeBack) reached(f *os.File, end int64) {
	if b == nil || end-b.asked < writeBackStep || !b.busy.CompareAndSwap(false, true) {
		return
	}
	// Use a separate descriptor, as f may be closed meanwhile. It is for reading only, and so prevents no lease.
	own, err := reopenForReading(f)
	if err != nil {
		b.asked = math.MaxInt64 // the system does not support it
		return
	}
	from := b.asked
	b.asked = end
	go func() {
		beginWriteBack(own, from, end-from)
		own.Close()
		b.busy.Store(false)
	}()
}

// copyRangeMax bounds one copy by the kernel, so that a copy can be cancelled.
const copyRangeMax = 64 << 20

// copyData copies the first size bytes of src into the empty file dst, within the kernel where that is possible. Holes stay
// holes. An early end of src is io.ErrUnexpectedEOF.
func copyData(ctx context.Context, dst, src *os.File, size int64) error {
	from := &span{f: src, end: size}
	end := int64(0)
	for from.at < size {
		if err := ctx.Err(); err != nil {
			return err
		}
		if from.look(); from.hole {
			from.at = from.until
			continue
		}
		n, err := copyRange(dst, src, from.at, min(from.until-from.at, copyRangeMax))
		if copyRangeNever(err) {
			return copyThrough(ctx, dst, from, size)
		}
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		from.at += n
		end = from.at
	}
	if end == size {
		return nil
	}
	return dst.Truncate(size)
}

// copyThrough is the rest of copyData through memory.
func copyThrough(ctx context.Context, dst *os.File, from *span, size int64) error {
	w := &sparseWriter{f: dst, size: from.at, end: from.at}
	buf := getBuffer()
	defer putBuffer(buf)
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, contextReader{ctx, from}, *buf)
	if err == nil && w.size != size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = dst.Truncate(size) // the last bytes may be a hole
	}
	return err
}
