package zipfile_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"e3/internal/format/zipfile"
)

// refused reports whether an error is about the archive.
func refused(err error) bool {
	var format *zipfile.FormatError
	var limit *zipfile.LimitError
	return errors.As(err, &format) || errors.As(err, &limit)
}

// The standard library writes data descriptors, and directories.
func TestReadsStandardLibrary(t *testing.T) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	if _, err := w.Create("folder/"); err != nil {
		t.Fatal(err)
	}
	want := []file{{name: "folder/"}}
	for _, f := range sampleFiles() {
		method := zip.Deflate
		if len(f.content)%2 == 1 {
			method = zip.Store
		}
		to, err := w.CreateHeader(&zip.FileHeader{Name: f.name, Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.Write(f.content); err != nil {
			t.Fatal(err)
		}
		want = append(want, f)
	}
	if err := w.SetComment("a comment"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := readAll(out.Bytes(), zipfile.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, want)
}

func TestReadsPrograms(t *testing.T) {
	dir := t.TempDir()
	want := []file{{name: "x/a", content: text(3000)}, {name: "x/b", content: noise(300)}, {name: "x/empty"}}
	if err := os.Mkdir(filepath.Join(dir, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range want {
		if err := os.WriteFile(filepath.Join(dir, f.name), f.content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ name, program, install, script string }{
		{"zip", "zip", "zip", `zip -q -r out.zip x`},
		{"zip without directories", "zip", "zip", `zip -q -D -r out.zip x`},
		{"zip to a pipe", "zip", "zip", `zip -q -r - x | cat >out.zip`},
		{"python3", "python3", "python3", `python3 -m zipfile -c out.zip x`},
		{"bsdtar", "bsdtar", "libarchive-tools", `bsdtar --format zip -cf out.zip x`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := exec.LookPath(tt.program); err != nil {
				t.Skipf("%s is missing: install %s", tt.program, tt.install)
			}
			path := filepath.Join(dir, "out.zip")
			os.Remove(path)
			cmd := exec.Command("sh", "-c", tt.script)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readAll(data, zipfile.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			got = slices.DeleteFunc(got, func(f file) bool { return strings.HasSuffix(f.name, "/") })
			slices.SortFunc(got, func(a, b file) int { return strings.Compare(a.name, b.name) })
			compare(t, got, want)
		})
	}
}

func TestEntries(t *testing.T) {
	f := two()
	f.parts = append(f.parts, newPart("dir/", zipfile.Stored, nil), newPart("old", zipfile.Stored, nil))
	f.parts[2].attributes = 0o040755<<16 | 0x10
	f.parts[3].madeBy, f.parts[3].attributes = 20, 0x20
	f.parts[1].comment = "a comment of an entry"
	f.gap = make([]byte, 7)
	z, err := open(f.bytes(), zipfile.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if z.Len() != 4 {
		t.Errorf("got %d entries, want 4", z.Len())
	}
	for range 2 { // it can be run again
		var got []string
		for e, err := range z.Entries() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s %d %d %o %t", e.Name, e.Method, e.Size, e.Mode, e.IsDir()))
		}
		want := []string{"a 0 5 100644 false", "dir/b 8 300 100644 false", "dir/ 0 0 40755 true", "old 0 0 0 false"}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	for range z.Entries() {
		break // stopping early is fine
	}
}

func TestOrderOfDirectoryIsFree(t *testing.T) {
	f := two()
	for i := range 50 {
		f.parts = append(f.parts, newPart(fmt.Sprint("n", i), zipfile.Stored, text(i)))
	}
	f.lie = func(f *forged) {
		// The directory is in another order than the entries: headers and data swap places.
		rand.New(rand.NewPCG(1, 1)).Shuffle(len(f.parts), func(i, j int) {
			f.parts[i].central, f.parts[j].central = f.parts[j].central, f.parts[i].central
			f.parts[i].offset, f.parts[j].offset = f.parts[j].offset, f.parts[i].offset
		})
	}
	files, err := readAll(f.bytes(), zipfile.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 52 || files[0].name == "a" && files[1].name == "dir/b" {
		t.Errorf("got %d files, the first %q", len(files), files[0].name)
	}
}

func TestLimits(t *testing.T) {
	repeated := forge(func(f *forged) { f.parts[1].rename("a") })
	for _, tt := range []struct {
		name   string
		data   []byte
		limits zipfile.Limits
		want   string
	}{
		{"no limits", two().bytes(), zipfile.Limits{}, ""},
		{"just within", two().bytes(), zipfile.Limits{Entries: 2, EntrySize: 300, TotalSize: 305}, ""},
		{"entries", two().bytes(), zipfile.Limits{Entries: 1}, "it declares 2 entries, and at most 1 are allowed"},
		{"entry", two().bytes(), zipfile.Limits{EntrySize: 299}, `entry "dir/b": it declares 300 bytes, and at most 299 are allowed`},
		{"total", two().bytes(), zipfile.Limits{TotalSize: 304}, "it declares 305 bytes, and at most 304 are allowed"},
		{"may repeat", repeated, zipfile.Limits{MayRepeat: func(name string) bool { return name == "a" }}, ""},
		{"may not repeat", repeated, zipfile.Limits{MayRepeat: func(name string) bool { return name == "b" }},
			`entry "a": there is more than one entry of this name`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readAll(tt.data, tt.limits)
			if tt.want == "" {
				if err != nil {
					t.Errorf("got error %v, want none", err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.want) || !refused(err) {
				t.Errorf("got error %v\nwant %s", err, tt.want)
			}
		})
	}
}

// broken is a file whose reads fail from a position on.
type broken struct {
	io.ReaderAt
	from int64
	err  error
}

func (b broken) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > b.from {
		return 0, b.err
	}
	return b.ReaderAt.ReadAt(p, off)
}

// A read error is distinguished from a refused archive.
func TestErrorsOfTheFile(t *testing.T) {
	bad := errors.New("the cable was pulled")
	data := archive(t, zipfile.Options{}, sampleFiles()...)
	_, err := zipfile.Open(t.Context(), broken{bytes.NewReader(data), 0, bad}, int64(len(data)), zipfile.Limits{})
	if !errors.Is(err, bad) || refused(err) {
		t.Errorf("Open: got error %v, want %v", err, bad)
	}
	r := &broken{bytes.NewReader(data), 1 << 62, bad}
	z, err := zipfile.Open(t.Context(), r, int64(len(data)), zipfile.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range z.Entries() {
		if err != nil {
			t.Fatal(err)
		}
		if e.Size < 1<<20 {
			continue
		}
		r.from = e.Offset + e.CompressedSize/2
		c, err := z.OpenEntry(e)
		if err == nil {
			_, err = io.Copy(io.Discard, c)
			c.Close()
		}
		r.from = 1 << 62
		if !errors.Is(err, bad) || refused(err) {
			t.Errorf("%s: got error %v, want %v", e.Name, err, bad)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := zipfile.Open(ctx, bytes.NewReader(data), int64(len(data)), zipfile.Limits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Open with a cancelled context: got %v", err)
	}
}

// A reader of exactly the entry's size also gets the error of a bad end.
func TestBadEndIsHeldBack(t *testing.T) {
	for _, method := range []uint16{zipfile.Stored, zipfile.Deflated} {
		f := two()
		f.parts = []*part{newPart("x", method, text(1000))}
		f.parts[0].both(func(h *header) { h.crc++ })
		z, err := open(f.bytes(), zipfile.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for e := range z.Entries() {
			c, err := z.OpenEntry(e)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.ReadFull(c, make([]byte, e.Size))
			if err == nil || int64(n) == e.Size || !refused(err) {
				t.Errorf("method %d: got %d bytes and error %v, want fewer and a FormatError", method, n, err)
			}
			if _, again := c.Read(make([]byte, 1)); again != err {
				t.Errorf("method %d: got %v from the next Read, want the same error", method, again)
			}
			c.Close()
		}
	}
}

func TestReadAfterClose(t *testing.T) {
	z, err := open(two().bytes(), zipfile.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for e := range z.Entries() {
		c, err := z.OpenEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		c.Close()
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
			t.Errorf("%s: got %d bytes, error %v", e.Name, n, err)
		}
	}
}

// Any pattern of reads yields the same.
func TestSmallReads(t *testing.T) {
	content := append(text(70_000), noise(1000)...)
	z, err := open(archive(t, zipfile.Options{}, file{name: "x", content: content}), zipfile.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for e := range z.Entries() {
		c, err := z.OpenEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := iotest.TestReader(c, content); err != nil {
			t.Error(err)
		}
		c.Close()
	}
}

func TestConcurrentReads(t *testing.T) {
	files := sampleFiles()
	data := archive(t, zipfile.Options{}, files...)
	z, err := open(data, zipfile.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			i := 0
			for e, err := range z.Entries() {
				if err != nil {
					t.Error(err)
					return
				}
				c, err := z.OpenEntry(e)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(c)
				c.Close()
				if err != nil || !bytes.Equal(got, files[i].content) {
					t.Errorf("%s: got %d bytes, error %v", e.Name, len(got), err)
				}
				i++
			}
		})
	}
	wg.Wait()
}

func BenchmarkReader(b *testing.B) {
	data := archive(b, zipfile.Options{}, file{name: "x", content: text(16 << 20)})
	z, err := open(data, zipfile.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(16 << 20)
	b.ReportAllocs()
	for b.Loop() {
		for e := range z.Entries() {
			c, err := z.OpenEntry(e)
			if err == nil {
				_, err = io.Copy(io.Discard, c)
			}
			if err != nil {
				b.Fatal(err)
			}
			c.Close()
		}
	}
}
