package record_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"e3/internal/format/digest"
	"e3/internal/format/notation"
	"e3/internal/format/record"
)

var needs = rapid.Custom(func(t *rapid.T) notation.Need {
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		return notation.Need{Kind: notation.NeedCount, N: rapid.Int64Range(0, 1<<31-1).Draw(t, "count")}
	case 1:
		return notation.Need{Kind: notation.NeedShare, N: rapid.Int64Range(1, 1_000_000).Draw(t, "share")}
	}
	return notation.Need{}
})

// A package in which a fan-in has a manifest reads back.
func TestPackageGather(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := packages.Draw(t, "package")
		if rapid.Bool().Draw(t, "grown") {
			p = grownPackages.Draw(t, "grown package")
		}
		p.Tasks = append(p.Tasks, record.PackageTask{Name: "reader", Task: digest.Sum(nil).String()})
		for i := range p.Tasks {
			if i < len(p.Tasks)-1 && rapid.Bool().Draw(t, "plain") {
				continue
			}
			g := &record.Gather{Need: needs.Draw(t, "need"), Names: few(texts).Draw(t, "names")}
			w := record.Wire{Kind: record.WireFanIn, Gather: g}
			for range rapid.IntRange(0, 3).Draw(t, "items") {
				w.Items = append(w.Items, record.FanItem{Label: texts.Draw(t, "label"), Task: texts.Draw(t, "task")})
				for range g.Names {
					g.Values = append(g.Values, texts.Draw(t, "value"))
				}
			}
			p.Tasks[i].Wiring = append(p.Tasks[i].Wiring, w, record.Wire{Kind: record.WireManifest})
		}
		readsBack(t, p)
	})
}

// A manifest follows its fan-in, and has a value for each name of each item.
func TestPackageGatherRefuses(t *testing.T) {
	fan := func(g record.Gather) record.Wire {
		return record.Wire{Kind: record.WireFanIn, Items: []record.FanItem{{Label: "1", Task: "t"}}, Gather: &g}
	}
	list := record.Wire{Kind: record.WireManifest}
	for _, test := range []struct {
		wires []record.Wire
		want  string
	}{
		{[]record.Wire{fan(record.Gather{})}, "manifest of the last fan-in is missing"},
		{[]record.Wire{fan(record.Gather{}), list, list}, "wire 2: a manifest follows its fan-in"},
		{[]record.Wire{list, fan(record.Gather{}), list}, "wire 0: a manifest follows its fan-in"},
		{[]record.Wire{fan(record.Gather{}), {Kind: record.WireInput, Name: "x"}}, "wire 1: a manifest follows"},
		{[]record.Wire{fan(record.Gather{Names: []string{"a"}}), list}, "manifest of 1 items has 0 values of 1 names"},
		{[]record.Wire{fan(record.Gather{Need: notation.Need{Kind: notation.NeedShare, N: 1_000_001}}), list}, "need: 1000001 is out of range"},
		{[]record.Wire{fan(record.Gather{Need: notation.Need{Kind: notation.NeedCount, N: -1}}), list}, "need: -1 is out of range"},
	} {
		p := record.Package{Tasks: []record.PackageTask{{Name: "r", Wiring: test.wires}}}
		if _, err := record.DecodePackage(p.Encode()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.wires, err, test.want)
		}
	}
}
