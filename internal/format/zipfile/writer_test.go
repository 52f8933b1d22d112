package zipfile_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"e3/internal/format/zipfile"
	"e3/internal/testing/suite"
)

func TestRoundTrip(t *testing.T) {
	files := sampleFiles()
	data := archive(t, zipfile.Options{}, files...)
	got, err := readAll(data, zipfile.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, files)
}

func TestStandardLibraryReadsIt(t *testing.T) {
	files := sampleFiles()
	data := archive(t, zipfile.Options{}, files...)
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var got []file
	for _, f := range z.File {
		if f.Mode() != 0o644 || f.Modified.Year() != 1980 || f.Flags != 0x800 {
			t.Errorf("%s: got mode %v, time %v, flags %#x", f.Name, f.Mode(), f.Modified, f.Flags)
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		got = append(got, file{name: f.Name, content: content})
	}
	compare(t, got, files)
}

// Other programs can read the archives, including zip64 for many entries or an unknown size.
func TestProgramsReadIt(t *testing.T) {
	suite.WithoutRace(t)
	files := sampleFiles()
	var many []file
	for i := range 1<<16 + 3 {
		many = append(many, file{name: fmt.Sprintf("%05x", i), content: []byte("x")})
	}
	some := onDisk(t, archive(t, zipfile.Options{}, files...))
	wide := onDisk(t, archive(t, zipfile.Options{}, many...))
	for _, tt := range []struct{ program, install, script string }{
		{"unzip", "unzip", `unzip -tqq "$1"`},
		{"zip", "zip", `zip -q -T "$1"`},
		{"python3", "python3", `python3 -c 'import sys, zipfile; sys.exit(zipfile.ZipFile(sys.argv[1]).testzip())' "$1"`},
		{"bsdtar", "libarchive-tools", `bsdtar -tf "$1" >/dev/null`},
	} {
		t.Run(tt.program, func(t *testing.T) {
			if _, err := exec.LookPath(tt.program); err != nil {
				t.Skipf("%s is missing: install %s", tt.program, tt.install)
			}
			for _, path := range []string{some, wide} {
				if out, err := exec.Command("sh", "-c", tt.script, "sh", path).CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%.2000s", filepath.Base(path), err, out)
				}
			}
		})
	}
}

func TestBytesDoNotDependOnWorkers(t *testing.T) {
	files := sampleFiles()
	want := archive(t, zipfile.Options{Workers: 1}, files...)
	for workers := 2; workers <= 8; workers++ {
		if raceEnabled && workers%3 != 2 {
			continue // the property shows with few entries too
		}
		if got := archive(t, zipfile.Options{Workers: workers}, files...); !bytes.Equal(got, want) {
			t.Errorf("with %d workers: other bytes (%d, with one worker %d)", workers, len(got), len(want))
		}
	}
}

// This test detects changes of the bytes by this package or the deflate library, because exports of one state by one
// version of e3 must be the same everywhere.
func TestBytesAreKnown(t *testing.T) {
	got := fmt.Sprintf("%x", sha256.Sum256(archive(t, zipfile.Options{}, sampleFiles()...)))
	const want = "97522988cae3f2ccb65335bff059dbf47e14526b638f44701f06d3379dfe5a69"
	if got != want {
		t.Errorf("got  %s\nwant %s: if that is intended, all exports have other bytes from now on", got, want)
	}
}

// Output does not depend on earlier blocks, even when the compressor's position wraps around after 2 GiB.
func TestCompressorsForget(t *testing.T) {
	large := noise(4 << 20) // fast to compress
	contents := [][]byte{text(20_000), large}
	var want [][]byte
	for _, content := range contents {
		fresh, err := new(zipfile.Compressor).Deflate(nil, content)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, fresh)
	}
	var old zipfile.Compressor
	var got []byte
	for i := range 2 * (2<<30/len(large) + 20) {
		var err error
		if got, err = old.Deflate(got[:0], contents[i%2]); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want[i%2]) {
			t.Fatalf("after %d pieces: got other bytes than from a fresh compressor", i)
		}
	}
}

func TestCompressedContentIsStored(t *testing.T) {
	z, err := open(archive(t, zipfile.Options{}, sampleFiles()...), zipfile.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range z.Entries() {
		if err != nil {
			t.Fatal(err)
		}
		noisy := strings.HasPrefix(e.Name, "noise/") || strings.HasSuffix(e.Name, "/noise") || e.Name == "text at the end"
		small := e.Size < 200
		if stored := e.Method == zipfile.Stored; stored != noisy && !small {
			t.Errorf("%s: got method %d", e.Name, e.Method)
		}
		if e.CompressedSize > e.Size {
			t.Errorf("%s: got %d bytes from %d", e.Name, e.CompressedSize, e.Size)
		}
	}
}

func TestSmallerThanFastZip(t *testing.T) {
	if _, err := exec.LookPath("zip"); err != nil {
		t.Skip("zip is missing: install zip")
	}
	content := text(8 << 20)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "text"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("zip", "-q", "-1", "-r", "x.zip", "text")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("zip: %v\n%s", err, out)
	}
	theirs, err := os.Stat(filepath.Join(dir, "x.zip"))
	if err != nil {
		t.Fatal(err)
	}
	ours := archive(t, zipfile.Options{}, file{name: "text", content: content})
	if float64(len(ours)) > 1.1*float64(theirs.Size()) {
		t.Errorf("got %d bytes, zip -1 makes %d", len(ours), theirs.Size())
	}
}

// failing is a reader that ends in errors.
type failing struct {
	io.Reader
	closing error
	closed  *bool
}

func (f failing) Close() error {
	*f.closed = true
	return f.closing
}

func TestErrorsOfReaders(t *testing.T) {
	bad := errors.New("the disk is on fire")
	const block = zipfile.BlockSize
	for _, tt := range []struct {
		name    string
		size    int64
		reader  io.Reader
		opening error
		closing error
		want    error
	}{
		{"open", 5, nil, bad, nil, bad},
		{"open, many blocks", 5 * block, nil, bad, nil, bad},
		{"read", 5, iotest.ErrReader(bad), nil, nil, bad},
		{"read, many blocks", 5 * block, io.MultiReader(bytes.NewReader(text(3*block)), iotest.ErrReader(bad)), nil, nil, bad},
		{"close", 5, strings.NewReader("12345"), nil, bad, bad},
		{"close, many blocks", 2 * block, bytes.NewReader(text(2 * block)), nil, bad, bad},
		{"shorter", 5, strings.NewReader("1234"), nil, nil, zipfile.ErrSize},
		{"longer", 5, strings.NewReader("123456"), nil, nil, zipfile.ErrSize},
		{"shorter, many blocks", 3 * block, bytes.NewReader(text(3*block - 1)), nil, nil, zipfile.ErrSize},
		{"longer, many blocks", 3 * block, bytes.NewReader(text(3*block + 1)), nil, nil, zipfile.ErrSize},
		{"longer than a block", block, bytes.NewReader(text(block + 1)), nil, nil, zipfile.ErrSize},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // which fails if a goroutine is left
				w := zipfile.NewWriter(context.Background(), &memory{}, &memory{}, zipfile.Options{Workers: 2})
				closed := tt.opening != nil
				err := w.Add("the entry", tt.size, func() (io.ReadCloser, error) {
					if tt.opening != nil {
						return nil, tt.opening
					}
					return failing{tt.reader, tt.closing, &closed}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				for i := range 1000 { // more entries, so that the queue is full at the error
					if err := w.AddBytes(fmt.Sprint(i), text(1000*(i%7))); err != nil {
						break
					}
				}
				err = w.Close()
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), `"the entry"`) {
					t.Errorf("got error %v, want %v, with the entry's name", err, tt.want)
				}
				if again := w.Add("more", 0, nil); again != err {
					t.Errorf("got %v from the next call, want the same error", again)
				}
				if !closed {
					t.Error("the reader was not closed")
				}
			})
		})
	}
}

// full is a writer that fails, like a full disk.
type full struct{ err error }

func (f full) WriteAt([]byte, int64) (int, error) { return 0, f.err }
func (f full) Write([]byte) (int, error)          { return 0, f.err }
func (f full) ReadAt([]byte, int64) (int, error)  { return 0, f.err }

func TestErrorsOfFiles(t *testing.T) {
	bad := errors.New("no space")
	for _, tt := range []struct {
		name  string
		out   io.WriterAt
		spool zipfile.Spool
	}{
		{"archive", full{bad}, &memory{}},
		{"spool", &memory{}, full{bad}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := zipfile.NewWriter(context.Background(), tt.out, tt.spool, zipfile.Options{})
				for _, f := range sampleFiles() {
					if err := f.add(w); err != nil {
						break
					}
				}
				if err := w.Close(); !errors.Is(err, bad) {
					t.Errorf("got error %v, want %v", err, bad)
				}
			})
		})
	}
}

func TestRefusedEntries(t *testing.T) {
	for _, name := range []string{"", "/a", "a/../b", "a//b", "C:a", "a\\b", "a\x00", "\xff", "folder/", strings.Repeat("a", 513)} {
		w := zipfile.NewWriter(context.Background(), &memory{}, &memory{}, zipfile.Options{})
		if err := w.AddBytes(name, nil); err == nil {
			t.Errorf("name %q: got no error", name)
		}
		if err := w.Close(); err == nil {
			t.Errorf("name %q: Close gave no error", name)
		}
	}
}

func TestCancel(t *testing.T) {
	for _, size := range []int64{-1, 10, 10 * zipfile.BlockSize} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			w := zipfile.NewWriter(ctx, &memory{}, &memory{}, zipfile.Options{Workers: 2})
			pr, pw := io.Pipe()
			err := w.Add("a", size, func() (io.ReadCloser, error) { return pr, nil })
			if err != nil {
				t.Fatal(err)
			}
			why := errors.New("the user had enough")
			go func() {
				time.Sleep(time.Second) // bubble time: until all goroutines wait
				cancel(why)
				pw.Close()
			}()
			if err := w.Flush(); err != why {
				t.Errorf("Flush: got %v, want %v", err, why)
			}
			if err := w.Close(); err != why {
				t.Errorf("Close: got %v, want %v", err, why)
			}
		})
	}
}

func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := zipfile.NewWriter(t.Context(), &memory{}, &memory{}, zipfile.Options{})
		for _, f := range sampleFiles() {
			if err := f.add(w); err != nil {
				t.Fatal(err)
			}
		}
		w.Abort()
		w.Abort()
		if err := w.Close(); err == nil {
			t.Error("Close after Abort: got no error")
		}
	})
}

// After Flush, all added entries have been read, so their hashes can be used in the next entry.
func TestFlush(t *testing.T) {
	out, spool := &memory{}, &memory{}
	w := zipfile.NewWriter(t.Context(), out, spool, zipfile.Options{})
	defer w.Abort()
	hashes := sha256.New()
	content := text(3 * zipfile.BlockSize)
	err := w.Add("a", int64(len(content)), func() (io.ReadCloser, error) {
		return io.NopCloser(io.TeeReader(bytes.NewReader(content), hashes)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	sum := hashes.Sum(nil)
	if want := sha256.Sum256(content); !bytes.Equal(sum, want[:]) {
		t.Errorf("got hash %x, want %x", sum, want)
	}
	if err := w.AddBytes("signature", sum); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := readAll(out.data, zipfile.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, []file{{name: "a", content: content}, {name: "signature", content: sum}})
}

func TestEmptyArchive(t *testing.T) {
	data := archive(t, zipfile.Options{})
	got, err := readAll(data, zipfile.Limits{})
	if err != nil || len(got) != 0 || len(data) != 22 {
		t.Errorf("got %d bytes, %d entries, error %v; want 22, 0, nil", len(data), len(got), err)
	}
}

// sink discards an archive.
type sink struct{}

func (sink) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

func BenchmarkWriter(b *testing.B) {
	for _, bb := range []struct {
		name    string
		content []byte
	}{
		{"tiny", text(100)}, {"4KiB", text(4 << 10)}, {"64KiB", text(64 << 10)}, {"16MiB", text(16 << 20)}, {"noise16MiB", noise(16 << 20)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(bb.content)))
			b.ReportAllocs()
			w := zipfile.NewWriter(b.Context(), sink{}, &memory{}, zipfile.Options{})
			for b.Loop() {
				if err := w.AddBytes("objects/00/name", bb.content); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
