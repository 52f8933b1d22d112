package workspace_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Items from data make the tasks that the same items make where the file writes them out: objects, wiring and policy.
// The definition and the lists are stored.
func TestItemsAreThoseWrittenOut(t *testing.T) {
	p := newPlace(t)
	p.write("sheet.csv", "id,depth\na,1\nb,2\n")
	const tasks = `
  fit: {matrix: {id: IDS, rate: [1, 2]}, out: fit.json, run: x "$id", priority: 3}
  one: {matrix: {rate: [1, 2]}, in: {fits: "fit[rate=rate, *]"}, out: one.txt, run: x}
  all: {in: {fits: "fit[*]", one: "one[1]"}, out: all.txt, run: x}
`
	grown := p.build("inputs: {sheet: {file: sheet.csv}}\ntasks:" + strings.ReplaceAll(tasks, "IDS", "{from: sheet, with: []}"))
	literal := p.build("inputs: {sheet: {file: sheet.csv}}\ntasks:" + strings.ReplaceAll(tasks, "IDS", "[a, b]"))
	if diff := cmp.Diff(literal.Package.Tasks, grown.Package.Tasks); diff != "" {
		t.Errorf("tasks (-written out +from data)\n%s", diff)
	}
	if literal.Package.Definition != "" || len(literal.Package.Families) > 0 {
		t.Errorf("a package that writes out its items has a definition: %+v", literal.Package)
	}
	pkg := grown.Package
	wantFamilies := []record.PackageFamily{{Name: "fit", Lists: []int64{0}, ReadBy: []string{"one", "all"}, Count: 4}}
	if diff := cmp.Diff(wantFamilies, pkg.Families); diff != "" {
		t.Errorf("families (-want +got)\n%s", diff)
	}
	l := pkg.Lists[0]
	if l.Input != "sheet" || l.From != pkg.Inputs[0].Default.Hash {
		t.Errorf("the list is of %q, read from %s, want sheet, read from %s", l.Input, l.From, pkg.Inputs[0].Default.Hash)
	}
	list, err := manifest.DecodeList(p.stored(l.List))
	if err != nil || len(list.Items) != 2 {
		t.Errorf("the list is %+v, %v", list, err)
	}
	if _, err := manifest.DecodeDefinition(p.stored(pkg.Definition)); err != nil {
		t.Error(err)
	}
}

// A new item leaves the task objects of the others as they are, wherever it comes in the list.
func TestANewItemChangesNoOther(t *testing.T) {
	p := newPlace(t)
	const text = "inputs: {sheet: {file: sheet.tsv}}\ntasks:\n  fit: {matrix: {id: sheet}, out: fit.txt, run: x}\n"
	p.write("sheet.tsv", "id\tdepth\nb\t2\nc\t3\n")
	before := p.build(text).Package.Tasks
	p.write("sheet.tsv", "id\tdepth\na\t1\nb\t2\nc\t3\n")
	after := p.build(text).Package.Tasks
	if len(after) != 3 || after[0].Name != "fit[a]" {
		t.Fatalf("%d tasks, the first %s", len(after), after[0].Name)
	}
	if diff := cmp.Diff(before, after[1:]); diff != "" {
		t.Errorf("the others (-before +after)\n%s", diff)
	}
}

// A file of an input is a wire of its own: only its content is read.
func TestFilesOfItems(t *testing.T) {
	p := newPlace(t)
	p.project()
	p.write("data/img/2.png", "two")
	b := p.build(`inputs: {img: {glob: "data/img/*.png"}, all: {dir: data/img}}
tasks:
  one: {matrix: {n: img}, in: {png: "img[n]"}, out: o, run: x}
  two: {in: {png: "all[2.png]"}, out: o, run: x}
`)
	want := []record.Wire{
		{Kind: record.WireInput, Name: "img", Entry: "1.png"}, {Kind: record.WireInput, Name: "img", Entry: "2.png"}, {Kind: record.WireInput, Name: "all", Entry: "2.png"},
	}
	for i, w := range want {
		task := &b.Package.Tasks[i]
		if diff := cmp.Diff([]record.Wire{w}, task.Wiring); diff != "" {
			t.Errorf("%s (-want +got)\n%s", task.Name, diff)
		}
		obj, err := record.DecodeTask(p.stored(task.Task))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]record.Input{{Name: "png", Path: "data/img/" + w.Entry, Kind: record.KindFile}}, obj.Inputs); diff != "" {
			t.Errorf("%s stages (-want +got)\n%s", task.Name, diff)
		}
	}
}

func (p *place) stored(hash string) []byte {
	p.t.Helper()
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		p.t.Fatal(err)
	}
	data, err := objectstore.ReadAll(p.ctx, p.repo.Objects, h, 1<<20)
	if err != nil {
		p.t.Fatal(err)
	}
	return data
}
