package manifest_test

import (
	"bytes"
	"testing"

	"e3/internal/format/manifest"
)

// The object of a list has one form.
func FuzzDecodeList(f *testing.F) {
	f.Add([]byte("{\"names\":1,\"columns\":[\"\"],\"items\":[[\"a\"],[\"b\"]]}\n"))
	f.Add([]byte("{\"names\":0,\"columns\":[\"a\",\"b\"],\"items\":[[\"1\",\"\"]]}\n"))
	f.Add([]byte("{\"names\":1,\"columns\":[\"s\"],\"items\":[[\"a\"]],\"files\":[\"a.fq\"]}\n"))
	f.Add([]byte("{\"names\":0,\"columns\":[],\"items\":[]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := manifest.DecodeList(data)
		if err == nil && !bytes.Equal(l.Encode(), data) {
			t.Fatalf("%q is read as %q", data, l.Encode())
		}
	})
}

// A definition that is taken has an object that is taken, and that means the same.
func FuzzDefinition(f *testing.F) {
	for _, text := range []string{
		head + "inputs: {raw: {files: '{a}_{b}.x'}}\ntasks: {t: {matrix: raw, in: {r: 'raw[a,b]'}, out: o, run: x}}\n",
		head + "tasks:\n  s: {out: l.json, run: x}\n  t: {matrix: {n: s, m: [1, 2]}, out: o, run: x}\n  u: {in: {a: {from: 't[*]', suffix: false}}, out: p, run: x}\n",
		head + "inputs: {c: {file: c.csv}}\ntasks:\n  t: {matrix: {zip: {a: [1], b: [2]}, g: c.g, include: [{a: 2, b: 3, g: 4}], exclude: [{a: 1}]}, out: o, run: x}\n",
		`{"e3": 1, "name": "p", "tasks": {"s": {"out": "d/", "run": "x"}, "t": {"matrix": {"n": "s"}, "in": {"f": "s[n]"}, "out": "o", "run": "x"}}}`,
	} {
		f.Add([]byte(text), "a", "b")
	}
	f.Fuzz(func(t *testing.T, data []byte, x, y string) {
		if len(data) > 1<<16 {
			return
		}
		d, err := manifest.Parse("e3.yaml", data)
		if err != nil || !d.Grows() {
			return
		}
		object, err := d.Encode()
		if err != nil {
			t.Fatalf("no object of %q: %v", data, err)
		}
		kept, err := manifest.DecodeDefinition(object)
		if err != nil {
			t.Fatalf("the object %q of %q: %v", object, data, err)
		}
		if again, err := kept.Encode(); err != nil || !bytes.Equal(again, object) {
			t.Fatalf("the object of the object of %q: %v", data, err)
		}
		l := &manifest.List{Names: 1, Columns: []string{"a", "g"}, Items: [][]string{{x, y}, {y, x}}, Files: []string{"f", "g/"}}
		if l.Check() != nil {
			return
		}
		lists := manifest.Lists{}
		for range 3 {
			one, errOne := d.Expand(lists)
			two, errTwo := kept.Expand(lists)
			if (errOne == nil) != (errTwo == nil) {
				t.Fatalf("%v, but of the object %v", errOne, errTwo)
			}
			if errOne != nil {
				return
			}
			if len(one.Tasks) != len(two.Tasks) || len(one.Families) != len(two.Families) {
				t.Fatalf("%d tasks, but of the object %d", len(one.Tasks), len(two.Tasks))
			}
			for i := range one.Families {
				for _, s := range one.Families[i].Sources {
					lists[s.Key] = l
				}
			}
			_ = manifest.Lint(one)
		}
	})
}
