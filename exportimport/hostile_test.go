package exportimport_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"e3/exportimport"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// otherID is an id that nothing has.
const otherID = "01a1fb7b-91d6-7b50-a8fb-f5f218c62fbe"

// Names that lead, or may lead, out of the target folder.
var hostileNames = map[string]struct{ name, want string }{
	"up":                       {"../evil", `has the segment ".."`},
	"far up":                   {strings.Repeat("../", 40) + "tmp/evil", `has the segment ".."`},
	"up from within":           {"objects/../../evil", `has the segment ".."`},
	"up in an execution":       {"executions/../../../../evil/status.beast2", `has the segment ".."`},
	"up as a workspace":        {"workspaces/..", `has the segment ".."`},
	"up as a package":          {"packages/../evil", `has the segment ".."`},
	"dot":                      {"./evil", `has the segment "."`},
	"absolute":                 {"/evil", "its name is absolute"},
	"two slashes":              {"//evil/evil", "its name is absolute"},
	"empty segment":            {"packages//evil", "empty segment"},
	"backslash":                {`..\evil`, "backslash"},
	"backslash within":         {`packages\evil\1`, "backslash"},
	"UNC":                      {`\\host\evil`, "backslash"},
	"drive":                    {"C:evil", "drive letter"},
	"drive with a root":        {"c:/evil", "drive letter"},
	"NUL":                      {"packages/evil\x00/1", "NUL"},
	"not UTF-8":                {"packages/evil\xff/1", "not UTF-8"},
	"overlong slash":           {"packages/..\xc0\xafevil/1", "not UTF-8"},
	"surrogate":                {"packages/\xed\xa0\x80/1", "not UTF-8"},
	"long":                     {"packages/" + strings.Repeat("e", 512), "at most 512 are allowed"},
	"longest":                  {strings.Repeat("e", 65535), "at most 512 are allowed"},
	"empty":                    {"", "it has no name"},
	"encoded":                  {"packages/%2e%2e%2fevil/1", `"%2e%2e%2fevil" cannot be the name of a package`},
	"encoded version":          {"packages/evil/..%2f1", `cannot be the name of a version`},
	"hidden package":           {"packages/.evil/1", `cannot be the name of a package`},
	"option as a version":      {"packages/evil/-rf", `cannot be the name of a version`},
	"escape sequence":          {"packages/\x1b[31m/1", `cannot be the name of a package`},
	"line break":               {"workspaces/a\nb.beast2", `cannot be the name of a workspace`},
	"right to left":            {"workspaces/a\u202eb.beast2", `cannot be the name of a workspace`},
	"workspace without a name": {"workspaces/.beast2", `cannot be the name of a workspace`},
	"home":                     {"workspaces/~evil.beast2", `cannot be the name of a workspace`},
	"spaces":                   {"workspaces/ .beast2", `cannot be the name of a workspace`},
	"long workspace":           {"workspaces/" + strings.Repeat("e", 129) + ".beast2", `cannot be the name of a workspace`},
	"run is no id":             {"dataflows/prod/..evil.beast2", `run: "..evil" is not a UUIDv7`},
	"run of another version":   {"dataflows/prod/01a1fb7b-91d6-4b50-a8fb-f5f218c62fbe.beast2", "is not a UUIDv7"},
	"run in capitals":          {"dataflows/prod/01A1FB7B-91D6-7B50-A8FB-F5F218C62FBE.beast2", "is not a UUIDv7"},
	"run in brackets":          {"dataflows/prod/{" + otherID + "}.beast2", "is not a UUIDv7"},
	"run of the future":        {"dataflows/prod/0fa1fb7b-91d6-7b50-a8fb-f5f218c62fbe.beast2", "more than a day is refused"},
	"events of the future":     {"events/prod/0fa1fb7b-91d6-7b50-a8fb-f5f218c62fbe.ndjson", "more than a day is refused"},
	"execution of the future":  {"executions/" + strings.Repeat("a", 64) + "/" + strings.Repeat("b", 64) + "/0fa1fb7b-91d6-7b50-a8fb-f5f218c62fbe/status.beast2", "more than a day is refused"},
	"run of nowhere":           {"dataflows/.evil/" + otherID + ".beast2", "cannot be the name of a workspace"},
	"events are no id":         {"events/prod/evil.ndjson", `run: "evil" is not a UUIDv7`},
	"task is no hash":          {"executions/evil/" + strings.Repeat("0", 64) + "/" + otherID + "/status.beast2", "not a task hash"},
	"task in capitals":         {"executions/" + strings.Repeat("A", 64) + "/" + strings.Repeat("0", 64) + "/" + otherID + "/status.beast2", "not a task hash"},
	"execution is no id":       {"executions/" + strings.Repeat("0", 64) + "/" + strings.Repeat("0", 64) + "/..evil/status.beast2", `execution: "..evil" is not a UUIDv7`},
	"object is no hash":        {"objects/ev/il", "not the name of an object"},
	"object in capitals":       {"objects/AB/" + strings.Repeat("0", 62), "not the name of an object"},
	"object cut elsewhere":     {"objects/abc/" + strings.Repeat("0", 61), "not the name of an object"},
	"object with two suffixes": {"objects/ab/" + strings.Repeat("0", 62) + ".beast2.beast2", "not the name of an object"},
}

func TestHostileNames(t *testing.T) {
	suite.WithoutRace(t)
	good := sampleFiles(t, exportimport.ExportOptions{})
	g := newTarget(t)
	for what, c := range hostileNames {
		t.Run(what, func(t *testing.T) {
			g.in(t)
			for _, at := range []int{0, len(good)} {
				_, err := g.try(rawZipOf(slices.Insert(slices.Clone(good), at, file{c.name, "evil"})).bytes(), exportimport.ImportOptions{NewWorkspace: true})
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("as entry %d: got %v, want %q", at, err, c.want)
				}
			}
		})
	}
}

// hostileContainers are zips with faults of the format. The tests of internal/format/zipfile have more; these show that
// an import refuses them.
var hostileContainers = map[string]struct {
	change func(t *testing.T, z *rawZip)
	want   string
}{
	"symlink": {func(t *testing.T, z *rawZip) { z.part(t, "packages/", "").attributes = 0o120777 << 16 }, "link or a special file"},
	"device":  {func(t *testing.T, z *rawZip) { z.part(t, "objects/", "").attributes = 0o020666 << 16 }, "link or a special file"},
	"pipe":    {func(t *testing.T, z *rawZip) { z.part(t, "executions/", "stdout.txt").attributes = 0o010666 << 16 }, "link or a special file"},
	"directory with a file's name": {func(t *testing.T, z *rawZip) { z.part(t, "packages/", "").attributes = 0o040755<<16 | 0x10 },
		"marked as a directory"},
	"encrypted":      {func(t *testing.T, z *rawZip) { z.part(t, "dataflows/", "").flags = 1 }, "it is encrypted"},
	"unknown method": {func(t *testing.T, z *rawZip) { p := z.part(t, "dataflows/", ""); p.method, p.localMethod = 99, 99 }, "method 99"},
	"two methods":    {func(t *testing.T, z *rawZip) { z.part(t, "objects/", "").localMethod = 0 }, "its header has method 0"},
	"two names":      {func(t *testing.T, z *rawZip) { z.part(t, "packages/", "").localName = "packages/evil/1.0.00" }, "another name"},
	"two sizes":      {func(t *testing.T, z *rawZip) { z.part(t, "packages/", "").localSize++ }, "its header says"},
	"wrong checksum of a record": {func(t *testing.T, z *rawZip) { z.part(t, "executions/", "status.beast2").crc++ },
		"its CRC is"},
	"wrong checksum of an object": {func(t *testing.T, z *rawZip) { z.part(t, "objects/", "").crc++ }, "its CRC is"},
	"wrong checksum of a log":     {func(t *testing.T, z *rawZip) { z.part(t, "executions/", "stdout.txt").crc++ }, "its CRC is"},
	"log that ends early": {func(t *testing.T, z *rawZip) {
		p := z.part(t, "executions/", "stdout.txt")
		p.size, p.localSize = p.size+1, p.localSize+1
	}, "it ends 1 bytes before"},
	"log that goes on": {func(t *testing.T, z *rawZip) {
		p := z.part(t, "executions/", "stdout.txt")
		p.size, p.localSize = p.size-1, p.localSize-1
	}, "more than the declared"},
	"damaged log": {func(t *testing.T, z *rawZip) {
		p := z.part(t, "executions/", "stdout.txt")
		p.data = bytes.Repeat([]byte{0xff}, len(p.data))
	}, "damaged"},
	"damaged events": {func(t *testing.T, z *rawZip) {
		p := z.part(t, "events/", "")
		p.data = bytes.Repeat([]byte{0xff}, len(p.data))
	}, "damaged"},
	"small bomb that says less": {func(t *testing.T, z *rawZip) {
		p := rawPart(file{"future/bomb", strings.Repeat("\x00", 1<<20)})
		z.parts = append(z.parts, p)
		q := z.part(t, "executions/", "detail.beast2")
		q.data, q.compressed = p.data, p.compressed
	}, "more than the declared"},
	"bomb that says more than can be": {func(t *testing.T, z *rawZip) {
		p := z.part(t, "objects/", "")
		p.size, p.localSize = 1<<31, 1<<31
	}, "cannot become so many"},
	"large record": {func(t *testing.T, z *rawZip) {
		*z.part(t, "executions/", "status.beast2") = *rawPart(file{z.part(t, "executions/", "status.beast2").name, strings.Repeat("\x00", 5<<20)})
	}, "such an entry has at most 4194304"},
	"large reference": {func(t *testing.T, z *rawZip) {
		*z.part(t, "packages/", "") = *rawPart(file{z.part(t, "packages/", "").name, strings.Repeat("\x00", 2<<20)})
	}, "such an entry has at most 1048576"},
	"same place twice": {func(t *testing.T, z *rawZip) {
		q := *z.part(t, "objects/", "")
		q.data = nil
		q.name = "objects/" + strings.Repeat("0", 2) + "/" + strings.Repeat("0", 62)
		q.offset = func(at []uint32) uint32 { return at[0] }
		z.parts = append(z.parts, &q)
	}, "another name"},
	"overlapping": {func(t *testing.T, z *rawZip) {
		first := z.parts[0]
		inner := storedPart("future/inner", 0, []byte("x"), []byte("x"))
		data := (&rawZip{parts: []*zipPart{inner}}).bytes()
		*first = *storedPart("future/outer", 0, data, data)
		inner.offset = func(at []uint32) uint32 { return at[0] + 30 + uint32(len("future/outer")) }
		inner.data = nil
		z.parts = append(z.parts, inner)
	}, "overlaps another entry"},
	"more entries than there are": {func(t *testing.T, z *rawZip) {
		z.end = func(b []byte, _, _ uint32) []byte {
			n := le.Uint16(b[8:]) + 1
			le.PutUint16(b[8:], n)
			le.PutUint16(b[10:], n)
			return b
		}
	}, "entries"},
	"several disks": {func(t *testing.T, z *rawZip) {
		z.end = func(b []byte, _, _ uint32) []byte { b[4] = 1; return b }
	}, "several disks"},
	"directory elsewhere": {func(t *testing.T, z *rawZip) {
		z.end = func(b []byte, offset, _ uint32) []byte { le.PutUint32(b[16:], offset-1); return b }
	}, "its directory is said to be at"},
	"two ends": {func(t *testing.T, z *rawZip) {
		z.end = func(b []byte, _, _ uint32) []byte {
			second := bytes.Clone(b)
			b[20] = byte(len(second))
			return append(b, second...)
		}
	}, "two ends"},
	"comment cut off": {func(t *testing.T, z *rawZip) {
		z.end = func(b []byte, _, _ uint32) []byte { b[20], b[21] = 0xff, 0xff; return b }
	}, "has not the declared length"},
	"zip64 without its record": {func(t *testing.T, z *rawZip) {
		z.end = func(b []byte, _, _ uint32) []byte { le.PutUint32(b[16:], 1<<32-1); return b }
	}, "zip64 end record is missing"},
	"zip64 that points away": {func(t *testing.T, z *rawZip) {
		z.end = func(b []byte, _, _ uint32) []byte {
			locator := binary.LittleEndian.AppendUint64([]byte("PK\x06\x07\x00\x00\x00\x00"), 1<<62)
			return append(append(locator, 1, 0, 0, 0), b...)
		}
	}, "zip64 end record is not where"},
	"zip64 size": {func(t *testing.T, z *rawZip) {
		p := z.part(t, "objects/", "")
		p.size = 1<<32 - 1
		p.extra = binary.LittleEndian.AppendUint64([]byte{1, 0, 8, 0}, 1<<40)
	}, "cannot become so many"},
	"nothing but a directory": {func(t *testing.T, z *rawZip) {
		for _, p := range z.parts {
			p.offset = func([]uint32) uint32 { return 1 << 31 }
		}
	}, "outside of the entries"},
}

func TestHostileContainers(t *testing.T) {
	good := unlisted(sampleFiles(t, exportimport.ExportOptions{}))
	g := newTarget(t)
	for what, c := range hostileContainers {
		t.Run(what, func(t *testing.T) {
			g.in(t)
			z := rawZipOf(good)
			c.change(t, z)
			_, err := g.try(z.bytes(), exportimport.ImportOptions{NewWorkspace: true})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if !errors.Is(err, exportimport.ErrIntegrity) {
				t.Errorf("%v is no fault of integrity", err)
			}
		})
	}
	// Odd but valid zips.
	z := rawZipOf(good)
	for _, p := range z.parts {
		p.descriptor = true
	}
	z.end = func(b []byte, _, _ uint32) []byte {
		b[20] = 7
		return append(b, "comment"...)
	}
	if _, err := g.try(z.bytes(), exportimport.ImportOptions{NewWorkspace: true}); err != nil {
		t.Errorf("with data descriptors and a comment: %v", err)
	}
}

// hostileContents are hostile contents of well-formed zips. want "" means that the zip is harmless.
var hostileContents = map[string]struct {
	change func(b *bundle)
	want   string
}{
	// Records with names that lead out of the repository.
	"run with a path as id":       {func(b *bundle) { b.raw(func() { b.run.RunID = "../../../evil" }) }, "it is the record of run"},
	"run of a path":               {func(b *bundle) { b.raw(func() { b.run.WorkspaceName = "../evil" }) }, "it is a run of workspace"},
	"run that names paths":        {func(b *bundle) { b.executed("first", "../../evil") }, "is not a UUIDv7"},
	"snapshot that is a path":     {func(b *bundle) { b.run.OutputSnapshot = "../../evil" }, "snapshot"},
	"state of a path":             {func(b *bundle) { b.state.PackageName = "../evil" }, `has the segment ".."`},
	"state of a hidden package":   {func(b *bundle) { b.state.PackageName = ".evil" }, "cannot be the name of a package"},
	"state with a path as run":    {func(b *bundle) { b.state.CurrentRunID = "../evil" }, "run: \"../evil\" is not a UUIDv7"},
	"execution with a path as id": {func(b *bundle) { b.execs[0].status.ExecutionID = "../evil" }, `has the segment ".."`},
	"output that is a path":       {func(b *bundle) { b.byName("first").status.OutputHash = "../../../evil" }, "output"},
	"events of a path": {func(b *bundle) {
		b.events = eventstest.Summed(strings.ReplaceAll(b.events, b.run.RunID, "../evil"))
	}, `is of run "../evil"`},
	"events twice in a line": {func(b *bundle) { b.events = strings.Replace(b.events, "\n", "", 1) }, "line 1"},
	"events of deep JSON": {func(b *bundle) {
		b.events = eventstest.Summed(`{"seq":1,"run":"` + b.run.RunID + `","data":` + strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000) + "}\n")
	}, "max depth"},
	"events of deep JSON in a short line": {func(b *bundle) {
		b.events = eventstest.Summed(`{"seq":1,"run":"` + b.run.RunID + `","data":` + strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000) + "}\n")
	}, "line 1"},
	"provenance of paths": {func(b *bundle) {
		b.export.Earlier = []record.ExportGroup{{Executions: []string{"../../../../../../../../etc/evil/file"[:36]}}}
	}, "is not an id"},

	"provenance of a signer that cannot be": {func(b *bundle) {
		b.export.Earlier = []record.ExportGroup{{Steps: []record.Step{{By: "x", Signer: record.Signer{Key: "../evil", Name: "x"}}}}}
	}, `"../evil" is not a public key`},
	"provenance of a signer with an escape sequence": {func(b *bundle) {
		key, err := signature.Generate("x")
		if err != nil {
			b.t.Fatal(err)
		}
		b.export.Earlier = []record.ExportGroup{{Steps: []record.Step{{By: "x", Signer: record.Signer{Key: key.Public().String(), Name: "\x1b[31m"}}}}}
	}, "cannot be shown"},

	// Records that disagree.
	"execution under another key": {func(b *bundle) {
		b.swap("executions/", b.byName("first").task.String(), b.byName("third").task.String())
	}, ""},
	"execution under other inputs": {func(b *bundle) {
		b.raw(func() { b.execs[0].status.InputHashes = []string{strings.Repeat("1", 64)} })
	}, "its inputs hash to"},
	"file beside the record": {func(b *bundle) {
		b.swap("executions/", b.byName("first").status.OutputHash+"\n", strings.Repeat("1", 64)+"\n")
	}, "the file beside it"},
	"output of a failure": {func(b *bundle) {
		e := b.execs[0]
		failed := e.status
		failed.State, failed.ExitCode = record.Failed, 3
		b.swap("executions/"+e.task.String(), string(e.status.Encode()), string(failed.Encode()))
	}, `there is a file "output" beside it`},
	"object under another name": {func(b *bundle) { b.objects[objectstore.Sum([]byte("in no other case"))] = "y" }, "is corrupt"},
	"object of a wrong tree": {func(b *bundle) {
		// A tree can contain itself only under a name that is not its hash.
		self := objectstore.Hash{1, 2, 3}
		data, _ := tree.Encode(tree.Entries{{Name: "self", Kind: tree.KindDir, Hash: self}})
		b.objects[self] = string(data)
		b.output("second", self)
	}, "is corrupt"},

	// References that lead nowhere, or to something else.
	"package object that is missing":  {func(b *bundle) { b.swap("packages/", "", strings.Repeat("1", 64)+"\n") }, "its workspace has package"},
	"package object that is none":     {func(b *bundle) { b.pkgObject = "hello" }, "package"},
	"package object that is a tree":   {func(b *bundle) { b.pkgObject = b.objects[b.tree()] }, "package"},
	"package object that is empty":    {func(b *bundle) { b.pkgObject = "\x00" }, "package"},
	"package object with more behind": {func(b *bundle) { b.pkgObject = string(b.pkg.Encode()) + "x" }, "1 bytes follow"},
	"package with a missing task":     {func(b *bundle) { b.pkg.Tasks[0].Task = strings.Repeat("1", 64) }, "not found"},
	"package with a task that is none": {func(b *bundle) { b.pkg.Tasks[0].Task = b.put([]byte("no task")).String() },
		"task object"},
	"package with a task that is a path": {func(b *bundle) { b.pkg.Tasks[0].Task = "../../../../evil" }, "hash"},
	"package with a missing default": {func(b *bundle) { b.pkg.Inputs[0].Default.Hash = strings.Repeat("1", 64) },
		"not found"},
	"default that is no directory": {func(b *bundle) {
		b.pkg.Inputs[0].Default = record.Leaf{Kind: record.LeafDir, Hash: b.put([]byte("no dir")).String()}
	}, "cannot be read"},
	"default that is a node": {func(b *bundle) {
		b.pkg.Inputs[0].Default = record.Leaf{Kind: record.LeafNode, Hash: b.put([]byte("no node")).String()}
	}, "cannot be read"},
	"circle of tasks": {func(b *bundle) {
		for i := range b.pkg.Tasks {
			if b.pkg.Tasks[i].Name == "first" {
				b.pkg.Tasks[i].Wiring = []record.Wire{{Kind: record.WireOutput, Name: "third"}}
			}
		}
	}, "first"},
	"wire from nowhere":   {func(b *bundle) { b.pkg.Tasks[0].Wiring[0] = record.Wire{Kind: record.WireInput, Name: "../evil"} }, "../evil"},
	"two tasks of a name": {func(b *bundle) { b.pkg.Tasks[1].Name = b.pkg.Tasks[0].Name }, "two tasks are named"},
	"two inputs of a name": {func(b *bundle) {
		b.pkg.Inputs = append(b.pkg.Inputs, b.pkg.Inputs[0])
	}, "two inputs are named"},
	"execution of a missing task": {func(b *bundle) { b.execs[0].task = objectstore.Hash{1} }, "not found"},
	"execution of a task that is none": {func(b *bundle) { b.execs[0].task = b.put([]byte("no task")) },
		"cannot be read"},
	"missing output":              {func(b *bundle) { b.byName("first").status.OutputHash = strings.Repeat("1", 64) }, "not found"},
	"output that is no directory": {func(b *bundle) { b.output("second", b.put([]byte("no dir"))) }, "cannot be read"},
	"missing part of an output": {func(b *bundle) {
		b.output("second", b.tree(tree.Entry{Name: "x", Kind: tree.KindFile, Hash: objectstore.Hash{1}}))
	}, "not found"},
	"missing folder of an output": {func(b *bundle) {
		b.output("second", b.tree(tree.Entry{Name: "x", Kind: tree.KindDir, Hash: objectstore.Hash{1}}))
	}, "not found"},
	"file with another size": {func(b *bundle) {
		b.output("second", b.tree(tree.Entry{Name: "x", Kind: tree.KindFile, Hash: b.put([]byte("x")), Size: 2}))
	}, `"x": the size is said to be 2, and the file has 1 bytes`},
	"link that climbs by another": {func(b *bundle) {
		b.output("second", b.tree(tree.Entry{Name: "a", Kind: tree.KindLink, Target: "."},
			tree.Entry{Name: "b", Kind: tree.KindLink, Target: "a/../c"}))
	}, `"b": the link points to "a/../c", outside the directory`},
	"link in circles": {func(b *bundle) {
		b.output("second", b.tree(tree.Entry{Name: "a", Kind: tree.KindLink, Target: "a/../a"}))
	}, "too many links"},
	"folder that is a file": {func(b *bundle) {
		b.output("second", b.tree(tree.Entry{Name: "x", Kind: tree.KindDir, Hash: b.put([]byte("x"))}))
	}, "cannot be read"},
	"tree of a workspace that is none": {func(b *bundle) { b.root = "no tree" }, "the tree of workspace prod"},
	"tree without tasks": {func(b *bundle) {
		b.root = string(record.Node{{Name: "inputs", Leaf: record.Leaf{Kind: record.LeafNode, Hash: b.put(record.Node{}.Encode()).String()}}}.Encode())
	}, "the tree of workspace prod"},
	"tree whose tasks are a file": {func(b *bundle) {
		node := b.put(record.Node{}.Encode()).String()
		b.root = string(record.Node{{Name: "inputs", Leaf: record.Leaf{Kind: record.LeafNode, Hash: node}}, {Name: "tasks", Leaf: record.Leaf{Kind: record.LeafFile, Hash: node}}}.Encode())
	}, "the tree of workspace prod"},
	"dataset that is missing": {func(b *bundle) {
		b.tasks = b.tasks.Set("first", record.Leaf{Kind: record.LeafFile, Hash: strings.Repeat("1", 64)})
	}, "not found"},
	"dataset that is no directory": {func(b *bundle) {
		b.tasks = b.tasks.Set("first", record.Leaf{Kind: record.LeafDir, Hash: b.put([]byte("no dir")).String()})
	}, "cannot be read"},

	// Names in objects.
	"tree that climbs":       {func(b *bundle) { b.output("second", b.rawTree("../evil")) }, "the name contains a slash"},
	"tree with a path":       {func(b *bundle) { b.output("second", b.rawTree("a/b")) }, "the name contains a slash"},
	"tree with two dots":     {func(b *bundle) { b.output("second", b.rawTree("..")) }, "the name is reserved"},
	"tree with a dot":        {func(b *bundle) { b.output("second", b.rawTree(".")) }, "the name is reserved"},
	"tree without a name":    {func(b *bundle) { b.output("second", b.rawTree("")) }, "the name is empty"},
	"tree with a NUL":        {func(b *bundle) { b.output("second", b.rawTree("a\x00b")) }, "the name contains NUL"},
	"tree that is not UTF-8": {func(b *bundle) { b.output("second", b.rawTree("a\xffb")) }, "UTF-8"},
	"tree with a long name":  {func(b *bundle) { b.output("second", b.rawTree(strings.Repeat("e", 2000))) }, "the name is too long"},
	"tree with a name twice": {func(b *bundle) { b.output("second", b.rawTree("a", "a")) }, "out of order"},
	"tree out of order":      {func(b *bundle) { b.output("second", b.rawTree("b", "a")) }, "out of order"},
	"absolute link":          {func(b *bundle) { b.output("second", b.rawLink("/etc/passwd")) }, "only relative links"},
	"link that climbs":       {func(b *bundle) { b.output("second", b.rawLink("../../../../etc/passwd")) }, "outside the directory"},
	"dataset called a path":  {func(b *bundle) { b.tasks = b.tasks.Set("../evil", record.Leaf{Kind: record.LeafUnassigned}) }, "has 4 entries, not 3"},
	"another dataset": {func(b *bundle) {
		b.tasks = b.tasks[1:].Set("../evil", record.Leaf{Kind: record.LeafUnassigned})
	}, `has no task "first"`},
	"input called a path": {func(b *bundle) { b.inputs = b.inputs.Set("../../evil", record.Leaf{Kind: record.LeafUnassigned}) }, "has 4 entries, not 3"},

	// Counts and depths.
	"status of many inputs": {func(b *bundle) {
		e := b.execs[0]
		whole := string(e.status.Encode())
		_, behind, _ := strings.Cut(whole, e.status.ExecutionID)
		b.swap("executions/"+e.task.String(), whole, strings.TrimSuffix(whole, behind)+manyEntries)
	}, "execution status"},
	"package of many inputs":    {func(b *bundle) { b.pkgObject = packageHeader(b.pkg) + manyEntries }, "package"},
	"tree of many entries":      {func(b *bundle) { b.output("second", b.put([]byte(treeHeader()+manyEntries))) }, "cannot be read"},
	"workspace of many entries": {func(b *bundle) { b.root = nodeHeader() + manyEntries }, "the tree of workspace"},
	"deep directory": {func(b *bundle) {
		h := b.tree()
		for range 5000 {
			h = b.tree(tree.Entry{Name: "d", Kind: tree.KindDir, Hash: h})
		}
		b.output("second", h)
	}, "directories nest deeper than 256 levels"},
	"deep directory without an end": {func(b *bundle) {
		h := objectstore.Hash{1}
		for range 5000 {
			h = b.tree(tree.Entry{Name: strings.Repeat("d", 200), Kind: tree.KindDir, Hash: h})
		}
		b.output("second", h)
	}, "not found"},
	"directory of 2^60 files": {func(b *bundle) {
		h := b.tree(tree.Entry{Name: "f", Kind: tree.KindFile, Hash: b.put([]byte("x")), Size: 1})
		for range 60 {
			h = b.tree(tree.Entry{Name: "a", Kind: tree.KindDir, Hash: h}, tree.Entry{Name: "b", Kind: tree.KindDir, Hash: h})
		}
		b.output("second", h)
	}, ""},

	// Odd but harmless contents.
	"zip in a zip": {func(b *bundle) {
		b.output("first", b.put(zipped(b.t, []file{{"../evil", "x"}, {"a", string(make([]byte, 1<<20))}})))
	}, ""},
	"1000 : 1":                 {func(b *bundle) { b.output("first", b.put(make([]byte, 8<<20))) }, ""},
	"object that nobody needs": {func(b *bundle) { b.put([]byte("nobody")) }, ""},
	"capitals": {func(b *bundle) {
		b.extra = []file{{"Objects/x", "x"}, {"PACKAGES/flow/1", "x"}, {"Signature.json", "{}"}, {"signature.json/", ""}}
	}, ""},
}

func TestHostileContents(t *testing.T) {
	suite.WithoutRace(t)
	ways := []exportimport.ImportOptions{{NewWorkspace: true, DryRun: true}, {NewWorkspace: true}, {DryRun: true}, {}}
	if testing.Short() {
		ways = ways[:2]
	}
	good := sampleFiles(t, exportimport.ExportOptions{})
	g := newTarget(t)
	for what, c := range hostileContents {
		t.Run(what, func(t *testing.T) {
			g.in(t)
			b := unbundle(t, good)
			c.change(b)
			data := b.packed()
			for _, o := range ways {
				_, err := g.try(data, o)
				switch {
				case err == nil && c.want != "":
					t.Errorf("accepted, want %q", c.want)
				case err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)):
					t.Errorf("got %v, want %q", err, c.want)
				}
				if err == nil {
					g.renew()
				}
			}
		})
	}
}
