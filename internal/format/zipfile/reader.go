package zipfile

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"sync"
)

// DefaultEntries is the greatest number of entries of an archive if Limits sets none. A Reader needs 24 bytes of memory
// for each entry while it opens.
const DefaultEntries = 4_000_000

// Limits bound the sizes and counts that an archive may declare. No more is read from it than the declared sizes.
type Limits struct {
	// Entries is the largest number of entries; 0 means DefaultEntries.
	Entries int64
	// EntrySize is the largest size of one entry's content, in bytes; 0 means no limit.
	EntrySize int64
	// TotalSize is the largest size of all content together, in bytes; 0 means no limit.
	TotalSize int64
	// MayRepeat reports whether a name may occur in several entries; nil: none may. The caller decides what such
	// entries mean.
	MayRepeat func(name string) bool
}

// A Reader reads an archive. It keeps nothing of the directory in memory. It is safe for
// concurrent use, as far as the underlying ReaderAt is.
type Reader struct {
	r         io.ReaderAt
	directory directory
	limits    Limits
	inflaters sync.Pool // *inflater
}

// Open checks all of an archive except the content; the archive is the first size bytes of r. It checks that there is
// exactly one directory, that each entry matches its local header, that entries do not overlap, and names and limits.
// A fault of the archive is a FormatError or a LimitError. All other errors come from r or ctx. Open does not close
// r.
func Open(ctx context.Context, r io.ReaderAt, size int64, l Limits) (*Reader, error) {
	l.Entries = cmp.Or(max(l.Entries, 0), DefaultEntries)
	z := &Reader{r: r, limits: l}
	z.inflaters.New = func() any { return newInflater() }
	d, err := findDirectory(r, size)
	if err != nil {
		return nil, z.wrap(err)
	}
	z.directory = d
	if d.entries > l.Entries {
		return nil, &LimitError{"", "entries", d.entries, l.Entries}
	}
	if err := z.check(ctx); err != nil {
		return nil, z.wrap(err)
	}
	return z, nil
}

// wrap gives an error of r its context. An early end of r becomes io.ErrUnexpectedEOF: the archive is, or was for a
// time, shorter than its size.
func (z *Reader) wrap(err error) error {
	var format *FormatError
	var limit *LimitError
	switch {
	case errors.As(err, &format), errors.As(err, &limit):
		return err
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read zip file: %w", err)
}

// Len returns the number of entries.
func (z *Reader) Len() int64 { return z.directory.entries }

// Entries yields the entries in the order of the directory, including directories. It can be iterated again, and by
// several goroutines. It ends after an error.
func (z *Reader) Entries() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		d := z.directory
		r := bufio.NewReaderSize(io.NewSectionReader(z.r, d.offset, d.size), 64<<10)
		var buf []byte
		var total, position int64
		for range d.entries {
			e, length, err := readCentral(r, &buf)
			e.Position = position
			position += length
			switch {
			case err == io.EOF:
				err = &FormatError{"", fmt.Sprintf("its directory ends before the last of %d entries", d.entries)}
			case err != nil:
			case z.limits.EntrySize > 0 && e.Size > z.limits.EntrySize:
				err = &LimitError{e.Name, "bytes", e.Size, z.limits.EntrySize}
			case e.Size > math.MaxInt64-total:
				err = &FormatError{"", "its entries declare more than 2^63 bytes"}
			default:
				total += e.Size
				if z.limits.TotalSize > 0 && total > z.limits.TotalSize {
					err = &LimitError{"", "bytes", total, z.limits.TotalSize}
				}
			}
			if err != nil {
				yield(Entry{}, z.wrap(err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if n := r.Buffered(); n > 0 {
			yield(Entry{}, &FormatError{"", "its directory is longer than its entries"})
		} else if _, err := r.ReadByte(); err == nil {
			yield(Entry{}, &FormatError{"", "its directory is longer than its entries"})
		}
	}
}

// At returns the entry with a given Position, for callers that return to one of many entries.
func (z *Reader) At(position int64) (Entry, error) {
	d := z.directory
	if position < 0 || position >= d.size {
		return Entry{}, &FormatError{"", fmt.Sprintf("its directory has no entry at %d", position)}
	}
	var buf []byte
	e, _, err := readCentral(io.NewSectionReader(z.r, d.offset+position, d.size-position), &buf)
	if err != nil {
		return Entry{}, z.wrap(err)
	}
	e.Position = position
	return e, nil
}

// findDirectory reads the records at the archive's end. Exactly one reading must be possible: the directory ends where
// the records begin, and they end where the archive ends.
func findDirectory(r io.ReaderAt, size int64) (directory, error) {
	refuse := func(format string, args ...any) (directory, error) {
		return directory{}, &FormatError{"", fmt.Sprintf(format, args...)}
	}
	if size < endLen {
		return refuse("it has %d bytes, and the shortest archive has %d", size, endLen)
	}
	tail := make([]byte, min(size, locatorLen+endLen+math.MaxUint16))
	if err := readFullAt(r, tail, size-int64(len(tail))); err != nil {
		return directory{}, err
	}
	at := -1 // offset of the record, in tail
	signature := le.AppendUint32(nil, endSig)
	for i := len(tail) - endLen; i >= 0; i-- {
		if !bytes.HasPrefix(tail[i:], signature) {
			continue
		}
		whole := i+endLen+int(le.Uint16(tail[i+20:])) == len(tail)
		switch {
		case !whole && at < 0:
			return refuse("its end behind the directory has not the declared length; it may be cut off")
		case whole && at >= 0:
			return refuse("it has two ends, so that it could be read in two ways")
		case whole:
			at = i
		}
	}
	if at < 0 {
		return refuse("it is no zip archive, or its end is cut off")
	}
	end := tail[at:]
	endAt := size - int64(len(end))
	count, here := le.Uint16(end[10:]), le.Uint16(end[8:])
	low := directory{int64(count), int64(le.Uint32(end[16:])), int64(le.Uint32(end[12:]))}
	if disk, first := le.Uint16(end[4:]), le.Uint16(end[6:]); disk != first || disk != 0 && disk != math.MaxUint16 || here != count {
		return refuse("it is a part of an archive on several disks")
	}
	d, limit := low, endAt
	if at >= locatorLen && le.Uint32(tail[at-locatorLen:]) == locatorSig {
		var err error
		if d, limit, err = readEnd64(r, tail[at-locatorLen:at], endAt-locatorLen); err != nil {
			return directory{}, err
		}
		if count != math.MaxUint16 && low.entries != d.entries ||
			low.offset != math.MaxUint32 && low.offset != d.offset ||
			low.size != math.MaxUint32 && low.size != d.size {
			return refuse("its two end records disagree about the directory")
		}
	} else if low.offset == math.MaxUint32 || low.size == math.MaxUint32 {
		return refuse("its zip64 end record is missing")
	}
	if d.offset > limit || d.size != limit-d.offset {
		return refuse("its directory is said to be at %d with %d bytes, but should end at %d", d.offset, d.size, limit)
	}
	if d.entries > d.size/centralLen {
		return refuse("its directory is said to have %d entries in %d bytes", d.entries, d.size)
	}
	return d, nil
}

// readEnd64 reads the end record of zip64 that locator points to, and returns where it begins.
// It must end at limit.
func readEnd64(r io.ReaderAt, locator []byte, limit int64) (directory, int64, error) {
	refuse := func(reason string) (directory, int64, error) { return directory{}, 0, &FormatError{"", reason} }
	at := le.Uint64(locator[8:])
	if le.Uint32(locator[4:]) != 0 || le.Uint32(locator[16:]) != 1 {
		return refuse("it is a part of an archive on several disks")
	}
	if limit < end64Len || at > uint64(limit-end64Len) {
		return refuse("its zip64 end record is not where it is said to be")
	}
	var b [end64Len]byte
	if err := readFullAt(r, b[:], int64(at)); err != nil {
		return directory{}, 0, err
	}
	if le.Uint32(b[:]) != end64Sig || le.Uint64(b[4:]) != uint64(limit)-at-12 {
		return refuse("its zip64 end record is not where it is said to be")
	}
	count, here, size, offset := le.Uint64(b[32:]), le.Uint64(b[24:]), le.Uint64(b[40:]), le.Uint64(b[48:])
	if le.Uint32(b[16:]) != 0 || le.Uint32(b[20:]) != 0 || here != count {
		return refuse("it is a part of an archive on several disks")
	}
	if count > math.MaxInt64 || size > math.MaxInt64 || offset > math.MaxInt64 {
		return refuse("its directory is said to be beyond 2^63 bytes")
	}
	return directory{int64(count), int64(offset), int64(size)}, int64(at), nil
}

// readFullAt fills b from r at off; an end before that is io.ErrUnexpectedEOF.
func readFullAt(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case err == io.EOF, err == nil:
		return io.ErrUnexpectedEOF
	}
	return err
}
