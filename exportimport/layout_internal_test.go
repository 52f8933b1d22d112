package exportimport

import (
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/objectstore"
)

// A parsed name is written unchanged, except for the suffix of the reference's objects.
func FuzzParseName(f *testing.F) {
	hash := strings.Repeat("0123456789abcdef", 4)
	id := "01a1fb7b-91d6-7b50-a8fb-f5f218c62fbe"
	for _, name := range []string{
		"objects/01/" + hash[2:], "objects/01/" + hash[2:] + ".beast2", "executions/" + hash + "/" + hash + "/" + id + "/status.beast2",
		"dataflows/prod/" + id + ".beast2", "events/prod/" + id + ".ndjson", "packages/flow/1.0.0+01234567", "packages/@acme/err/1.0.0", "packages/@acme/../1", "packages/@/@/@", "packages/acme/err/1.0.0", "workspaces/prod.beast2",
		"provenance.beast2", "signature.json", "executions/../../x", "workspaces/..beast2", "packages//", "objects/" + hash + "/", "x",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		n, err := parseName(name)
		if err != nil || n.part == unknownPart {
			return
		}
		if got := n.String(); got != strings.TrimSuffix(name, ".beast2") && got != name {
			t.Errorf("%q is read as %q", name, got)
		}
		for _, segment := range []string{n.workspace, strings.Replace(n.pkg, "/", "", strings.Count(n.pkg[:min(1, len(n.pkg))], "@")), n.version, n.id} {
			if strings.ContainsAny(segment, "/\\\x00") || segment == ".." {
				t.Errorf("%q has a segment %q", name, segment)
			}
		}
	})
}

// The version of a package with other defaults is a function of its content, and not too long.
func TestWithDefaults(t *testing.T) {
	leaf := func(text string) record.Leaf {
		return record.Leaf{Kind: record.LeafValue, Hash: objectstore.Sum([]byte(text)).String()}
	}
	pkg := &record.Package{Name: "p", Version: "1.0", Inputs: []record.PackageInput{{Name: "x", Default: leaf("a")}}}
	node := func(text string) record.Node { return record.Node{{Name: "x", Leaf: leaf(text)}} }
	if got := withDefaults(pkg, node("a")); got != pkg {
		t.Errorf("the same datasets make %+v", got)
	}
	b := withDefaults(pkg, node("b"))
	if len(b.Version) != len("1.0+01234567") || pkg.Inputs[0].Default != leaf("a") {
		t.Errorf("other datasets make %+v of %+v", b, pkg)
	}
	if again := withDefaults(withDefaults(b, node("c")), node("b")); again.Version != b.Version {
		t.Errorf("there and back it is %s, was %s", again.Version, b.Version)
	}
	pkg.Version = strings.Repeat("1", 64)
	if long := withDefaults(pkg, node("b")); len(long.Version) != 64 || checkName("version", long.Version) != nil {
		t.Errorf("a long version becomes %q", long.Version)
	}
}

// A chain that is full keeps its beginning and its end.
func TestLongChain(t *testing.T) {
	id := "01a1fb7b-91d6-7b50-a8fb-f5f218c62fbe"
	group := record.ExportGroup{Executions: []string{id}}
	for i := range record.MaxSteps {
		group.Steps = append(group.Steps, record.Step{By: strings.Repeat("x", i%3), Version: "s"})
	}
	group.Steps[0].By, group.Steps[record.MaxSteps-1].By = "first", "last"
	var o origin
	if err := o.read((&record.Export{By: "me", Earlier: []record.ExportGroup{group}}).Encode()); err != nil {
		t.Fatal(err)
	}
	steps := o.execution(id).Steps
	if n := len(steps); n != record.MaxSteps || steps[0].By != "first" || steps[n-2].By != "last" || steps[n-1].By != "me" {
		t.Errorf("%d steps, from %q over %q to %q", n, steps[0].By, steps[n-2].By, steps[n-1].By)
	}
	if other := o.execution("01a1fb7b-91d6-7b50-a8fb-f5f218c62fbf").Steps; len(other) != 1 {
		t.Errorf("of what it does not tell: %d steps", len(other))
	}
}
