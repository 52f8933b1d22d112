package zipfile_test

import (
	"archive/zip"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/format/zipfile"
)

var update = flag.Bool("update", false, "write the corpus of the fuzz target")

// soundArchives are valid archives from different writers.
func soundArchives(t testing.TB) map[string][]byte {
	var std bytes.Buffer
	w := zip.NewWriter(&std)
	for _, name := range []string{"folder/", "folder/file"} {
		to, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "folder/file" {
			to.Write(text(100))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	wide := two()
	wide.end64 = true
	return map[string][]byte{
		"by hand":               two().bytes(),
		"by hand, zip64":        wide.bytes(),
		"by the library of Go":  std.Bytes(),
		"by us":                 archive(t, zipfile.Options{}, file{name: "a/b", content: text(99)}, file{name: "c", content: noise(9)}),
		"by us, blocks":         archive(t, zipfile.Options{}, file{name: "zeros", content: make([]byte, 2*zipfile.BlockSize+1), unknown: true}),
		"by us, without a file": archive(t, zipfile.Options{}),
	}
}

// committed are the hostile cases whose bytes are in the repository, in addition to the valid archives.
var committed = []string{
	"cut in the directory", "two ends", "an end within a comment", "something before", "more entries declared", "many entries declared",
	"zip64 end elsewhere", "two counts", "size of exabytes", "offset of exabytes", "two zip64", "local zip64 lies", "up", "symlink", "duplicate",
	"same place", "within another", "descriptor overlaps", "content in the directory", "bomb that says so", "bomb that does not", "fewer bytes",
	"compressed data cut off", "something behind compressed data", "directory with content",
}

// The committed corpus must equal the one that the code makes. "go test -update" writes it.
func TestCorpus(t *testing.T) {
	dir := filepath.Join("testdata", "fuzz", "FuzzReader")
	want := soundArchives(t)
	for _, c := range hostileCases() {
		for _, name := range committed {
			if c.name == name {
				want[name] = c.data
			}
		}
	}
	if len(want) != len(committed)+len(soundArchives(t)) {
		t.Errorf("got %d archives; a name in the list is of no case", len(want))
	}
	for name, data := range want {
		path := filepath.Join(dir, strings.NewReplacer(" ", "-", ",", "").Replace(name))
		text := fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", data)
		if *update {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("%s is not what the code makes (error %v): run go test -update", path, err)
		}
	}
}

// FuzzReader reads any bytes. The Reader must not panic or yield more than an entry declares, every error must describe
// a fault of the archive, and the standard library must read the same from an accepted archive.
func FuzzReader(f *testing.F) {
	for _, c := range hostileCases() {
		f.Add(c.data)
	}
	f.Fuzz(checkAny)
}

// FuzzPatched changes single bytes of a valid archive, so that the rest stays valid: data has three bytes for each
// change, the place and the value.
func FuzzPatched(f *testing.F) {
	wide := two()
	wide.end64 = true
	wide.parts = append(wide.parts, newPart("dir/", zipfile.Stored, nil), newPart("c", zipfile.Deflated, text(50)))
	wide.parts[2].attributes = 0o040755 << 16
	p := wide.parts[1]
	p.both(func(h *header) {
		h.size, h.compressed, h.extra = 1<<32-1, 1<<32-1, zip64(uint64(h.size), uint64(h.compressed))
	})
	p.both(func(h *header) { h.extra = append(h.extra, 0x55, 0x54, 2, 0, 1, 2) })
	q := wide.parts[3]
	q.both(func(h *header) { h.flags |= 8 })
	q.local.size, q.local.compressed, q.local.crc = 0, 0, 0
	q.data = append(q.data, make([]byte, 16)...)
	whole := wide.bytes()
	if _, err := readAll(whole, zipfile.Limits{}); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{})
	for i := range whole {
		f.Add([]byte{byte(i >> 8), byte(i), whole[i] + 1})
		f.Add([]byte{byte(i >> 8), byte(i), 0xff})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		patched := bytes.Clone(whole)
		for ; len(data) >= 3; data = data[3:] {
			patched[(int(data[0])<<8|int(data[1]))%len(patched)] = data[2]
		}
		checkAny(t, patched)
	})
}

// checkAny reads bytes that may be no archive.
func checkAny(t *testing.T, data []byte) {
	limits := zipfile.Limits{Entries: 1000, EntrySize: 4 << 20, TotalSize: 8 << 20, MayRepeat: func(name string) bool { return name < "b" }}
	z, err := open(data, limits)
	if err != nil {
		if !refused(err) {
			t.Fatalf("got error %v (%T), want a FormatError or a LimitError", err, err)
		}
		return
	}
	std, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err == nil && int64(len(std.File)) != z.Len() {
		t.Fatalf("got %d entries, archive/zip has %d", z.Len(), len(std.File))
	}
	i := 0
	var total int64
	for e, err := range z.Entries() {
		if err != nil {
			t.Fatalf("after Open: %v", err)
		}
		var other *zip.File
		if std != nil { // it may refuse more, but must not read it differently
			other = std.File[i]
		}
		compareEntry(t, z, e, other)
		i++
		total += e.Size
	}
	if int64(i) != z.Len() || total > limits.TotalSize {
		t.Fatalf("got %d of %d entries with %d bytes", i, z.Len(), total)
	}
}

func compareEntry(t *testing.T, z *zipfile.Reader, e zipfile.Entry, std *zip.File) {
	t.Helper()
	if err := zipfile.CheckName(e.Name); err != nil {
		t.Fatal(err)
	}
	c, err := z.OpenEntry(e)
	if err != nil {
		t.Fatalf("%s: %v, after Open found no fault", e.Name, err)
	}
	defer c.Close()
	var content bytes.Buffer
	_, err = content.ReadFrom(c)
	if int64(content.Len()) > e.Size {
		t.Fatalf("%s: got %d bytes of %d", e.Name, content.Len(), e.Size)
	}
	if err != nil {
		if !refused(err) {
			t.Fatalf("%s: got error %v, want a FormatError", e.Name, err)
		}
		return
	}
	if int64(content.Len()) != e.Size {
		t.Fatalf("%s: got %d bytes of %d, and no error", e.Name, content.Len(), e.Size)
	}
	if std == nil {
		return
	}
	if e.Name != std.Name {
		t.Fatalf("got name %q, archive/zip has %q", e.Name, std.Name)
	}
	r, err := std.Open()
	if err != nil {
		return
	}
	if want, err := io.ReadAll(r); err == nil && !bytes.Equal(want, content.Bytes()) {
		t.Fatalf("%s: got %d bytes, archive/zip has %d others", e.Name, content.Len(), len(want))
	}
}

// FuzzRoundTrip writes any entries and reads them back.
func FuzzRoundTrip(f *testing.F) {
	f.Add("a", "b/c", []byte("content"), uint16(1), uint8(1))
	f.Add("a", "ü", text(1000), uint16(1500), uint8(3))
	f.Add("a", "b", noise(100_000), uint16(20), uint8(8))
	f.Fuzz(func(t *testing.T, name1, name2 string, content []byte, times uint16, workers uint8) {
		const most = 4 << 20
		long := bytes.Repeat(content, min(int(times), most/max(len(content), 1)))
		want := []file{{name: name1, content: content}, {name: name2, content: long}}
		for _, f := range want {
			if zipfile.CheckName(f.name) != nil || strings.HasSuffix(f.name, "/") {
				t.Skip("not a name")
			}
		}
		var all [2][]byte
		for i, workers := range []int{1, 1 + int(workers%8)} {
			out := &memory{}
			w := zipfile.NewWriter(context.Background(), out, &memory{}, zipfile.Options{Workers: workers})
			for _, f := range want {
				if err := f.add(w); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			all[i] = out.data
		}
		if !bytes.Equal(all[0], all[1]) {
			t.Error("the number of workers shows in the bytes")
		}
		got, err := readAll(all[0], zipfile.Limits{MayRepeat: func(string) bool { return true }})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, got, want)
	})
}
