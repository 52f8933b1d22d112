package zipfile_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"e3/internal/format/zipfile"
	"e3/internal/testing/suite"
)

// repeated is a file in which a run of equal blocks takes no memory.
type repeated struct {
	mu         sync.Mutex
	block      []byte
	start, end int64 // of the run
	rest       map[int64][]byte
	size       int64
}

func (r *repeated) WriteAt(p []byte, off int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if bytes.Equal(p, r.block) {
		if r.end == 0 {
			r.start, r.end = off, off
		}
		if off != r.end {
			return 0, fmt.Errorf("a block at %d does not follow that before %d", off, r.end)
		}
		r.end += int64(len(p))
	} else if len(p) > 0 {
		r.rest[off] = bytes.Clone(p)
	}
	r.size = max(r.size, off+int64(len(p)))
	return len(p), nil
}

func (r *repeated) ReadAt(p []byte, off int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for n < len(p) && off < r.size {
		from := r.piece(off)
		if from == nil {
			return n, fmt.Errorf("nothing was written at %d", off)
		}
		k := copy(p[n:], from)
		n, off = n+k, off+int64(k)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// piece returns what was written at off, up to the end of that write.
func (r *repeated) piece(off int64) []byte {
	if off >= r.start && off < r.end {
		return r.block[(off-r.start)%int64(len(r.block)):]
	}
	for start, b := range r.rest {
		if off >= start && off < start+int64(len(b)) {
			return b[off-start:]
		}
	}
	return nil
}

// An entry of more than 4 GiB, and one behind it, without 4 GiB of disk or memory.
func TestZip64(t *testing.T) {
	suite.Thorough(t)
	block := noise(zipfile.BlockSize)
	out := &repeated{block: block, rest: map[int64][]byte{}}
	const blocks = 4<<30/zipfile.BlockSize + 3
	const size = blocks * zipfile.BlockSize
	large := func() (io.ReadCloser, error) {
		return io.NopCloser(io.LimitReader(&cycle{block: block}, size)), nil
	}
	w := zipfile.NewWriter(t.Context(), out, &memory{}, zipfile.Options{})
	defer w.Abort()
	if err := w.AddBytes("before", text(100)); err != nil {
		t.Fatal(err)
	}
	if err := w.Add("large", size, large); err != nil {
		t.Fatal(err)
	}
	if err := w.AddBytes("after", text(200)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.Size() < size {
		t.Fatalf("got %d bytes, want more than %d", w.Size(), size)
	}

	z, err := zipfile.Open(t.Context(), out, w.Size(), zipfile.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int64
	for e, err := range z.Entries() {
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, e.Size)
		c, err := z.OpenEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		if e.Name == "large" && raceEnabled {
			continue // 4 GiB are too slow then
		}
		n, err := io.Copy(io.Discard, c)
		c.Close()
		if err != nil || n != e.Size {
			t.Errorf("%s: got %d bytes, error %v, want %d", e.Name, n, err, e.Size)
		}
	}
	if want := []int64{100, size, 200}; fmt.Sprint(sizes) != fmt.Sprint(want) {
		t.Errorf("got sizes %v, want %v", sizes, want)
	}

	// The standard library reads the same.
	std, err := zip.NewReader(out, w.Size())
	if err != nil {
		t.Fatal(err)
	}
	if f := std.File[1]; f.UncompressedSize64 != size || f.CompressedSize64 != size {
		t.Errorf("archive/zip: got sizes %d and %d, want %d", f.UncompressedSize64, f.CompressedSize64, size)
	}
	c, err := std.File[2].Open()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, text(200)) {
		t.Errorf("archive/zip: got %d bytes, error %v from behind 4 GiB", len(got), err)
	}
}

// cycle repeats a block.
type cycle struct {
	block []byte
	pos   int
}

func (c *cycle) Read(p []byte) (int, error) {
	n := copy(p, c.block[c.pos:])
	c.pos = (c.pos + n) % len(c.block)
	return n, nil
}

// A million entries, written and read, in little memory.
func TestMillionEntries(t *testing.T) {
	entries, most := int64(1_000_000), uint64(100<<20)
	if raceEnabled {
		entries = 100_000 // the race detector is slow, and has memory of its own
	}
	dir := t.TempDir()
	create := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	out, spool := create("zip"), create("spool")
	runtime.GC()
	var peak atomic.Uint64
	sample := func() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		for old := peak.Load(); m.HeapInuse > old && !peak.CompareAndSwap(old, m.HeapInuse); old = peak.Load() {
		}
	}
	name := func(i int64) string {
		h := sha256.Sum256(fmt.Append(nil, i))
		return fmt.Sprintf("objects/%x/%x.beast2", h[:1], h[1:])
	}
	w := zipfile.NewWriter(t.Context(), out, spool, zipfile.Options{})
	defer w.Abort()
	for i := range entries {
		err := w.Add(name(i), 8, func() (io.ReadCloser, error) {
			if i%20_000 == 0 {
				sample()
			}
			return io.NopCloser(bytes.NewReader(fmt.Appendf(nil, "%08d", i))), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sample()
	if got := peak.Load(); got > most {
		t.Errorf("writing: the heap had %d MiB, want at most %d", got>>20, most>>20)
	}
	t.Logf("writing: %d bytes, heap %d MiB", w.Size(), peak.Load()>>20)

	runtime.GC()
	peak.Store(0)
	seen := 0
	z, err := zipfile.Open(t.Context(), out, w.Size(), zipfile.Limits{MayRepeat: func(string) bool {
		if seen++; seen%20_000 == 0 {
			sample()
		}
		return false
	}})
	if err != nil {
		t.Fatal(err)
	}
	sample()
	i := int64(0)
	for e, err := range z.Entries() {
		if err != nil {
			t.Fatal(err)
		}
		if i%20_000 == 0 {
			sample()
		}
		if i%1000 == 0 {
			c, err := z.OpenEntry(e)
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(c)
			c.Close()
			if err != nil || string(content) != fmt.Sprintf("%08d", i) || e.Name != name(i) {
				t.Fatalf("entry %d: got %s, %q, error %v", i, e.Name, content, err)
			}
		}
		i++
	}
	if i != entries {
		t.Errorf("got %d entries, want %d", i, entries)
	}
	if got := peak.Load(); got > most {
		t.Errorf("reading: the heap had %d MiB, want at most %d", got>>20, most>>20)
	}
	t.Logf("reading: heap %d MiB", peak.Load()>>20)
}
