package record_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"e3/internal/format/digest"
	"e3/internal/format/record"
)

var grownPackages = rapid.Custom(func(t *rapid.T) *record.Package {
	p := packages.Draw(t, "package")
	if rapid.IntRange(0, 3).Draw(t, "definition") > 0 || len(p.Tasks) == 0 {
		p.Definition = hashes.Draw(t, "hash")
	} else {
		p.Tasks[0].Wiring = append(p.Tasks[0].Wiring, record.Wire{Kind: record.WireInput, Name: "raw", Entry: "a/b"})
	}
	for i := range p.Tasks {
		for j := range p.Tasks[i].Wiring {
			w := &p.Tasks[i].Wiring[j]
			if w.Kind == record.WireInput {
				w.Entry = texts.Draw(t, "path")
			}
			for k := range w.Items {
				if rapid.Bool().Draw(t, "of an input") {
					w.Items[k].Input, w.Items[k].Task = names.Draw(t, "input"), ""
				}
			}
		}
	}
	if p.Definition == "" {
		w := p.Tasks[0].Wiring
		w[len(w)-1].Entry = "a/b"
		return p
	}
	p.Lists = few(rapid.Custom(func(t *rapid.T) record.PackageList {
		l := record.PackageList{Input: names.Draw(t, "input")}
		if rapid.Bool().Draw(t, "of a task") {
			l = record.PackageList{Task: names.Draw(t, "task"), Entry: texts.Draw(t, "entry")}
		}
		if rapid.Bool().Draw(t, "known") {
			l.From, l.List = hashes.Draw(t, "from"), hashes.Draw(t, "list")
		}
		return l
	})).Draw(t, "lists")
	p.Families = few(rapid.Custom(func(t *rapid.T) record.PackageFamily {
		f := record.PackageFamily{Name: texts.Draw(t, "name"), Reads: few(texts).Draw(t, "reads"), Pending: rapid.Bool().Draw(t, "pending"), Count: numbers.Draw(t, "count")}
		if len(p.Lists) > 0 {
			f.Lists = few(rapid.Int64Range(0, int64(len(p.Lists)-1))).Draw(t, "its lists")
		}
		return f
	})).Draw(t, "families")
	return p
})

// readsBack checks that a package is read as it was written, and encodes to the same bytes.
func readsBack(t *rapid.T, p *record.Package) {
	t.Helper()
	data := p.Encode()
	got, err := record.DecodePackage(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
	if !bytes.Equal(got.Encode(), data) {
		t.Fatal("encoded again it has other bytes")
	}
	if _, err := record.DecodePackageWithin(data, 1<<20); err != nil {
		t.Fatal(err)
	}
}

// A package with items reads back.
func TestPackageGrown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := grownPackages.Draw(t, "package")
		readsBack(t, p)
	})
}

// Records that contradict themselves are refused.
func TestPackageGrownRefuses(t *testing.T) {
	h := digest.Sum(nil).String()
	for _, test := range []struct {
		pkg  record.Package
		want string
	}{
		{record.Package{Definition: h, Lists: []record.PackageList{{}}}, "neither of an input"},
		{record.Package{Definition: h, Lists: []record.PackageList{{Input: "a", Task: "b"}}}, "neither of an input"},
		{record.Package{Definition: h, Lists: []record.PackageList{{Input: "a", From: h}}}, "half known"},
		{record.Package{Definition: h, Families: []record.PackageFamily{{Name: "f", Lists: []int64{0}}}}, "names list 0, and there are 0"},
		{record.Package{Definition: h, Tasks: []record.PackageTask{{Wiring: []record.Wire{{Kind: record.WireFanIn, Items: []record.FanItem{{Task: "t", Input: "i"}}}}}}}, "not both"},
	} {
		if _, err := record.DecodePackage(test.pkg.Encode()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.pkg, err, test.want)
		}
	}
}
