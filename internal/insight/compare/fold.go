package compare

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"e3/internal/human"
	"e3/internal/insight/figures"
	"e3/internal/insight/runview"
)

// Alike are changes of the items of a family that are alike: people see them as one.
type Alike[T any] struct {
	Changes []*T
	Names   []string // of the tasks or datasets
}

// First is the first of the changes.
func (a *Alike[T]) First() *T { return a.Changes[0] }

// Name names what has changed: one task, or so many items of a family.
func (a *Alike[T]) Name() string {
	if len(a.Names) == 1 {
		return a.Names[0]
	}
	family, _, entry := parted(a.Names[0])
	return fmt.Sprintf("%s%s, %s", family, entry, human.Count(len(a.Names), "item"))
}

// Items names the items; "" for a single one.
func (a *Alike[T]) Items() string {
	if len(a.Names) == 1 {
		return ""
	}
	labels := make([]string, len(a.Names))
	for i, name := range a.Names {
		_, labels[i], _ = parted(name)
	}
	return human.Few(labels)
}

// Text is a text that the changes have in common, or says that they have none.
func (a *Alike[T]) Text(of func(*T) string) string {
	text := of(a.First())
	for _, c := range a.Changes[1:] {
		if of(c) != text {
			return "other content, which differs from item to item"
		}
	}
	return text
}

// parted are the parts of a task's name, or of a name of its outputs: the family, the label, and the entry with its point.
func parted(name string) (family, label, entry string) {
	family, rest, _ := strings.Cut(name, "[")
	if i := strings.LastIndexByte(rest, ']'); i >= 0 {
		rest, entry = rest[:i], rest[i+1:]
	}
	return family, rest, entry
}

// folded joins the changes of a family whose keys are the same, in the order of the first of each.
func folded[T any](list []T, name func(*T) string, key func(*T) string) []Alike[T] {
	var groups []Alike[T]
	at := map[string]int{}
	for i := range list {
		x := &list[i]
		k := name(x) + "\x00"
		if family, label, entry := parted(name(x)); label != "" {
			k = family + "\x00" + entry + "\x00" + key(x)
		}
		g, known := at[k]
		if !known {
			g = len(groups)
			at[k] = g
			groups = append(groups, Alike[T]{})
		}
		groups[g].Changes, groups[g].Names = append(groups[g].Changes, x), append(groups[g].Names, name(x))
	}
	return groups
}

// Single are changes one by one.
func Single[T any](list []T, name func(*T) string) []Alike[T] {
	groups := make([]Alike[T], len(list))
	for i := range list {
		groups[i] = Alike[T]{[]*T{&list[i]}, []string{name(&list[i])}}
	}
	return groups
}

// Folded are the changes of tasks, those of items that are alike as one: the same parts of their declarations differ, and they ended the
// same way. The two values of a part may differ from item to item.
func (t *Tasks) Folded() []Alike[TaskChange] {
	return folded(t.Changes, func(c *TaskChange) string { return c.Name }, func(c *TaskChange) string {
		key := fmt.Sprintf("%s\x00%s\x00%s\x00%s", c.Change, c.Was, c.Is, c.Why)
		for _, p := range c.Parts {
			key += fmt.Sprintf("\x00%s\x00%s\x00%s", p.Part, p.Name, p.Change)
		}
		return key
	})
}

// Folded are the datasets that differ, those of items as one if the same files of them differ, but one by one if values within
// them are told.
func (d *Datasets) Folded() []Alike[DatasetChange] {
	return folded(d.Changes, func(c *DatasetChange) string { return c.Name }, func(c *DatasetChange) string {
		if c.Values != nil {
			return c.Name
		}
		key := string(c.Change)
		if c.Files != nil {
			for _, f := range c.Files.Changes {
				key += fmt.Sprintf("\x00%s\x00%s", f.Change, f.Path)
			}
			key += fmt.Sprintf("\x00%d\x00%s", c.Files.More, c.Files.Unknown)
		}
		return key
	})
}

// MetricsOf are the metrics that differ in one file of a task, or in the same file of all items of a family.
type MetricsOf struct {
	Family, Entry, File string
	Rows                []MetricRow
	Same, More          int
	Unknown             string
}

// A MetricRow is a metric that differs, in all items of a family in which it was the same, and is the same.
type MetricRow struct {
	Metric
	Items []string // labels; none for a task that is no item
}

// FoldedMetrics are the metrics that differ, by family: first the keys that differ most in percent, by key and size of the change.
func (d *Difference) FoldedMetrics() []MetricsOf {
	var list []MetricsOf
	at := map[[3]string]int{}
	for i := range d.Metrics {
		m := &d.Metrics[i]
		base, label := splitLabel(m.Task)
		place := [3]string{base, m.Entry, m.File}
		k, known := at[place]
		if !known {
			k = len(list)
			at[place] = k
			list = append(list, MetricsOf{Family: base, Entry: m.Entry, File: m.File})
		}
		of := &list[k]
		of.Same, of.More, of.Unknown = of.Same+m.Same, of.More+m.More, join(of.Unknown, m.Unknown)
		for _, c := range m.Changes {
			same := func(r MetricRow) bool {
				return r.Key == c.Key && string(r.Was) == string(c.Was) && string(r.Is) == string(c.Is)
			}
			if row := slices.IndexFunc(of.Rows, same); row >= 0 && len(of.Rows) < MaxMetrics {
				of.Rows[row].Items = append(of.Rows[row].Items, label)
				continue
			}
			row := MetricRow{Metric: c}
			if label != "" {
				row.Items = []string{label}
			}
			of.Rows = append(of.Rows, row)
		}
	}
	for k := range list {
		slices.SortStableFunc(list[k].Rows, func(a, b MetricRow) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(b.size(), a.size()))
		})
	}
	return list
}

// size is how much a metric differs.
func (m *Metric) size() float64 {
	switch {
	case m.Percent != nil:
		return math.Abs(*m.Percent)
	case m.Delta != nil:
		return math.Abs(*m.Delta)
	}
	return math.Inf(1)
}

// maxSaid bounds the lines of what changed, for each kind.
const maxSaid = 4

// Said is what changed in a few lines, causes first: inputs, declarations, how tasks ended, metrics. They are untrusted text.
func (d *Difference) Said() []string {
	var list []string
	some := func(lines []string, what string) {
		list = append(list, lines[:min(len(lines), maxSaid)]...)
		if n := len(lines) - maxSaid; n > 0 {
			list = append(list, "and "+human.Count(n, "more "+what))
		}
	}
	var inputs, declared, ended, metrics []string
	for _, g := range d.Inputs.Folded() {
		inputs = append(inputs, "Input "+g.Name()+": "+inputText(g.First()))
	}
	for _, g := range d.Tasks.Folded() {
		c := g.First()
		if c.Change != Changed {
			declared = append(declared, fmt.Sprintf("Task %s: %s", g.Name(), c.Change))
		} else if len(c.Parts) > 0 {
			declared = append(declared, fmt.Sprintf("Task %s: its %s", g.Name(), partsText(c.Parts)))
		}
		if c.Was != "" {
			text := fmt.Sprintf("Task %s: was %s, is %s", g.Name(), c.Was, c.Is)
			if c.Why != "" {
				text += " (" + c.Why + ")"
			}
			ended = append(ended, text)
		}
	}
	for _, m := range d.FoldedMetrics() {
		metrics = append(metrics, m.said()...)
	}
	some(inputs, "input")
	some(declared, "changed task")
	some(ended, "task that ended otherwise")
	some(metrics, "metric")
	return list
}

// inputText says how an input differs.
func inputText(c *DatasetChange) string {
	switch {
	case c.Change != Changed:
		return string(c.Change)
	case c.Values != nil && len(c.Values.Changes) > 0:
		var parts []string
		for _, v := range c.Values.Changes[:min(len(c.Values.Changes), maxSaid)] {
			parts = append(parts, fmt.Sprintf("%s %s → %s", v.Key, short(v.Was), short(v.Is)))
		}
		if n := len(c.Values.Changes) + c.Values.More - len(parts); n > 0 {
			parts = append(parts, human.Count(n, "more value"))
		}
		return strings.Join(parts, ", ")
	case c.Files != nil:
		return human.Count(c.Files.Added+c.Files.Removed+c.Files.Changed, "file") + " changed"
	case c.Was != nil && c.Is != nil && len(c.Was.Value) > 0 && len(c.Is.Value) > 0:
		return short(c.Was.Value) + " → " + short(c.Is.Value)
	}
	return "other content"
}

func short(v json.RawMessage) string {
	if v == nil {
		return "none"
	}
	return human.Truncate(figures.Short(v), 60)
}

// partsText names the parts of a declaration that differ.
func partsText(parts []Part) string {
	var names []string
	for _, p := range parts {
		if name := strings.TrimSpace(p.Part + " " + p.Name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 1 {
		return names[0] + " differs"
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1] + " differ"
}

// said says how each key differs: by how much in which number of items.
func (m *MetricsOf) said() []string {
	keys := map[string][]*MetricRow{}
	for i := range m.Rows {
		keys[m.Rows[i].Key] = append(keys[m.Rows[i].Key], &m.Rows[i])
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		rows, items := keys[key], 0
		least, most := math.Inf(1), math.Inf(-1)
		for _, r := range rows {
			items += max(len(r.Items), 1)
			if r.Percent == nil {
				least = math.NaN()
				continue
			}
			least, most = min(least, *r.Percent), max(most, *r.Percent)
		}
		name := strings.TrimSpace(m.Family + " " + cmp.Or(key, m.File))
		switch first := rows[0]; {
		case len(rows) == 1 && items == 1:
			lines = append(lines, fmt.Sprintf("Metric %s: %s → %s  %s", name, short(first.Was), short(first.Is), first.DeltaText()))
		case math.IsNaN(least) || math.IsInf(least, 1):
			lines = append(lines, fmt.Sprintf("Metric %s: differs in %s", name, human.Count(items, "item")))
		case least == most:
			lines = append(lines, fmt.Sprintf("Metric %s: %+.1f%% in %s", name, most, human.Count(items, "item")))
		default:
			lines = append(lines, fmt.Sprintf("Metric %s: %+.1f%% to %+.1f%% in %s", name, least, most, human.Count(items, "item")))
		}
	}
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

// FamilyTimes are the durations of a family's tasks that both sides executed.
type FamilyTimes struct {
	Name    string // a task, or a family
	Tasks   int
	Was, Is int64 // ms
	Notable int   // of the tasks
}

// Folded are the durations by family, those first that differ most.
func (d *Durations) Folded() []FamilyTimes {
	var list []FamilyTimes
	at := map[string]int{}
	for _, t := range d.Tasks {
		name := runview.FamilyOf(t.Task)
		k, known := at[name]
		if !known {
			k = len(list)
			at[name] = k
			list = append(list, FamilyTimes{Name: t.Task})
		}
		f := &list[k]
		if f.Tasks++; f.Tasks > 1 {
			f.Name = name
		}
		f.Was, f.Is = f.Was+t.WasMs, f.Is+t.IsMs
		if t.Notable {
			f.Notable++
		}
	}
	apart := func(f *FamilyTimes) int64 { return max(f.Was-f.Is, f.Is-f.Was) }
	slices.SortStableFunc(list, func(a, b FamilyTimes) int { return cmp.Compare(apart(&b), apart(&a)) })
	return list
}
