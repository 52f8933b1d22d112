package exportimport_test

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/exportimport"
	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/settings"
	"e3/internal/verify"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/workspace"
)

// A target is a repository that hostile zips are imported into. It has a workspace of its own, so that there is something
// to damage.
type target struct {
	t      testing.TB // the test that fails
	home   testing.TB // the test that made the target
	user   bool       // it was used before
	root   string     // a folder that holds the repository and files beside it
	s      *site
	before map[string]string
	beside map[string]string
}

func newTarget(t testing.TB) *target {
	t.Helper()
	g := &target{t: t, home: t, user: true}
	g.renew()
	t.Cleanup(g.remove)
	return g
}

// cleanTarget makes an empty repository with a constant clock, so that the results of two imports can be compared.
func cleanTarget(t testing.TB) *target {
	t.Helper()
	g := &target{t: t, home: t}
	g.renew()
	t.Cleanup(g.remove)
	return g
}

func (g *target) remove() {
	g.s.close()
	if err := os.RemoveAll(g.root); err != nil {
		g.home.Errorf("%v", err)
	}
}

// in makes a subtest fail instead of the whole test, until the subtest ends.
func (g *target) in(t *testing.T) {
	g.t, g.s.t = t, t
	t.Cleanup(func() { g.t, g.s.t = g.home, g.home })
}

// renew begins with a fresh repository.
func (g *target) renew() {
	g.t.Helper()
	if g.s != nil {
		g.remove()
	}
	g.root = quickDir(g.home)
	dir := filepath.Join(g.root, "one", "two")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		g.t.Fatal(err)
	}
	g.s = openSite(g.t, dir, "bob@beta")
	if g.user {
		g.s.write("own.txt", "own")
		g.s.deploy("own", "e3: 1\nname: own\nversion: 1.0.0\ninputs: {t: {file: own.txt}}\ntasks: {a: {in: {t: t}, out: o, run: \"say own\\ncat $o. $t.\"}}\n")
		g.s.start("own")
	} else {
		g.s.now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	}
	g.before, g.beside = g.s.state(), g.outside()
}

// state returns every file of a repository with its content, except objects, locks and this machine's caches.
func (s *site) state() map[string]string {
	s.t.Helper()
	all := map[string]string{}
	for _, name := range s.visible() {
		data, err := os.ReadFile(filepath.Join(s.repo.Root, name))
		s.must(err)
		all[name] = string(data)
	}
	return all
}

// outside returns every file near the repository that is not in it.
func (g *target) outside() map[string]string {
	g.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(g.root, func(path string, d fs.DirEntry, err error) error {
		if path == g.s.repo.Root {
			return fs.SkipDir
		}
		if err == nil {
			all[path] = d.Type().String()
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] += string(data)
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return all
}

// try imports bytes and checks the rules of every import: a refused one has changed nothing visible and gives a reason,
// an accepted one leaves a repository without faults, and neither changes any other file.
func (g *target) try(data []byte, o exportimport.ImportOptions) (*exportimport.Imported, error) {
	g.t.Helper()
	res, err := g.read(bytes.NewReader(data), int64(len(data)), o)
	if err == nil {
		return res, nil
	}
	if after := g.s.state(); !maps.Equal(g.before, after) {
		g.t.Errorf("refused (%v), and yet the repository has changed: %s", err, changes(g.before, after))
		g.renew()
	}
	if !told(err) {
		g.t.Errorf("refused, but not as a fault of the zip: %v (%T)", err, err)
	}
	return nil, err
}

// read is try for a zip that may change: after a refusal it only checks that the repository has no faults.
func (g *target) read(zip io.ReaderAt, size int64, o exportimport.ImportOptions) (*exportimport.Imported, error) {
	g.t.Helper()
	if o.File == "" {
		o.File = "hostile.zip"
	}
	res, err := g.s.results.Import(g.s.ctx, zip, size, o)
	if near := g.outside(); !maps.Equal(g.beside, near) {
		g.t.Errorf("outside of the repository there is another state: %s", changes(g.beside, near))
	}
	if err != nil {
		if text := err.Error(); len(text) > 3000 || strings.ContainsAny(text, "\x00\x1b\r") { // the program prints no other characters
			g.t.Errorf("the error has %d bytes, or means harm to a terminal: %.300q", len(text), text)
		}
		return nil, err
	}
	if !o.DryRun {
		g.whole()
	}
	return res, nil
}

// whole fails the test if the repository has a fault.
func (g *target) whole() {
	g.t.Helper()
	r := g.s.repo
	report, err := verify.Verify(g.s.ctx, verify.Stores{Records: r.Records, Objects: r.Objects, Curator: g.s.results.Curator, Jobs: r.Queue(), Workspaces: r.Workspaces, Now: g.s.results.Now}, verify.Options{})
	if err != nil {
		g.t.Errorf("verify: %v", err)
		return
	}
	for _, f := range report.Faults {
		g.t.Errorf("the repository is not whole: %s: %s: %s (for %q)", f.Kind, f.Where, f.Problem, f.For)
	}
}

// told reports whether an error blames the zip or its signature, or a conflict with the repository.
func told(err error) bool {
	var conflict *exportimport.ConflictError
	var name *exportimport.NameError
	for _, known := range []error{exportimport.ErrIntegrity, signature.ErrBadSignature, settings.ErrUnsigned, settings.ErrUntrusted, workspace.ErrExists} {
		if errors.Is(err, known) {
			return true
		}
	}
	return errors.As(err, &conflict) || errors.As(err, &name)
}

// changes describes the differences between two states.
func changes(before, after map[string]string) string {
	var list []string
	for name, text := range after {
		if was, ok := before[name]; !ok {
			list = append(list, name+" is new")
		} else if was != text {
			list = append(list, name+" is another")
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			list = append(list, name+" is gone")
		}
	}
	slices.Sort(list)
	if len(list) > 10 {
		list = append(list[:10], fmt.Sprintf("and %d more", len(list)-10))
	}
	return strings.Join(list, ", ")
}

// zipped writes files to a zip.
func zipped(t testing.TB, files []file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	quick(w)
	for _, f := range files {
		e, err := w.Create(f.name)
		if err == nil {
			_, err = io.WriteString(e, f.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// quick has an archive deflate with one compressor of the quickest kind: with the race detector, a new one for each
// entry took most of the time.
func quick(w *zip.Writer) {
	var one *flate.Writer
	w.RegisterCompressor(zip.Deflate, func(out io.Writer) (_ io.WriteCloser, err error) {
		if one == nil {
			one, err = flate.NewWriter(out, flate.HuffmanOnly)
		} else {
			one.Reset(out)
		}
		return one, err
	})
}

// A bundle is a decomposed export. References to its parts by hash are updated when it is composed again.
type bundle struct {
	t       testing.TB
	objects map[objectstore.Hash]string
	execs   []*exec
	run     *record.Run
	events  string
	pkg     *record.Package
	state   *record.WorkspaceState
	inputs  record.Node
	tasks   record.Node
	export  *record.Export
	extra   []file

	// Replacements for encoded parts, and changes after the encoding.
	pkgObject string
	root      string
	patches   []func([]file) []file
}

// exec is an execution of a bundle. Its key follows from the task and the inputs.
type exec struct {
	task           objectstore.Hash
	status         record.Status
	detail         string
	stdout, stderr string
}

// unbundle decomposes the files of an export.
func unbundle(t testing.TB, files []file) *bundle {
	t.Helper()
	b := &bundle{t: t, objects: map[objectstore.Hash]string{}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	at := map[string]*exec{}
	for _, f := range files {
		parts := strings.Split(f.name, "/")
		switch parts[0] {
		case "objects":
			b.objects[objectstore.Sum([]byte(f.content))] = f.content
		case "executions":
			e := at[parts[3]]
			if e == nil {
				e = &exec{}
				e.task, err = objectstore.ParseHash(parts[1])
				must(err)
				at[parts[3]] = e
				b.execs = append(b.execs, e)
			}
			switch parts[4] {
			case "status.beast2":
				s, err := record.DecodeStatus([]byte(f.content))
				must(err)
				e.status = *s
			case "detail.beast2":
				e.detail = f.content
			case "stdout.txt":
				e.stdout = f.content
			case "stderr.txt":
				e.stderr = f.content
			}
		case "dataflows":
			b.run, err = record.DecodeRun([]byte(f.content))
		case "events":
			b.events = f.content
		case "workspaces":
			b.state, err = record.DecodeWorkspaceState([]byte(f.content))
		case "provenance.beast2":
			b.export, err = record.DecodeExport([]byte(f.content))
		}
		must(err)
	}
	object := func(hash string) []byte {
		h, err := objectstore.ParseHash(hash)
		must(err)
		return []byte(b.objects[h])
	}
	b.pkg, err = record.DecodePackage(object(b.state.PackageHash))
	must(err)
	root, err := record.DecodeNode(object(b.state.RootHash))
	must(err)
	for name, to := range map[string]*record.Node{"inputs": &b.inputs, "tasks": &b.tasks} {
		leaf, _ := root.Get(name)
		*to, err = record.DecodeNode(object(leaf.Hash))
		must(err)
	}
	return b
}

// put adds an object.
func (b *bundle) put(data []byte) objectstore.Hash {
	h := objectstore.Sum(data)
	b.objects[h] = string(data)
	return h
}

// tree adds a directory object without checks.
func (b *bundle) tree(entries ...tree.Entry) objectstore.Hash {
	b.t.Helper()
	data, err := tree.Encode(entries)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.put(data)
}

// byName is the execution whose output a task has.
func (b *bundle) byName(task string) *exec {
	b.t.Helper()
	leaf, _ := b.tasks.Get(task)
	for _, e := range b.execs {
		if e.status.OutputHash == leaf.Hash {
			return e
		}
	}
	b.t.Fatalf("no execution of %s in the sample", task)
	return nil
}

// output makes an object the output of a task, in every record that names it.
func (b *bundle) output(task string, h objectstore.Hash) {
	b.t.Helper()
	b.byName(task).status.OutputHash = h.String()
	leaf, _ := b.tasks.Get(task)
	leaf.Hash = h.String()
	b.tasks = b.tasks.Set(task, leaf)
}

// files composes the export.
func (b *bundle) files() []file {
	b.t.Helper()
	pkg := b.pkg.Encode()
	if b.pkgObject != "" {
		pkg = []byte(b.pkgObject)
	}
	b.state.PackageHash = b.put(pkg).String()
	if b.root == "" {
		node := func(n record.Node) record.Leaf {
			return record.Leaf{Kind: record.LeafNode, Hash: b.put(n.Encode()).String()}
		}
		root := record.Node{{Name: "inputs", Leaf: node(b.inputs)}, {Name: "tasks", Leaf: node(b.tasks)}}
		b.state.RootHash = b.put(root.Encode()).String()
	} else {
		b.state.RootHash = b.put([]byte(b.root)).String()
	}
	var list []file
	for _, h := range slices.SortedFunc(maps.Keys(b.objects), objectstore.Hash.Compare) {
		text := h.String()
		list = append(list, file{"objects/" + text[:2] + "/" + text[2:], b.objects[h]})
	}
	for _, e := range b.execs {
		inputs := make([]objectstore.Hash, len(e.status.InputHashes))
		for i, text := range e.status.InputHashes {
			var err error
			if inputs[i], err = objectstore.ParseHash(text); err != nil {
				b.t.Fatal(err)
			}
		}
		prefix := "executions/" + executions.NewKey(e.task, inputs).String() + "/" + e.status.ExecutionID + "/"
		add := func(name, text string) {
			if text != "" {
				list = append(list, file{prefix + name, text})
			}
		}
		add("detail.beast2", e.detail)
		if e.status.State == record.Success {
			add("output", e.status.OutputHash+"\n")
		}
		add("status.beast2", string(e.status.Encode()))
		add("stderr.txt", e.stderr)
		add("stdout.txt", e.stdout)
	}
	if b.run != nil {
		list = append(list, file{"dataflows/" + b.run.WorkspaceName + "/" + b.run.RunID + ".beast2", string(b.run.Encode())})
		if b.events != "" {
			list = append(list, file{"events/" + b.run.WorkspaceName + "/" + b.run.RunID + ".ndjson", b.events})
		}
	}
	list = append(list, file{"packages/" + b.state.PackageName + "/" + b.state.PackageVersion, b.state.PackageHash + "\n"},
		file{"workspaces/prod.beast2", string(b.state.Encode())},
		file{"provenance.beast2", string(b.export.Encode())})
	return append(list, b.extra...)
}

var le = binary.LittleEndian

// A zipPart is an entry of a hand-made zip, with every field that can be forged.
type zipPart struct {
	name        string // in the directory
	localName   string // in its header
	method      uint16
	localMethod uint16
	flags       uint16 // in both
	crc         uint32
	size        uint32
	compressed  uint32
	localSize   uint32
	data        []byte // compressed
	extra       []byte // in the directory
	attributes  uint32
	descriptor  bool
	offset      func(offsets []uint32) uint32 // nil: the real offset
}

// rawPart makes a correct deflated entry.
func rawPart(f file) *zipPart {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, 9)
	if err == nil {
		_, err = io.WriteString(w, f.content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // writes to a buffer cannot fail
	}
	return storedPart(f.name, 8, b.Bytes(), []byte(f.content))
}

func storedPart(name string, method uint16, data, content []byte) *zipPart {
	return &zipPart{name: name, localName: name, method: method, localMethod: method, crc: crc32.ChecksumIEEE(content), size: uint32(len(content)),
		compressed: uint32(len(data)), localSize: uint32(len(content)), data: data, attributes: 0o100644 << 16}
}

// rawZip is a hand-made zip.
type rawZip struct {
	parts []*zipPart
	end   func(end []byte, offset, size uint32) []byte // changes the end record
}

func rawZipOf(files []file) *rawZip {
	z := &rawZip{}
	for _, f := range files {
		z.parts = append(z.parts, rawPart(f))
	}
	return z
}

// part is the first entry whose name has a prefix and a suffix.
func (z *rawZip) part(t testing.TB, prefix, suffix string) *zipPart {
	t.Helper()
	for _, p := range z.parts {
		if strings.HasPrefix(p.name, prefix) && strings.HasSuffix(p.name, suffix) {
			return p
		}
	}
	t.Fatalf("no %s…%s in the sample", prefix, suffix)
	return nil
}

func (z *rawZip) bytes() []byte {
	var b []byte
	var offsets []uint32
	common := func(flags, method uint16, crc, compressed, size uint32, name string, extra []byte) {
		b = le.AppendUint16(b, flags)
		b = le.AppendUint16(b, method)
		b = le.AppendUint32(b, 0x21<<16)
		b = le.AppendUint32(b, crc)
		b = le.AppendUint32(b, compressed)
		b = le.AppendUint32(b, size)
		b = le.AppendUint16(b, uint16(len(name)))
		b = le.AppendUint16(b, uint16(len(extra)))
	}
	for _, p := range z.parts {
		offsets = append(offsets, uint32(len(b)))
		b = append(b, "PK\x03\x04\x14\x00"...)
		flags := p.flags
		if p.descriptor {
			flags |= 8
			common(flags, p.localMethod, 0, 0, 0, p.localName, nil)
		} else {
			common(flags, p.localMethod, p.crc, p.compressed, p.localSize, p.localName, nil)
		}
		b = append(append(b, p.localName...), p.data...)
		if p.descriptor {
			b = append(b, "PK\x07\x08"...)
			b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, p.crc), p.compressed), p.size)
		}
	}
	start := uint32(len(b))
	for i, p := range z.parts {
		b = append(b, "PK\x01\x02\x14\x03\x14\x00"...)
		flags := p.flags
		if p.descriptor {
			flags |= 8
		}
		common(flags, p.method, p.crc, p.compressed, p.size, p.name, p.extra)
		b = le.AppendUint16(b, 0) // comment
		b = le.AppendUint32(b, 0) // disk, internal attributes
		b = le.AppendUint32(b, p.attributes)
		at := offsets[i]
		if p.offset != nil {
			at = p.offset(offsets)
		}
		b = le.AppendUint32(b, at)
		b = append(append(b, p.name...), p.extra...)
	}
	size := uint32(len(b)) - start
	end := append([]byte("PK\x05\x06"), 0, 0, 0, 0)
	end = le.AppendUint16(le.AppendUint16(end, uint16(len(z.parts))), uint16(len(z.parts)))
	end = le.AppendUint16(le.AppendUint32(le.AppendUint32(end, size), start), 0)
	if z.end != nil {
		end = z.end(end, start, size)
	}
	return append(b, end...)
}

// sampleFiles are the files of an export.
func sampleFiles(t testing.TB, o exportimport.ExportOptions) []file {
	t.Helper()
	s := openSite(t, t.TempDir(), "ann@alpha")
	defer s.close()
	s.pipeline("prod")
	s.start("prod")
	path, _ := s.export("prod", o)
	return unpack(t, path)
}

// patch changes the files after they were composed.
func (b *bundle) patch(change func([]file) []file) { b.patches = append(b.patches, change) }

// raw makes a change while the entries keep the names that they had without it.
func (b *bundle) raw(change func()) {
	b.t.Helper()
	names := func(files []file) (list []string) {
		for _, f := range files {
			if !strings.HasPrefix(f.name, "objects/") {
				list = append(list, f.name)
			}
		}
		return list
	}
	before := names(b.files())
	change()
	b.patch(func(files []file) []file {
		first := len(files) - len(before)
		for i, name := range before {
			files[first+i].name = name
		}
		return files
	})
}

// swap replaces text in the entries whose name has a prefix and in their names; old "" is all of the content.
func (b *bundle) swap(prefix, old, with string) {
	b.patch(func(files []file) []file {
		for i := range files {
			switch f := &files[i]; {
			case !strings.HasPrefix(f.name, prefix):
			case old == "":
				f.content = with
			default:
				f.name, f.content = strings.ReplaceAll(f.name, old, with), strings.ReplaceAll(f.content, old, with)
			}
		}
		return files
	})
}

// executed makes the run name another execution for a task.
func (b *bundle) executed(task, id string) {
	var list []record.TaskExecution
	for e := range b.run.Tasks.All() {
		if e.Task == task {
			e.ExecutionID = id
		}
		list = append(list, e)
	}
	b.run.Tasks = record.NewRunTasks(slices.Values(list))
}

// manyEntries is a count that exceeds any memory.
const manyEntries = "\x00\xff\xff\xff\xff\xff\xff\xff\x7f"

// treeHeader begins a directory object, nodeHeader a node.
func treeHeader() string {
	data, err := tree.Encode(nil)
	if err != nil {
		panic(err) // an empty directory is valid
	}
	return string(data[:len(data)-2])
}

func nodeHeader() string {
	data := record.Node{}.Encode()
	return string(data[:len(data)-2])
}

// packageHeader begins the object of a package, up to its inputs.
func packageHeader(p *record.Package) string {
	data := string((&record.Package{Name: p.Name, Version: p.Version, Description: p.Description}).Encode())
	return data[:len(data)-4]
}

// rawTree adds a directory object of files with any names in any order.
func (b *bundle) rawTree(names ...string) objectstore.Hash {
	b.t.Helper()
	data, err := tree.Encode(tree.Entries{{Name: "p", Kind: tree.KindFile, Hash: b.put([]byte("evil")), Size: 4}})
	if err != nil {
		b.t.Fatal(err)
	}
	rest := data[len(treeHeader())+4:] // of the entry, behind its name
	data = binary.AppendUvarint(append([]byte(treeHeader()), 0), uint64(len(names)))
	for _, name := range names {
		data = append(append(binary.AppendUvarint(data, uint64(len(name))), name...), rest...)
	}
	return b.put(data)
}

// rawLink adds a directory object with any link.
func (b *bundle) rawLink(to string) objectstore.Hash {
	b.t.Helper()
	placeholder := strings.Repeat("x", len(to))
	data, err := tree.Encode(tree.Entries{{Name: "l", Kind: tree.KindLink, Target: placeholder}})
	if err != nil {
		b.t.Fatal(err)
	}
	return b.put(bytes.Replace(data, []byte(placeholder), []byte(to), 1))
}

// packed is the zip.
func (b *bundle) packed() []byte {
	b.t.Helper()
	files := b.files()
	for _, change := range b.patches {
		files = change(files)
	}
	return zipped(b.t, files)
}
