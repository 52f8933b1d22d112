package compare_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"e3/internal/insight/compare"
)

// Items of a family that differ alike are one, whatever their number; items that differ otherwise, and tasks that are no items, stay apart.
// Changes are said in a few lines, causes first.
func TestFolded(t *testing.T) {
	percent, delta := -50.0, -0.1
	d := &compare.Difference{Inputs: compare.Datasets{Changes: []compare.DatasetChange{{
		Name: "rate", Change: compare.Changed, Was: &compare.Dataset{Value: json.RawMessage("0.1")}, Is: &compare.Dataset{Value: json.RawMessage("0.2")},
	}}}}
	for i := range 40 {
		name := fmt.Sprintf("train[%d]", i)
		c := compare.TaskChange{Name: name, Change: compare.Changed, Parts: []compare.Part{{Part: "command", Was: fmt.Sprint("old ", i), Is: fmt.Sprint("new ", i)}}}
		if i == 7 {
			c.Was, c.Is, c.Why = "success", "failed", "exit code 3"
		}
		d.Tasks.Changes = append(d.Tasks.Changes, c)
		d.Outputs.Changes = append(d.Outputs.Changes, compare.DatasetChange{Name: name, Change: compare.Changed})
		m := compare.Metric{Key: "loss", Change: compare.Changed, Was: json.RawMessage("0.2"), Is: json.RawMessage("0.1"), Delta: &delta, Percent: &percent}
		if i > 30 {
			m.Was = json.RawMessage(fmt.Sprintf("0.%d", i))
		}
		d.Metrics = append(d.Metrics, compare.Metrics{Task: name, Changes: []compare.Metric{m}, Same: 2})
		d.Durations.Tasks = append(d.Durations.Tasks, compare.Duration{Task: name, WasMs: 1_000, IsMs: 2_000, Notable: true})
	}
	d.Tasks.Changes = append(d.Tasks.Changes, compare.TaskChange{Name: "sum", Change: compare.Added})
	d.Durations.Tasks = append(d.Durations.Tasks, compare.Duration{Task: "sum", WasMs: 100, IsMs: 200})
	var names []string
	for _, g := range d.Tasks.Folded() {
		names = append(names, g.Name())
	}
	if want := []string{"train, 39 items", "train[7]", "sum"}; !slices.Equal(names, want) {
		t.Errorf("tasks are %q, want %q", names, want)
	}
	if g := d.Outputs.Folded(); len(g) != 1 || g[0].Name() != "train, 40 items" || !strings.HasSuffix(g[0].Items(), "and 32 more") {
		t.Errorf("outputs are %+v, want one line of 40 items", g)
	}
	if m := d.FoldedMetrics(); len(m) != 1 || len(m[0].Rows) != 10 || m[0].Same != 80 || len(m[0].Rows[0].Items) != 31 {
		t.Errorf("metrics are %+v, want a family of ten values, the first of 31 items", m)
	}
	if f := d.Durations.Folded(); len(f) != 2 || f[0] != (compare.FamilyTimes{Name: "train", Tasks: 40, Was: 40_000, Is: 80_000, Notable: 40}) || f[1].Name != "sum" {
		t.Errorf("durations are %+v, want those of train and of sum", f)
	}
	want := []string{
		"Input rate: 0.1 → 0.2", "Task train, 39 items: its command differs", "Task train[7]: its command differs", "Task sum: added",
		"Task train[7]: was success, is failed (exit code 3)", "Metric train loss: -50.0% in 40 items",
	}
	if got := d.Said(); !slices.Equal(got, want) {
		t.Errorf("it says\n%q, want\n%q", got, want)
	}
}
