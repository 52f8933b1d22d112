package compare

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"e3/internal/format/record"
	"e3/internal/insight/figures"
)

// metrics compares the files of metrics of outputs that both sides have.
func (c *comparison) metrics(d *Difference) error {
	marked := map[string][]record.View{} // by task: views of either side
	for _, side := range []*side{c.was, c.is} {
		if side.pkg == nil {
			continue
		}
		for i := range side.pkg.Tasks {
			t := &side.pkg.Tasks[i]
			for _, v := range t.Policy.Views {
				same := func(w record.View) bool { return w.Entry == v.Entry && w.Path == v.Path }
				if v.Kind == record.ViewMetrics && !slices.ContainsFunc(marked[t.Name], same) {
					marked[t.Name] = append(marked[t.Name], v)
				}
			}
		}
	}
	for i := range d.Outputs.Changes {
		name := d.Outputs.Changes[i].Name
		was, ok := c.was.outputs.leaves[name]
		is, also := c.is.outputs.leaves[name]
		if !ok || !also {
			continue
		}
		if err := c.metricsOf(d, name, marked[name], was, is); err != nil {
			return fmt.Errorf("metrics of %s: %w", name, err)
		}
	}
	return nil
}

// metricsOf compares the files of metrics of a task.
func (c *comparison) metricsOf(d *Difference, task string, views []record.View, was, is record.Leaf) error {
	type place struct{ entry, file string }
	files := map[place]*[2]viewed{}
	for i := range views {
		for k, leaf := range []record.Leaf{was, is} {
			list, err := find(c.ctx, c.objects, &views[i], leaf)
			if err != nil {
				return err
			}
			for _, f := range list {
				at := place{f.Entry, f.file()}
				if files[at] == nil {
					files[at] = &[2]viewed{}
				}
				files[at][k] = f
			}
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(files), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.entry, b.entry), cmp.Compare(a.file, b.file))
	}) {
		m, err := c.metricsFile(files[at])
		if err != nil {
			return err
		}
		if m != nil {
			m.Task, m.Entry, m.File = task, at.entry, at.file
			d.Metrics = append(d.Metrics, *m)
		}
	}
	return nil
}

// metricsFile compares a file of both sides; nil if no value differs.
func (c *comparison) metricsFile(sides *[2]viewed) (*Metrics, error) {
	if sides[0].lost == "" && sides[1].lost == "" && sides[0].Hash == sides[1].Hash {
		return nil, nil
	}
	var values [2]map[string]json.RawMessage
	for k := range sides {
		var err error
		if values[k], err = sides[k].values(c.ctx, c.objects); err != nil {
			return nil, err
		}
	}
	m := &Metrics{Changes: []Metric{}, Unknown: join(sides[0].lost, sides[1].lost)}
	if m.Unknown != "" {
		return m, nil
	}
	v := compareValues(values[0], values[1])
	if len(v.Changes) == 0 {
		return nil, nil // other bytes, the same values
	}
	m.Changes, m.Same, m.More = v.Changes, v.Same, v.More
	return m, nil
}

// compareValues compares values by their keys.
func compareValues(was, is map[string]json.RawMessage) *Values {
	v := &Values{Changes: []Metric{}}
	keys := maps.Clone(was)
	maps.Copy(keys, is)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		change, differs := compareMetric(key, was[key], is[key])
		switch {
		case !differs:
			v.Same++
		case len(v.Changes) < MaxMetrics:
			v.Changes = append(v.Changes, change)
		default:
			v.More++
		}
	}
	return v
}

// compareMetric compares two values; one may be missing.
func compareMetric(key string, was, is json.RawMessage) (m Metric, differs bool) {
	m = Metric{Key: key, Was: was, Is: is, Change: Changed}
	switch {
	case was == nil:
		m.Change = Added
		return m, true
	case is == nil:
		m.Change = Removed
		return m, true
	case bytes.Equal(was, is):
		return m, false
	}
	if a, b, ok := integers(was, is); ok {
		delta := float64(b) - float64(a)
		if d := b - a; (d > 0) == (b > a) { // no overflow
			delta = float64(d)
		}
		m.differ(float64(a), delta)
		return m, true
	}
	a, okA := figures.Number(was)
	b, okB := figures.Number(is)
	if !okA || !okB {
		return m, true
	}
	if a == b && !(whole(was) && whole(is)) {
		return m, false // 1.0 and 1
	}
	m.differ(a, b-a)
	return m, true
}

// DeltaText is the change of a number, also in percent of the first value; "" if a value is no number.
func (m *Metric) DeltaText() string {
	if m.Delta == nil {
		return ""
	}
	text := figures.ShortNumber(*m.Delta)
	if *m.Delta > 0 {
		text = "+" + text
	}
	if m.Percent != nil {
		text += fmt.Sprintf(" (%+.1f%%)", *m.Percent)
	}
	return text
}

func (m *Metric) differ(was, delta float64) {
	if math.IsInf(delta, 0) || math.IsNaN(delta) {
		return
	}
	m.Delta = &delta
	if percent := delta / math.Abs(was) * 100; was != 0 && !math.IsInf(percent, 0) {
		m.Percent = &percent
	}
}

func integers(a, b json.RawMessage) (x, y int64, ok bool) {
	x, errA := strconv.ParseInt(string(a), 10, 64)
	y, errB := strconv.ParseInt(string(b), 10, 64)
	return x, y, errA == nil && errB == nil
}

// whole reports whether a number is written without a fraction or an exponent.
func whole(text json.RawMessage) bool { return !bytes.ContainsAny(text, ".eE") }
