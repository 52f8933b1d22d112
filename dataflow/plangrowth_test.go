package dataflow_test

import (
	"errors"
	"fmt"
	"testing"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/internal/format/record"
)

// A plan says of which tasks it knows no more than the items of last time, and which it does not know at all.
func TestPlanOfGrowth(t *testing.T) {
	d := define("split", "fit/split: prep", "prep", "merge: fit*", "other")
	at := func(known lists, w *world, x string, failed map[string]error) string {
		t.Helper()
		pkg, growing := d.expand(known)
		g, err := graph.NewGrowing(pkg, growing)
		if err != nil {
			t.Fatal(err)
		}
		p := planned(t, g, w, func(o *dataflow.PlanOptions) {
			o.Inputs, o.Failed = record.Node{{Name: "x", Leaf: value(x)}}, failed
		})
		text := steps(graphOf(t, pkg), p)
		for _, e := range p.Growing {
			text += fmt.Sprintf("; %s %v %d", e.Name, e.Pending, e.Tasks)
			for _, i := range e.Waits {
				text += " " + g.Name(i)
			}
			if e.Err != nil {
				text += ": " + e.Err.Error()
			}
		}
		return text
	}
	w, g := newWorld(), &grower{}
	known := lists{"split": {"a", "b"}}
	for _, test := range []struct {
		name, got, want string
	}{
		{"nothing known", at(nil, w, "x", nil), "split run, prep run, other run; fit true 0 split; merge true 0 split"},
		{"items of last time", at(known, w, "x", nil),
			"split run, fit[a] waits(prep split), fit[b] waits(prep split), prep run, merge waits(fit[a] fit[b] split), other run; split's false 3 split"},
	} {

		if test.got != test.want {
			t.Errorf("with %s the plan is\n%s\nwant\n%s", test.name, test.got, test.want)
		}
	}
	grow(t.Context(), t, d, g, w, nil)
	items := ""
	for range g.known["split"] {
		items += "hit "
	}
	pkg, growing := d.expand(g.known)
	gr, err := graph.NewGrowing(pkg, growing)
	if err != nil {
		t.Fatal(err)
	}
	p := planned(t, gr, w, nil)
	if p.Hits != len(pkg.Tasks) || p.Growing != nil {
		t.Errorf("afterwards %d of %d are hits; growing %+v", p.Hits, len(pkg.Tasks), p.Growing)
	}
	got := at(nil, w, "x", map[string]error{"fit": errors.New("bad")})
	if want := "split hit, prep hit, other hit; fit true 0: bad; merge true 0"; got != want {
		t.Errorf("with a bad list the plan is\n%s\nwant\n%s", got, want)
	}
	made, err := dataflow.Made(t.Context(), gr, w.objects, w, oneInput, 0)
	if err != nil || len(made) != 1 || made[0].Source != "split" || len(made[0].Outputs) != 1 || made[0].Outputs[0].Task != "split" {
		t.Errorf("known lists are %+v, %v", made, err)
	}
	if made, err := dataflow.Made(t.Context(), gr, w.objects, newWorld(), oneInput, 0); err != nil || len(made) != 0 {
		t.Errorf("without answers %+v are known, %v", made, err)
	}
}
