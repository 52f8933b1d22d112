package manifest_test

import (
	"slices"
	"testing"

	"e3/internal/format/manifest"
)

// An input belongs to the item if the item decides what it is, however many items there are.
func TestOwnInputs(t *testing.T) {
	const file = `
e3: 1
name: p
inputs:
  code: {file: code.py}
  raw: {files: "raw/{s}.txt"}
tasks:
  prep: {matrix: {n: [1]}, out: p, run: [x]}
  made: {matrix: raw, in: {f: "raw[s]"}, out: m, run: [x]}
  literal:
    matrix: {n: [1]}
    batch: 2
    in: {code: code, own: "prep[n]", all: "prep[*]"}
    out: o
    run: [x]
  found:
    matrix: raw
    batch: 2
    in: {code: code, file: "raw[s]", own: "made[s]", all: {from: "made[*]", manifest: true}, each: {from: "prep[*]", need: any}}
    out: o
    run: [x]
`
	d, err := manifest.Parse("e3.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	list := &manifest.List{Columns: []string{"s"}, Names: 1, Items: [][]string{{"a"}}, Files: []string{"raw/a.txt"}}
	if d, err = d.Expand(manifest.Lists{d.Families[0].Sources[0].Key: list}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{"literal[1]": {"own"}, "found[a]": {"file", "own"}} {
		var own []string
		i := slices.IndexFunc(d.Tasks, func(t manifest.Task) bool { return t.Name == name })
		if i < 0 {
			t.Fatalf("there is no %s: %v", name, d.Faults())
		}
		for _, in := range d.Tasks[i].Inputs {
			if in.Own {
				own = append(own, in.Name)
			}
		}
		if !slices.Equal(own, want) {
			t.Errorf("inputs of %s that belong to the item: %v, want %v", name, own, want)
		}
	}
}
