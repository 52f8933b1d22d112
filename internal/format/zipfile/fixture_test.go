package zipfile_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"e3/internal/format/zipfile"
)

// memory is a file for tests.
type memory struct {
	mu   sync.Mutex
	data []byte
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := off + int64(len(p)); n > int64(len(m.data)) {
		m.data = append(m.data, make([]byte, n-int64(len(m.data)))...)
	}
	return copy(m.data[off:], p), nil
}

func (m *memory) Write(p []byte) (int, error) { return m.WriteAt(p, int64(len(m.data))) }

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.NewReader(m.data).ReadAt(p, off)
}

// file is an entry to write.
type file struct {
	name    string
	content []byte
	unknown bool // its size is not announced
}

func (f file) add(w *zipfile.Writer) error {
	size := int64(len(f.content))
	if f.unknown {
		size = -1
	}
	return w.Add(f.name, size, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(f.content)), nil })
}

// archive writes files and returns the bytes.
func archive(t testing.TB, o zipfile.Options, files ...file) []byte {
	t.Helper()
	out, spool := &memory{}, &memory{}
	w := zipfile.NewWriter(context.Background(), out, spool, o)
	defer w.Abort()
	for _, f := range files {
		if err := f.add(w); err != nil {
			t.Fatalf("add %s: %v", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if w.Size() != int64(len(out.data)) || w.Len() != int64(len(files)) {
		t.Errorf("got size %d and %d entries, want %d and %d", w.Size(), w.Len(), len(out.data), len(files))
	}
	return out.data
}

// open opens an archive in memory.
func open(data []byte, l zipfile.Limits) (*zipfile.Reader, error) {
	return zipfile.Open(context.Background(), bytes.NewReader(data), int64(len(data)), l)
}

// readAll returns the files of an archive. It stops at the first error.
func readAll(data []byte, l zipfile.Limits) ([]file, error) {
	z, err := open(data, l)
	if err != nil {
		return nil, err
	}
	var files []file
	for e, err := range z.Entries() {
		if err != nil {
			return files, err
		}
		r, err := z.OpenEntry(e)
		if err != nil {
			return files, err
		}
		content, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			return files, err
		}
		files = append(files, file{name: e.Name, content: content})
	}
	return files, nil
}

// text is n bytes that compress well.
func text(n int) []byte {
	var b bytes.Buffer
	r := rand.New(rand.NewPCG(uint64(n), 1))
	for b.Len() < n {
		fmt.Fprintf(&b, "%d\trequest %d took %d ms\n", b.Len(), r.IntN(1000), r.IntN(50))
	}
	return b.Bytes()[:n]
}

// noise is n bytes that do not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return b
}

// sampleFiles cover the sizes and kinds of content that are written differently.
func sampleFiles() []file { return slices.Clone(samples()) }

var samples = sync.OnceValue(func() []file {
	const block = zipfile.BlockSize
	files := []file{
		{name: "empty"},
		{name: "byte", content: []byte{7}},
		{name: "short", content: []byte("a\n")},
		{name: "folder/sub/ünïcode – name", content: text(5000)},
		{name: "noise/small", content: noise(5000)},
		{name: "block-1", content: text(block - 1)},
		{name: "block", content: text(block)},
		{name: "block+1", content: text(block + 1)},
		{name: "blocks", content: text(3 * block)},
		{name: "blocks+", content: text(5*block + 17)},
		{name: "noise/block", content: noise(block)},
		{name: "noise/blocks", content: noise(4*block + 99)},
		{name: "noise at the end", content: append(text(2*block), noise(2*block)...)},
		{name: "text at the end", content: append(noise(block), text(2*block)...)},
		{name: "zeros", content: make([]byte, 6*block)},
		{name: "unknown/empty", unknown: true},
		{name: "unknown/small", content: text(700), unknown: true},
		{name: "unknown/block", content: text(block), unknown: true},
		{name: "unknown/blocks", content: text(3*block + 5), unknown: true},
		{name: "unknown/noise", content: noise(2*block + 5), unknown: true},
	}
	for i := range 600 {
		files = append(files, file{name: fmt.Sprintf("many/%03d", i), content: text(i * 7)})
	}
	return files
})

// onDisk writes data to a file for programs that read files.
func onDisk(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.zip")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// compare reports how got differs from want.
func compare(t *testing.T, got, want []file) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d entries, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i].name != want[i].name {
			t.Fatalf("entry %d: got name %q, want %q", i, got[i].name, want[i].name)
		}
		if !bytes.Equal(got[i].content, want[i].content) {
			t.Fatalf("entry %s: got %d bytes that differ from the %d wanted", want[i].name, len(got[i].content), len(want[i].content))
		}
	}
}
