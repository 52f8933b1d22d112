package manifest_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/manifest"
	"e3/internal/format/notation"
)

// A fan-in with a manifest is two inputs. The values of its items are those of its tasks, or of a list's rows.
func TestGather(t *testing.T) {
	d, err := manifest.Parse("e3.yaml", []byte(`e3: 1
name: p
inputs: {raw: {files: "raw/{sample}_{lane}.fq"}}
tasks:
  fit: {matrix: {k: [1, 2], l: [a]}, out: fit.json, run: "true > $out"}
  few: {in: {parts: {from: "fit[*]", need: 95%}}, out: o, run: "true > $out"}
  own: {matrix: {k: [1, 2]}, in: {parts: {from: "fit[k, *]", need: 1, suffix: false}}, out: o, run: "true > $out"}
  lanes: {matrix: {sample: raw.sample}, in: {lanes: {from: "raw[sample, *]", manifest: true}}, out: o, run: "true > $out"}
`))
	if err != nil {
		t.Fatal(err)
	}
	d, err = d.Expand(manifest.Lists{"raw": {Names: 2, Columns: []string{"sample", "lane"}, Items: [][]string{{"s1", "L1"}, {"s1", "L2"}, {"s2", "L1"}},
		Files: []string{"s1_L1.fq", "s1_L2.fq", "s2_L1.fq"}}})
	if err != nil {
		t.Fatal(err)
	}
	type gathered struct {
		Name, Path, Need string
		Labels           []string
		Values           manifest.ItemValues
	}
	got := map[string]gathered{}
	for i := range d.Tasks {
		in := d.Tasks[i].Inputs
		if len(in) == 0 {
			continue
		}
		if len(in) != 2 || in[1].Source.Kind != manifest.FromManifest || in[1].Source.Index != in[0].Source.Index || in[1].Name != manifest.ManifestOf(in[0].Name) || in[0].Gather == nil {
			t.Fatalf("%s reads %+v", d.Tasks[i].Name, in)
		}
		g := gathered{Name: in[1].Name, Path: in[1].Path, Need: in[0].Gather.Need.String(), Values: d.ValuesOf(in[0].Source.Index)}
		for _, it := range d.FanIns[in[0].Source.Index] {
			g.Labels = append(g.Labels, it.Label)
		}
		got[d.Tasks[i].Name] = g
	}
	parts := ".e3-values/parts_manifest.json"
	want := map[string]gathered{
		"few":       {"parts_manifest", parts, "95%", []string{"k=1,l=a.json", "k=2,l=a.json"}, manifest.ItemValues{Names: []string{"k", "l"}, Values: []string{"1", "a", "2", "a"}}},
		"own[1]":    {"parts_manifest", parts, "1", []string{"k=1,l=a"}, manifest.ItemValues{Names: []string{"k", "l"}, Values: []string{"1", "a"}}},
		"own[2]":    {"parts_manifest", parts, "1", []string{"k=2,l=a"}, manifest.ItemValues{Names: []string{"k", "l"}, Values: []string{"2", "a"}}},
		"lanes[s1]": {"lanes_manifest", ".e3-values/lanes_manifest.json", "all", []string{"s1_L1.fq", "s1_L2.fq"}, manifest.ItemValues{Names: []string{"sample", "lane"}, Values: []string{"s1", "L1", "s1", "L2"}}},
		"lanes[s2]": {"lanes_manifest", ".e3-values/lanes_manifest.json", "all", []string{"s2_L1.fq"}, manifest.ItemValues{Names: []string{"sample", "lane"}, Values: []string{"s2", "L1"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n, _ := notation.ParseNeed("95%"); !slices.ContainsFunc(d.Tasks, func(task manifest.Task) bool { return len(task.Inputs) > 0 && task.Inputs[0].Gather.Need == n }) {
		t.Error("no task needs 95%")
	}
}
