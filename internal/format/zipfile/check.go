package zipfile

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"slices"
)

// A span is the part of the archive that an entry occupies: its header and its content.
type span struct{ start, end int64 }

// check reads the directory and every local header. It needs 16 bytes of memory for each entry, and 8 more for each
// entry whose name must be unique.
func (z *Reader) check(ctx context.Context) error {
	// The number of entries fits the directory's size and the limits.
	spans := make([]span, 0, z.directory.entries)
	names := make([]uint64, 0, z.directory.entries)
	seed := maphash.MakeSeed() // a random seed, so that colliding names cannot be crafted
	near := &window{r: z.r, limit: z.directory.offset}
	for e, err := range z.Entries() {
		if err != nil {
			return err
		}
		if len(spans)%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		at, err := z.contentAt(near, &e)
		if err != nil {
			return err
		}
		end := at + e.CompressedSize
		if e.Flags&flagDescriptor != 0 {
			end += descriptorLen
		}
		if end > z.directory.offset {
			return &FormatError{e.Name, "it overlaps the directory"}
		}
		spans = append(spans, span{e.Offset, end})
		if z.limits.MayRepeat == nil || !z.limits.MayRepeat(e.Name) {
			names = append(names, maphash.String(seed, e.Name))
		}
	}
	if err := z.checkSpans(spans); err != nil {
		return err
	}
	return z.checkNames(ctx, seed, names)
}

// checkSpans refuses entries that overlap each other.
func (z *Reader) checkSpans(spans []span) error {
	byStart := func(a, b span) int { return cmp.Compare(a.start, b.start) }
	if !slices.IsSortedFunc(spans, byStart) {
		slices.SortFunc(spans, byStart)
	}
	for i := 1; i < len(spans); i++ {
		before, s := spans[i-1], spans[i]
		if s.start >= before.end {
			continue
		}
		for e, err := range z.Entries() {
			if err != nil {
				return err
			}
			if e.Offset == s.start {
				return &FormatError{e.Name, fmt.Sprintf("it overlaps another entry at %d", before.start)}
			}
		}
		return &FormatError{"", "its entries overlap"} // the archive has changed meanwhile
	}
	return nil
}

// checkNames refuses names that occur in several entries, given the hashes of the names.
func (z *Reader) checkNames(ctx context.Context, seed maphash.Seed, hashes []uint64) error {
	slices.Sort(hashes)
	for i := 1; i < len(hashes); i++ {
		if hashes[i] != hashes[i-1] {
			continue
		}
		// The names are equal, or, rarely, only their hashes.
		seen := map[string]bool{}
		for e, err := range z.Entries() {
			if err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if maphash.String(seed, e.Name) != hashes[i] || z.limits.MayRepeat != nil && z.limits.MayRepeat(e.Name) {
				continue
			}
			if seen[e.Name] {
				return &FormatError{e.Name, "there is more than one entry of this name"}
			}
			seen[e.Name] = true
		}
	}
	return nil
}

// contentAt checks the local header of e and returns where the content begins.
func (z *Reader) contentAt(r io.ReaderAt, e *Entry) (int64, error) {
	refuse := func(format string, args ...any) (int64, error) {
		return 0, &FormatError{e.Name, fmt.Sprintf(format, args...)}
	}
	end := z.directory.offset
	if e.Offset < 0 || e.CompressedSize < 0 || e.Offset > end-localLen-int64(len(e.Name)) {
		return refuse("its header is said to be at %d, outside of the entries", e.Offset)
	}
	var room [localLen + 128]byte
	h := room[:]
	if n := localLen + len(e.Name); n <= len(room) {
		h = h[:n]
	} else {
		h = make([]byte, n)
	}
	if err := readFullAt(r, h, e.Offset); err != nil {
		return 0, err
	}
	flags, method := le.Uint16(h[6:]), le.Uint16(h[8:])
	nameLen, extraLen := int64(le.Uint16(h[26:])), int64(le.Uint16(h[28:]))
	switch {
	case le.Uint32(h) != localSig:
		return refuse("there is no header at %d", e.Offset)
	case nameLen != int64(len(e.Name)) || !bytes.Equal(h[localLen:], []byte(e.Name)):
		return refuse("its header has another name than the directory")
	case method != e.Method:
		return refuse("its header has method %d, the directory %d", method, e.Method)
	case (flags^e.Flags)&flagDescriptor != 0:
		return refuse("its header and the directory disagree about a data descriptor")
	}
	if reason := methodFault(flags, method); reason != "" {
		return refuse("%s", reason)
	}
	at := e.Offset + localLen + nameLen + extraLen
	if at > end-e.CompressedSize {
		return refuse("it overlaps the directory")
	}
	crc, wide := le.Uint32(h[14:]), wideValues{size: le.Uint32(h[22:]), compressed: le.Uint32(h[18:])}
	if flags&flagDescriptor != 0 && crc == 0 && wide.size == 0 && wide.compressed == 0 {
		return at, nil
	}
	var extra []byte
	if wide.size == math.MaxUint32 || wide.compressed == math.MaxUint32 {
		extra = make([]byte, extraLen)
		if err := readFullAt(r, extra, at-extraLen); err != nil {
			return 0, err
		}
	}
	if reason := wide.read(extra); reason != "" {
		return refuse("in its header, %s", reason)
	}
	if flags&flagDescriptor != 0 {
		crc, wide.Size, wide.Compressed = cmp.Or(crc, e.CRC), cmp.Or(wide.Size, e.Size), cmp.Or(wide.Compressed, e.CompressedSize)
	}
	if crc != e.CRC || wide.Size != e.Size || wide.Compressed != e.CompressedSize {
		return refuse("its header says %d bytes (%d compressed, CRC %08x), the directory %d (%d, %08x)",
			wide.Size, wide.Compressed, crc, e.Size, e.CompressedSize, e.CRC)
	}
	return at, nil
}

// A window is a ReaderAt for small pieces of r below limit that are near each other, such as the headers of small
// entries.
type window struct {
	r     io.ReaderAt
	limit int64
	start int64
	n     int
	buf   [8 << 10]byte
}

func (w *window) ReadAt(p []byte, off int64) (int, error) {
	if len(p) > len(w.buf) {
		return w.r.ReadAt(p, off)
	}
	if off < w.start || off+int64(len(p)) > w.start+int64(w.n) {
		want := w.buf[:min(int64(len(w.buf)), w.limit-off)]
		w.n = 0
		if err := readFullAt(w.r, want, off); err != nil {
			return 0, err
		}
		w.start, w.n = off, len(want)
	}
	n := copy(p, w.buf[off-w.start:w.n])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
