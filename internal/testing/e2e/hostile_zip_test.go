//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events/eventstest"
	"e3/internal/format/beast2"
	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/testing/suite"
	"e3/objectstore/tree"
)

// Bounds of an import of a hostile zip.
const (
	importMemory = 256 << 20 // bytes
	importTime   = 50 * time.Second
)

// A forge writes a zip as it goes, and its directory to a file of its own, in little memory. Nothing stops it from
// writing what is wrong.
type forge struct {
	t         testing.TB
	path      string
	out       *bufio.Writer
	directory *bufio.Writer
	files     [2]*os.File // of out and directory
	at        int64
	entries   int
	name      string // of the package that it holds
	deflate   *flate.Writer
}

func newForge(t testing.TB, path string) *forge {
	t.Helper()
	z := &forge{t: t, path: path, name: strings.TrimSuffix(filepath.Base(path), ".zip")}
	var err error
	if z.files[0], err = os.Create(path); err == nil {
		z.files[1], err = os.CreateTemp(t.TempDir(), "directory-*")
	}
	z.out, z.directory = bufio.NewWriterSize(z.files[0], 1<<20), bufio.NewWriterSize(z.files[1], 1<<20)
	if err == nil {
		z.deflate, err = flate.NewWriter(nil, flate.BestSpeed)
	}
	z.must(err)
	return z
}

func (z *forge) must(err error) {
	z.t.Helper()
	if err != nil {
		z.t.Fatal(err)
	}
}

var le = binary.LittleEndian

// header is what the header of an entry has in common with its place in the directory.
func header(b []byte, name string, flags, method uint16, crc uint32, compressed, size uint32) []byte {
	b = le.AppendUint16(le.AppendUint16(b, flags), method)
	b = le.AppendUint32(b, 0x21<<16)
	b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, crc), compressed), size)
	return le.AppendUint16(le.AppendUint16(b, uint16(len(name))), 0)
}

// enter writes an entry whose data are there already, or behind it if they are nil, and says so in the directory.
func (z *forge) enter(name string, method uint16, crc, compressed, size uint32, attributes uint32, data []byte) {
	z.t.Helper()
	b := header([]byte("PK\x03\x04\x14\x00"), name, 0, method, crc, compressed, size)
	b = append(append(b, name...), data...)
	_, err := z.out.Write(b)
	z.must(err)
	z.list(name, 0, method, crc, compressed, size, attributes)
	z.at += int64(len(b))
}

func (z *forge) list(name string, flags, method uint16, crc, compressed, size uint32, attributes uint32) {
	z.t.Helper()
	b := header([]byte("PK\x01\x02\x14\x03\x14\x00"), name, flags, method, crc, compressed, size)
	b = append(b, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint32(le.AppendUint32(b, attributes), uint32(z.at))
	_, err := z.directory.Write(append(b, name...))
	z.must(err)
	z.entries++
}

const regularFile = 0o100644 << 16

// add writes an entry as it is.
func (z *forge) add(name, content string) {
	z.t.Helper()
	z.enter(name, 0, crc32.ChecksumIEEE([]byte(content)), uint32(len(content)), uint32(len(content)), regularFile, []byte(content))
}

// counter counts and sums what goes through.
type counter struct {
	w   io.Writer
	n   int64
	crc uint32
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	c.crc = crc32.Update(c.crc, crc32.IEEETable, p)
	return c.w.Write(p)
}

// stream writes a large entry, deflated.
func (z *forge) stream(name string, write func(io.Writer) error) {
	z.t.Helper()
	_, err := z.out.Write(append(header([]byte("PK\x03\x04\x14\x00"), name, 8, 8, 0, 0, 0), name...))
	z.must(err)
	packed := &counter{w: z.out}
	z.deflate.Reset(packed)
	plain := &counter{w: z.deflate}
	z.must(write(plain))
	z.must(z.deflate.Close())
	descriptor := le.AppendUint32([]byte("PK\x07\x08"), plain.crc)
	descriptor = le.AppendUint32(le.AppendUint32(descriptor, uint32(packed.n)), uint32(plain.n))
	_, err = z.out.Write(descriptor)
	z.must(err)
	z.list(name, 8, 8, plain.crc, uint32(packed.n), uint32(plain.n), regularFile)
	z.at += int64(30+len(name)+len(descriptor)) + packed.n
}

// object writes an object and returns its name. Its content is made twice: for its name, and to be written.
func (z *forge) object(write func(io.Writer) error) string {
	z.t.Helper()
	h := sha256.New()
	z.must(write(h))
	name := hex.EncodeToString(h.Sum(nil))
	z.stream("objects/"+name[:2]+"/"+name[2:], write)
	return name
}

// bytes is object for a short one.
func (z *forge) bytes(content []byte) string {
	z.t.Helper()
	name := hashOf(string(content))
	z.add("objects/"+name[:2]+"/"+name[2:], string(content))
	return name
}

// pkg registers a package object.
func (z *forge) pkg(object string) { z.add("packages/"+z.name+"/1", object+"\n") }

// holding registers a package that has something as the default of an input.
func (z *forge) holding(kind record.LeafKind, hash string) {
	z.pkg(z.bytes((&record.Package{Name: "evil", Version: "1", Inputs: []record.PackageInput{
		{Name: "a", Source: record.FromDir, Location: "a", Default: record.Leaf{Kind: kind, Hash: hash}},
	}}).Encode()))
}

// empty registers a package without anything in it.
func (z *forge) empty() { z.pkg(z.bytes((&record.Package{Name: "evil", Version: "1"}).Encode())) }

// close writes the directory and its end, and returns the size of all.
func (z *forge) close() int64 {
	z.t.Helper()
	z.must(z.directory.Flush())
	_, err := z.files[1].Seek(0, io.SeekStart)
	z.must(err)
	size, err := io.Copy(z.out, z.files[1])
	z.must(err)
	b := le.AppendUint64([]byte("PK\x06\x06"), 44)
	b = append(b, 45, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint64(le.AppendUint64(b, uint64(z.entries)), uint64(z.entries))
	b = le.AppendUint64(le.AppendUint64(b, uint64(size)), uint64(z.at))
	b = le.AppendUint64(append(b, "PK\x06\x07\x00\x00\x00\x00"...), uint64(z.at+size))
	b = append(b, 1, 0, 0, 0)
	b = append(b, "PK\x05\x06\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00"...)
	_, err = z.out.Write(b)
	z.must(err)
	z.must(z.out.Flush())
	z.must(z.files[0].Close())
	z.must(z.files[1].Close())
	return z.at + size + int64(len(b))
}

// listOf is a header, a number, so many pieces and an end.
func listOf(head []byte, n int, piece func(b []byte, i int) []byte, end ...byte) func(io.Writer) error {
	return func(w io.Writer) error {
		b := beast2.AppendVarint(beast2.AppendInline(bytes.Clone(head)), uint64(n))
		for i := range n {
			if b = piece(b, i); len(b) > 1<<16 {
				if _, err := w.Write(b); err != nil {
					return err
				}
				b = b[:0]
			}
		}
		_, err := w.Write(append(b, end...))
		return err
	}
}

// same is a piece that is always the same.
func same(piece ...byte) func([]byte, int) []byte {
	return func(b []byte, _ int) []byte { return append(b, piece...) }
}

// named is a piece that begins with a short name; the names are in order.
func named(piece ...byte) func([]byte, int) []byte {
	const base, first = 70, '0'
	return func(b []byte, i int) []byte {
		b = append(b, 4, byte(i/(base*base*base)%base+first), byte(i/(base*base)%base+first), byte(i/base%base+first), byte(i%base+first))
		return append(b, piece...)
	}
}

func zeros(n int64) func(io.Writer) error {
	return func(w io.Writer) error {
		zero := make([]byte, 64<<10)
		for left := n; left > 0; left -= int64(len(zero)) {
			if _, err := w.Write(zero[:min(left, int64(len(zero)))]); err != nil {
				return err
			}
		}
		return nil
	}
}

// idOf is one of many ids.
func idOf(i int) string { return fmt.Sprintf("01a1fb7b-91d6-7b50-a8fb-%012x", i) }

// smallTask is a task object, and smallPackage a package with such a task.
func smallTask() []byte {
	return (&record.Task{Shell: "true", Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "o", Kind: record.KindFile}}}}).Encode()
}

func smallPackage(task string) []byte {
	return (&record.Package{Name: "evil", Version: "1", Tasks: []record.PackageTask{{Name: "abcd", Task: task, Output: record.KindFile}}}).Encode()
}

// beforeLists is a package object up to its inputs.
func beforeLists() []byte {
	whole := (&record.Package{Name: "evil", Version: "1"}).Encode()
	return whole[:len(whole)-4-len(afterTasks)]
}

// afterTasks ends a package object whose file writes out all items.
var afterTasks = []byte{0, 0, 0, 0, 0}

// failure is the record of an execution that has failed, on nothing.
func failure(id string) string {
	s := record.Status{State: record.Failed, ExecutionID: id, ExitCode: 3, StartedAt: time.UnixMilli(1), CompletedAt: time.UnixMilli(2)}
	return string(s.Encode())
}

// folder is that of an execution.
func folder(task, id string) string {
	return "executions/" + task + "/" + executions.InputsHash(nil).String() + "/" + id + "/"
}

// million is how many entries make a bomb. E3_E2E_ENTRIES changes it.
func million(t testing.TB) int {
	text := os.Getenv("E3_E2E_ENTRIES")
	switch {
	case text != "":
	case testing.Short():
		return 100_000
	default:
		return 1_000_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("E3_E2E_ENTRIES: %v", err)
	}
	return n
}

// bombs are zips that are much larger inside than outside, or that have very many of something.
var bombs = []struct {
	name string
	make func(z *forge)
	code int
	want string // in what it says
}{
	// 64 MB in a package object.
	{"zeros", func(z *forge) { z.pkg(z.object(listOf(beforeLists(), 11_150_000, same(0, 0, 0, 0, 0, 0)))) }, 12, "bytes of memory"},
	{"inputs", func(z *forge) {
		z.pkg(z.object(listOf(beforeLists(), 6_600_000, named(0, 0, 0, 0, byte(record.LeafUnassigned)), 0, 0)))
	}, 12, "bytes of memory"},
	{"tasks", func(z *forge) {
		one := smallPackage(z.bytes(smallTask()))
		i := bytes.Index(one, []byte("abcd"))
		z.pkg(z.object(listOf(one[:i-3], 800_000, named(one[i+4:len(one)-len(afterTasks)]...), afterTasks...)))
	}, 12, "bytes of memory"},
	{"few-tasks", func(z *forge) {
		one := smallPackage(z.bytes(smallTask()))
		i := bytes.Index(one, []byte("abcd"))
		z.pkg(z.object(listOf(one[:i-3], 150_000, named(one[i+4:len(one)-len(afterTasks)]...), afterTasks...)))
	}, 0, ""},
	{"wires", func(z *forge) {
		one := smallPackage(z.bytes(smallTask()))
		z.pkg(z.object(listOf(one[:len(one)-3-len(afterTasks)], 20<<20, same(byte(record.WireInput), 0, 0), 0)))
	}, 12, "bytes of memory"},
	{"fan-in", func(z *forge) {
		one := smallPackage(z.bytes(smallTask()))
		z.pkg(z.object(listOf(append(one[:len(one)-3-len(afterTasks)], 0, 1, 0), 15<<20, same(0, 0, 0, 0), 0)))
	}, 12, "bytes of memory"},
	{"labels", func(z *forge) {
		pkg := (&record.Package{Name: "evil", Version: "1", Tasks: []record.PackageTask{{
			Name: "abcd", Task: z.bytes(smallTask()), Output: record.KindFile, Policy: record.Policy{Labels: []string{"wxyz"}}}}}).Encode()
		i := bytes.Index(pkg, []byte("wxyz"))
		z.pkg(z.object(listOf(pkg[:i-3], 60<<20, same(0), pkg[i+4:]...)))
	}, 12, "bytes of memory"},

	// 64 MB in other objects that are read.
	{"names", func(z *forge) {
		head := record.Node{}.Encode()
		z.holding(record.LeafNode, z.object(listOf(head[:len(head)-2], 11_000_000, named(byte(record.LeafUnassigned)))))
	}, 0, ""},
	{"links", func(z *forge) {
		head, err := tree.Encode(nil)
		z.must(err)
		z.holding(record.LeafDir, z.object(listOf(head[:len(head)-2], 8_300_000, named(byte(tree.KindLink), 1, 'x'))))
	}, 0, ""},
	{"more-links", func(z *forge) {
		head, err := tree.Encode(nil)
		z.must(err)
		z.holding(record.LeafDir, z.object(listOf(head[:len(head)-2], 10_000_000, named(byte(tree.KindLink), 1, 'x'))))
	}, 12, "larger than 67108864"},
	{"links-up", func(z *forge) {
		head, err := tree.Encode(nil)
		z.must(err)
		z.holding(record.LeafDir, z.object(listOf(head[:len(head)-2], 500_000, named(byte(tree.KindLink), 4, '.', '/', '.', '.'))))
	}, 12, "outside the directory"},
	{"more-links-up", func(z *forge) {
		head, err := tree.Encode(nil)
		z.must(err)
		z.holding(record.LeafDir, z.object(listOf(head[:len(head)-2], 5_000_000, named(byte(tree.KindLink), 4, '.', '/', '.', '.'))))
	}, 12, "has more than 524288 links"},
	{"files", func(z *forge) {
		head, err := tree.Encode(nil)
		z.must(err)
		piece := append(append([]byte{byte(tree.KindFile), 64}, z.bytes([]byte("x"))...), 2, 0)
		z.holding(record.LeafDir, z.object(listOf(head[:len(head)-2], 900_000, named(piece...))))
	}, 0, ""},
	{"zero-links", func(z *forge) {
		head, err := tree.Encode(nil)
		z.must(err)
		z.holding(record.LeafDir, z.object(listOf(head[:len(head)-2], 12<<20, same(0, 0, 0, 0, 0))))
	}, 12, "directory object"},
	{"task-inputs", func(z *forge) {
		whole := smallTask()
		i := bytes.Index(whole, []byte("true")) + 4 + 2 // behind the constants
		z.pkg(z.bytes(smallPackage(z.object(listOf(whole[:i], 5<<20, same(0, 0, 0), whole[i+2:]...)))))
	}, 12, "parts of a task"},
	{"task-arguments", func(z *forge) {
		whole := (&record.Task{Argv: []string{"true"}, Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "o", Kind: record.KindFile}}}}).Encode()
		i := bytes.Index(whole, []byte("true"))
		z.pkg(z.bytes(smallPackage(z.object(listOf(whole[:i-3], 15<<20, same(0), whole[i+4:]...)))))
	}, 12, "parts of a task"},
	{"reference-tree", func(z *forge) {
		// Children of the type of the first, with nothing assigned.
		const n = 6_000_000
		z.holding(record.LeafNode, z.object(func(w io.Writer) error {
			types := []byte("\x10\x00\x04\x04null\x0a\x04tree\x0e\x0aunassigned\x0a\x05value\x0e")
			children := named()
			first := 0
			off := 0
			err := listOf([]byte(beast2.Magic+"\x0f"), n, func(b []byte, i int) []byte {
				before := len(b)
				b = children(b, i)
				if i == 0 {
					first = off + len(b) - before + 2
					b = append(b, types...)
				} else {
					b = append(b, 16)
					at := off + len(b) - before
					b = beast2.AppendVarint(b, uint64(at-first))
				}
				off += len(b) - before
				return b
			})(w)
			if err != nil {
				return err
			}
			_, err = w.Write(bytes.Repeat([]byte{2}, n))
			return err
		}))
	}, 12, ""},

	// Records.
	{"run", func(z *forge) {
		const tasks = 760_000
		run := record.Run{RunID: idOf(0), WorkspaceName: "w", PackageRef: "evil@1", StartedAt: time.UnixMilli(1), CompletedAt: time.UnixMilli(2), State: record.RunCompleted}
		begin := len(run.Encode()) - 5 // of the summary: five numbers, which are all zero
		run.Summary = record.Summary{Total: tasks, Completed: tasks}
		whole := run.Encode()
		piece := append(append([]byte{36}, idOf(1)...), 0)
		z.stream("dataflows/w/"+idOf(0)+".beast2", listOf(whole[:begin-2], tasks, named(piece...), whole[begin:]...))
		z.empty()
	}, 0, ""},
	{"run-of-zeros", func(z *forge) {
		whole := (&record.Run{RunID: idOf(0), WorkspaceName: "w", PackageRef: "evil@1", StartedAt: time.UnixMilli(1), State: record.RunRunning}).Encode()
		z.stream("dataflows/w/"+idOf(0)+".beast2", listOf(whole[:len(whole)-7], 11_000_000, same(0, 0, 0), whole[len(whole)-5:]...))
		z.empty()
	}, 12, "is not a UUIDv7"},
	{"ids", func(z *forge) {
		z.empty()
		whole := (&record.Export{By: "x", Repository: "y", Version: "z", Earlier: []record.ExportGroup{{Executions: []string{idOf(0)}}}}).Encode()
		i := bytes.Index(whole, []byte(idOf(0)))
		z.stream("provenance.beast2", listOf(whole[:i-3], 1_800_000, func(b []byte, i int) []byte { return append(append(b, 36), idOf(i)...) }, whole[i+36:]...))
	}, 0, ""},
	{"groups", func(z *forge) {
		z.empty()
		whole := (&record.Export{By: "x", Repository: "y", Version: "z"}).Encode()
		z.stream("provenance.beast2", listOf(whole[:len(whole)-2], 11_000_000, same(0, 0, 0, 0, 0, 0)))
	}, 12, "groups are more than"},
	{"steps", func(z *forge) {
		z.empty()
		whole := (&record.Export{By: "x", Repository: "y", Version: "z"}).Encode()
		step := []byte{0, 0, 0, 0, 0, 0, 0}
		group := append(binary.AppendUvarint([]byte{0}, 1000), bytes.Repeat(step, 1000)...)
		z.stream("provenance.beast2", listOf(whole[:len(whole)-2], 9000, same(append(group, 0, 0, 0, 0)...)))
	}, 12, "steps"},
	{"events", func(z *forge) {
		z.empty()
		run := &record.Run{RunID: idOf(0), WorkspaceName: "w", PackageRef: "evil@1", StartedAt: time.UnixMilli(1), CompletedAt: time.UnixMilli(2), State: record.RunCompleted}
		z.add("dataflows/w/"+idOf(0)+".beast2", string(run.Encode()))
		pad := strings.Repeat(" ", 1_000_000)
		z.stream("events/w/"+idOf(0)+".ndjson", func(w io.Writer) error {
			for seq := 1; seq <= 300; seq++ {
				line := fmt.Sprintf(`{"seq":%d,"time":"2026-01-02T03:04:05.000Z","run":%q,"workspace":"w","type":"x"%s}`+"\n", seq, idOf(0), pad)
				if _, err := io.WriteString(w, eventstest.Summed(line)); err != nil {
					return err
				}
			}
			_, err := io.WriteString(w, "{}\n")
			return err
		})
	}, 12, "line 301"},
	{"status", func(z *forge) {
		z.empty()
		whole := (&record.Status{State: record.Failed, ExecutionID: idOf(0), StartedAt: time.UnixMilli(1), CompletedAt: time.UnixMilli(2)}).Encode()
		i := bytes.Index(whole, []byte(idOf(0))) + 36
		for n := range 50 {
			z.stream(folder(strings.Repeat("0", 64), idOf(n))+"status.beast2", listOf(whole[:i], 4_000_000, same(0), whole[i+2:]...))
		}
	}, 12, "input 1: hash"},

	// Content.
	{"sound-object", func(z *forge) { z.holding(record.LeafFile, z.object(zeros(256<<20))) }, 0, ""},
	{"object", func(z *forge) { z.empty(); z.stream("objects/00/"+strings.Repeat("0", 62), zeros(256<<20)) }, 12, "is corrupt"},
	{"log", func(z *forge) {
		z.empty()
		z.add(folder(strings.Repeat("0", 64), idOf(0))+"status.beast2", failure(idOf(0)))
		z.stream(folder(strings.Repeat("0", 64), idOf(0))+"stdout.txt", zeros(256<<20))
	}, 12, "not found"},

	// Very many entries.
	{"unknown", func(z *forge) {
		for i := range million(z.t) {
			z.add("f/"+strconv.Itoa(i), "")
		}
		z.empty()
	}, 0, "more notes like these"},
	{"long-names", func(z *forge) {
		pad := strings.Repeat("x", 500)
		for i := range million(z.t) / 5 {
			z.add(pad+strconv.Itoa(i), "")
		}
		z.empty()
	}, 0, "more notes like these"},
	{"signed", func(z *forge) {
		for i := range million(z.t) / 5 {
			z.add("f/"+strconv.Itoa(i), "")
		}
		z.empty()
		key, err := signature.Generate("Eve")
		z.must(err)
		z.add(signature.EntryName, string(key.Sign([32]byte{}).Encode()))
	}, 12, "the content is not what was signed"},
	{"no-package", func(z *forge) {
		for i := range million(z.t) / 5 {
			z.add("f/"+strconv.Itoa(i), "")
		}
	}, 12, "it holds no package"},
	{"objects-twice", func(z *forge) {
		for i := range million(z.t) / 5 {
			name := hashOf(strconv.Itoa(i))
			name = "objects/" + name[:2] + "/" + name[2:]
			z.add(name, "")
			z.add(name, "")
		}
		z.empty()
	}, 12, "is corrupt"},
	{"executions", func(z *forge) {
		z.empty()
		for i := range million(z.t) {
			z.add(folder(strings.Repeat("0", 64), idOf(i))+"status.beast2", failure(idOf(i)))
		}
		z.add(folder(strings.Repeat("1", 64), idOf(0))+"status.beast2", failure(idOf(1)))
	}, 12, "it is the record of execution"},
	{"running", func(z *forge) {
		z.empty()
		for i := range million(z.t) / 10 {
			s := record.Status{State: record.Running, ExecutionID: idOf(i), StartedAt: time.UnixMilli(1)}
			z.add(folder(strings.Repeat("0", 64), idOf(i))+"status.beast2", string(s.Encode()))
		}
	}, 0, "more notes like these"},
	{"tasks-of-executions", func(z *forge) {
		z.empty()
		for i := range million(z.t) / 10 {
			task := hashOf(strconv.Itoa(i))
			z.add(folder(task, idOf(i))+"status.beast2", failure(idOf(i)))
		}
	}, 12, "not found"},
	{"folders", func(z *forge) {
		z.empty()
		for i := range million(z.t) / 5 {
			z.enter("f/"+strconv.Itoa(i)+"/", 0, 0, 0, 0, 0o040755<<16|0x10, nil)
		}
	}, 0, ""},
	{"one-name", func(z *forge) {
		for range million(z.t) / 5 {
			z.add("f", "")
		}
		z.empty()
	}, 12, "more than one entry of this name"},
}

const hostileZipProject = `
e3: 1
name: own
version: 1.0.0
inputs: {t: {file: t.txt}, d: {dir: data}}
tasks:
  a: {in: [t, d], out: o, run: 'cat "$t" "$d"/x; cp "$t" "$out"'}
  b: {in: [a], out: p/, run: 'cp "$a" "$out"/made; ln -s made "$out"/link'}
`

// zipVictim is a project with a repository that has something to lose.
func zipVictim(t testing.TB) *project {
	p := newProject(t, map[string]string{"e3.yaml": hostileZipProject, "t.txt": "text\n", "data/x": "x\n"})
	p.must("start", "-f", "e3.yaml")
	return p
}

// visible is what a repository holds, but for objects: some may be left that nothing refers to.
func (p *project) visible() map[string]string {
	p.t.Helper()
	all := contents(p.t, p.repository())
	for name := range all {
		if strings.HasPrefix(name, "objects"+string(filepath.Separator)) {
			delete(all, name)
		}
	}
	return all
}

// importEvil imports a zip and demands what must be so of each: a refusal changes nothing, an import leaves what
// verify finds nothing to say about, and neither takes much memory or time, or writes to a terminal what is more than
// text.
func (p *project) importEvil(t *testing.T, code int, want string, args ...string) {
	t.Helper()
	before := p.visible()
	began := time.Now()
	x := p.spawn(args...)
	peak := peakMemory(x) // rusage counts what this process had when it forked
	r := x.wait()
	took := time.Since(began)
	t.Logf("exit code %d after %v with %d MB: %.300s", r.code, took.Round(time.Millisecond), peak>>20, r.stderr)
	if r.code != code || !strings.Contains(r.stderr, want) {
		t.Errorf("exit code %d, want %d and to read %q\n%s", r.code, code, want, r.text())
	}
	harmless(t, r.stdout)
	harmless(t, r.stderr)
	if n := len(r.stdout) + len(r.stderr); n > 16<<10 {
		t.Errorf("it wrote %d bytes to the terminal", n)
	}
	if !raceBuild && (peak > importMemory || took > importTime) {
		t.Errorf("it took %v and %d MB", took, peak>>20)
	}
	if r.code == 0 {
		if v := p.e3("verify", "."); v.code != 0 {
			t.Errorf("it was taken in, and verify says\n%s", v.text())
		}
	} else if diff := difference(p.visible(), before); diff != "" {
		t.Errorf("it was refused, and yet\n  %s", diff)
	}
}

// TestZipBombs imports zips that are small, or no larger than an ordinary zip, and that would fill the memory of
// a program that believes them.
func TestZipBombs(t *testing.T) {
	suite.Thorough(t)
	if raceBuild {
		t.Skip("run it without -race: it looks at memory and time")
	}
	t.Parallel()
	victim := zipVictim(t)
	for _, b := range bombs {
		t.Run(b.name, func(t *testing.T) {
			p := victim
			if b.code == 0 { // what is taken in stays, and verify would go over it for each that follows
				p = zipVictim(t)
			}
			z := newForge(t, p.path(b.name+".zip"))
			b.make(z)
			size := z.close()
			defer os.Remove(z.path)
			t.Logf("%d KB", size>>10)
			p.importEvil(t, b.code, b.want, "package", "import", ".", b.name+".zip")
		})
	}
}
