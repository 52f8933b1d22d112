package eastref_test

import (
	"archive/zip"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"e3/internal/format/beast2"
	"e3/internal/format/digest"
	"e3/internal/format/eastref"
	"e3/internal/format/record"
)

// The files that the reference implementation wrote are kept with the codec.
const reference = "../beast2/testdata/"

func load[T any](t testing.TB, name string) T {
	t.Helper()
	data, err := os.ReadFile(reference + name)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// vectors are the encodings of one type by the rest of their names.
func vectors(t testing.TB, of string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for _, v := range load[[]struct{ Name, Hex string }](t, "vectors.json") {
		if rest, ok := strings.CutPrefix(v.Name, "record/"+of+"/"); ok {
			found[rest] = unhex(t, v.Hex)
		}
	}
	if len(found) == 0 {
		t.Fatalf("there is no vector of %s", of)
	}
	return found
}

func TestHeaders(t *testing.T) {
	types := load[map[string]struct {
		HeaderHex string `json:"header_hex"`
	}](t, "record-types.json")
	if data := unhex(t, types["PackageObject"].HeaderHex); len(data) == 0 || !eastref.IsPackage(data) || eastref.IsTask(data) {
		t.Error("the header of a PackageObject is not told")
	} else if len(data) > eastref.PackageHeader {
		t.Errorf("the header of a PackageObject has %d bytes, want at most %d", len(data), eastref.PackageHeader)
	}
	if data := unhex(t, types["TaskObject"].HeaderHex); len(data) == 0 || !eastref.IsTask(data) || eastref.IsPackage(data) {
		t.Error("the header of a TaskObject is not told")
	}
}

func TestVectors(t *testing.T) {
	for name, data := range vectors(t, "PackageObject") {
		p, err := eastref.DecodePackage(data)
		if err != nil {
			t.Errorf("package %s: %v", name, err)
		} else if (p.Root == digest.Hash{}) {
			t.Errorf("package %s has no root", name)
		}
	}
	tasks := vectors(t, "TaskObject")
	for name, data := range tasks {
		if _, err := eastref.DecodeTask(data); err != nil {
			t.Errorf("task %s: %v", name, err)
		}
	}
	task, err := eastref.DecodeTask(tasks["same-input-path-object-twice"])
	if err != nil || len(task.Inputs) != 2 || !slices.Equal(task.Inputs[0], task.Inputs[1]) || len(task.Inputs[0]) == 0 {
		t.Errorf("a path that is there twice: %+v, %v", task, err)
	}
	for name, data := range vectors(t, "Tree") {
		entries, err := eastref.DecodeTree(data)
		if err != nil {
			t.Errorf("tree %s: %v", name, err)
			continue
		}
		typ, v, err := beast2.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		fields := typ.Fields()
		if len(entries) != len(fields) || len(entries) == 0 {
			t.Errorf("tree %s: %d entries, want %d", name, len(entries), len(fields))
			continue
		}
		for i, e := range entries {
			c := v.(beast2.Record)[i].(beast2.Case)
			hash, _ := c.Value.(string)
			if hash == "" {
				hash = digest.Hash{}.String()
			}
			if e.Name != fields[i].Name || c.Tag != int(e.Kind) || hash != e.Hash.String() {
				t.Errorf("tree %s: got %s %v %v, want %s, case %d %s", name, e.Name, e.Kind, e.Hash, fields[i].Name, c.Tag, hash)
			}
		}
	}
}

// objects returns the objects in the export of a run, by hash.
func objects(t testing.TB) map[digest.Hash][]byte {
	t.Helper()
	z, err := zip.OpenReader(reference + "golden.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	found := map[digest.Hash][]byte{}
	for _, f := range z.File {
		if !strings.HasPrefix(f.Name, "objects/") {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		found[digest.Sum(data)] = data
	}
	return found
}

// Every object of the export is reachable from its package, by exactly one path.
func TestGoldenPackage(t *testing.T) {
	all := objects(t)
	left := maps.Clone(all)
	take := func(h digest.Hash) []byte {
		data, ok := all[h]
		if !ok {
			t.Fatalf("object %s is not in the export", h)
		}
		delete(left, h)
		return data
	}
	var pkg *eastref.Package
	for h, data := range all {
		if eastref.IsPackage(data) {
			var err error
			if pkg, err = eastref.DecodePackage(take(h)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if pkg == nil {
		t.Fatal("there is no package in the export")
	}
	var lines []string
	for _, p := range pkg.Tasks {
		task, err := eastref.DecodeTask(take(p.Task))
		if err != nil {
			t.Fatalf("task %s: %v", p.Name, err)
		}
		take(task.Command)
		for _, in := range task.Inputs {
			lines = append(lines, eastref.FormatPath(in)+" to "+p.Name)
		}
		lines = append(lines, p.Name+" to "+eastref.FormatPath(task.Output))
	}
	var walk func(h digest.Hash, path []string)
	walk = func(h digest.Hash, path []string) {
		entries, err := eastref.DecodeTree(take(h))
		if err != nil {
			t.Fatalf("tree %s: %v", eastref.FormatPath(path), err)
		}
		for _, e := range entries {
			at := append(slices.Clone(path), e.Name)
			switch e.Kind {
			case eastref.Tree:
				walk(e.Hash, at)
			case eastref.Value:
				take(e.Hash)
				fallthrough
			default:
				lines = append(lines, fmt.Sprintf("%s is %v", eastref.FormatPath(at), e.Kind))
			}
		}
	}
	walk(pkg.Root, nil)
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	want, err := os.ReadFile("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the package of the export:\ngot\n%s\nwant\n%s", got, want)
	}
	if len(left) > 0 {
		t.Errorf("%d objects of the export are reached by nothing: %v", len(left), slices.Collect(maps.Keys(left)))
	}
}

func TestRefuses(t *testing.T) {
	pkg := vectors(t, "PackageObject")["empty"]
	tree := vectors(t, "Tree")["inputs-mixed"]
	hash := strings.Repeat("0", 64)
	ref := beast2.Variant(beast2.F("null", beast2.Null), beast2.F("tree", beast2.String), beast2.F("unassigned", beast2.Null), beast2.F("value", beast2.String))
	encode := func(typ beast2.Type, v beast2.Value) []byte {
		data, err := beast2.Encode(typ, v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	decodePackage := func(b []byte) error { _, err := eastref.DecodePackage(b); return err }
	decodeTask := func(b []byte) error { _, err := eastref.DecodeTask(b); return err }
	decodeTree := func(b []byte) error { _, err := eastref.DecodeTree(b); return err }
	for _, test := range []struct {
		name    string
		decode  func([]byte) error
		data    []byte
		foreign bool // of another type
		want    string
	}{
		{"package of nothing", decodePackage, nil, true, ""},
		{"package that is a tree", decodePackage, tree, true, ""},
		{"task that is a package", decodeTask, pkg, true, ""},
		{"tree that is a package", decodeTree, pkg, true, ""},
		{"tree of text", decodeTree, []byte("text"), true, ""},
		{"tree of numbers", decodeTree, encode(beast2.Struct(beast2.F("a", beast2.Integer)), beast2.Record{int64(1)}), true, ""},
		{"tree of options", decodeTree, encode(beast2.Struct(beast2.F("a", beast2.Option(beast2.String))), beast2.Record{beast2.Case{}}), true, ""},
		{"package cut off", decodePackage, pkg[:len(pkg)-1], false, "beyond the end"},
		{"package with more behind", decodePackage, append(bytes.Clone(pkg), 0), false, "follow"},
		{"tree cut off", decodeTree, tree[:len(tree)-1], false, "ends"},
		{"tree with more behind", decodeTree, append(bytes.Clone(tree), 0), false, "follow"},
		{"hash in capitals", decodeTree, encode(beast2.Struct(beast2.F("a", ref)), beast2.Record{beast2.Case{Tag: 3, Value: strings.Repeat("A", 64)}}), false, "hash"},
		{"hash with dots", decodeTree, encode(beast2.Struct(beast2.F("a", ref)), beast2.Record{beast2.Case{Tag: 1, Value: "../" + hash[3:]}}), false, "hash"},
	} {
		err := test.decode(test.data)
		switch {
		case err == nil:
			t.Errorf("%s: got no error", test.name)
		case errors.Is(err, record.ErrType) != test.foreign:
			t.Errorf("%s: got %v, another type %t, want %t", test.name, err, !test.foreign, test.foreign)
		case !strings.Contains(err.Error(), test.want):
			t.Errorf("%s: got %q, want something with %q", test.name, err, test.want)
		}
	}
	if entries, err := eastref.DecodeTree(encode(beast2.Struct(), beast2.Record{})); err != nil || len(entries) != 0 {
		t.Errorf("a tree without children: got %v, %v", entries, err)
	}
}

// A schema may name the type of a later child by the distance to an earlier one's.
func TestTreeWithSharedType(t *testing.T) {
	doc := `{"type":{"Struct":[["a",{"Variant":{"$def":"t","v":[["null","Null"],["tree","String"],["unassigned","Null"],["value","String"]]}}],` +
		`["b",{"Variant":{"$use":"t"}}]]},"value":{"a":{"case":"unassigned","value":null},"b":{"case":"value","value":"` + strings.Repeat("ab", 32) + `"}}}`
	data, err := beast2.FromJSON([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := eastref.DecodeTree(data)
	if err != nil || len(entries) != 2 || entries[1].Hash.String() != strings.Repeat("ab", 32) {
		t.Errorf("got %v, %v", entries, err)
	}
}

func TestPaths(t *testing.T) {
	for _, test := range []struct {
		text string
		path []string
	}{
		{".inputs.sales", []string{"inputs", "sales"}},
		{".tasks._T1.output", []string{"tasks", "_T1", "output"}},
		{".inputs.`two words`", []string{"inputs", "two words"}},
		{".`0`.`a.b`.c", []string{"0", "a.b", "c"}},
		{".`a\\`b\\\\c`", []string{"a`b\\c"}},
		{".``", []string{""}},
	} {
		if got := eastref.FormatPath(test.path); got != test.text {
			t.Errorf("%q: got %s, want %s", test.path, got, test.text)
		}
		for _, text := range []string{test.text, test.text[1:]} {
			if got, err := eastref.ParsePath(text); err != nil || !slices.Equal(got, test.path) {
				t.Errorf("%s: got %q, %v, want %q", text, got, err, test.path)
			}
		}
	}
	if got, err := eastref.ParsePath("a-b.0.ü x"); err != nil || !slices.Equal(got, []string{"a-b", "0", "ü x"}) {
		t.Errorf("names without backticks: got %q, %v", got, err)
	}
	for _, bad := range []string{"", ".", "a.", "a..b", "`a", "`a`b", "a`b`", "`a\\`"} {
		if got, err := eastref.ParsePath(bad); err == nil {
			t.Errorf("%q: got %q, want an error", bad, got)
		}
	}
}

func FuzzPath(f *testing.F) {
	f.Add("inputs", "a`\\b")
	f.Fuzz(func(t *testing.T, a, b string) {
		path := []string{a, b}
		if got, err := eastref.ParsePath(eastref.FormatPath(path)); err != nil || !slices.Equal(got, path) {
			t.Errorf("%q: got %q, %v", path, got, err)
		}
	})
}

// The general decoder accepts exactly what this package accepts. It knows nothing of hashes, but compares the names in
// structures.
func FuzzDecode(f *testing.F) {
	for _, of := range []string{"PackageObject", "TaskObject", "Tree"} {
		for _, data := range vectors(f, of) {
			f.Add(data)
		}
	}
	for _, data := range objects(f) {
		if len(data) < 2000 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _, general := beast2.Decode(data)
		agree := func(what string, err error) {
			switch {
			case errors.Is(err, record.ErrType):
			case err == nil && general != nil && !strings.Contains(general.Error(), "the same"):
				t.Errorf("%s was read, but in general: %v", what, general)
			case err != nil && general == nil && !strings.Contains(err.Error(), "hash"):
				t.Errorf("%s was refused, but not in general: %v", what, err)
			}
		}
		_, err := eastref.DecodePackage(data)
		agree("package", err)
		_, err = eastref.DecodeTask(data)
		agree("task", err)
		entries, err := eastref.DecodeTree(data)
		agree("tree", err)
		if err == nil && len(entries) > len(data) {
			t.Errorf("%d entries in %d bytes", len(entries), len(data))
		}
	})
}
