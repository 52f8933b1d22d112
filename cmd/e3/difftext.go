package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"e3/cmd/e3/internal/render"
	"e3/cmd/e3/internal/term"
	"e3/internal/human"
	"e3/internal/insight/compare"
	"e3/internal/insight/figures"
)

// diffText writes a difference for people.
type diffText struct {
	w   *render.Sheet
	d   *compare.Difference
	st  term.Style
	all bool
}

// Limits of the differences shown in one section, unless all are requested.
const (
	mostChanges = 20
	mostFiles   = 10
)

func (t *diffText) write() {
	t.side("---", t.st.Red, t.d.A)
	t.side("+++", t.st.Green, t.d.B)
	t.datasets("Inputs", &t.d.Inputs)
	t.tasks()
	t.datasets("Outputs", &t.d.Outputs)
	t.metrics()
	t.durations()
	fmt.Fprintf(t.w, "\n%s\n", t.summary())
}

// line writes a line of clean text.
func (t *diffText) line(format string, args ...any) {
	fmt.Fprintln(t.w, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

func (t *diffText) side(mark, color string, s *compare.Seen) {
	text := human.Line(s.String())
	switch s.What {
	case compare.Workspace:
		text += "  as it is now"
	case compare.Next:
		text += "  what the next start would see"
	default:
		text += fmt.Sprintf("  run %s %s, started %s", human.Short(s.RunID), s.Status, human.Stamp(s.StartedAt.Time))
		if s.Imported {
			text += ", imported"
		}
	}
	if s.Package != "" {
		text += ", " + human.Line(s.Package)
	}
	if s.Git != nil {
		text += ", commit " + human.Line(s.Git.Short())
	}
	t.line("%s%s %s%s", color, mark, text, t.st.EndOf(color))
	for _, note := range s.Notes {
		t.line("    note: %s", strings.ReplaceAll(human.Text(note), "\n", "\n          "))
	}
}

// mark is the mark of a change: +, - or ~.
func (t *diffText) mark(c compare.Change) string {
	sign, color := "~", t.st.Yellow
	switch c {
	case compare.Added:
		sign, color = "+", t.st.Green
	case compare.Removed:
		sign, color = "-", t.st.Red
	}
	return color + sign + t.st.EndOf(color)
}

// shown is the number of elements shown out of n.
func (t *diffText) shown(n, most int) int {
	if t.all {
		return n
	}
	return min(n, most)
}

func (t *diffText) more(indent string, n int, what string) {
	if n > 0 {
		t.line("%s… and %s more", indent, human.Count(n, what))
	}
}

func (t *diffText) datasets(title string, list *compare.Datasets) {
	if len(list.Changes) == 0 && list.Unknown == "" {
		return
	}
	t.w.Section(title)
	if list.Unknown != "" {
		t.line("  ? %s", human.Line(list.Unknown))
	}
	groups := list.Folded()
	if t.all {
		groups = compare.Single(list.Changes, func(c *compare.DatasetChange) string { return c.Name })
	}
	n := t.shown(len(groups), mostChanges)
	width := 0
	for i := range groups[:n] {
		width = max(width, term.Columns(human.Line(groups[i].Name())))
	}
	for i := range groups[:n] {
		g := &groups[i]
		c, name := g.First(), human.Line(g.Name())
		text := human.Line(g.Text((*compare.DatasetChange).Text))
		t.line("  %s %s%s  %s", t.mark(c.Change), name, strings.Repeat(" ", width-term.Columns(name)), text)
		t.items(g.Items(), c.Name, false)
		if c.Files != nil {
			t.files(g)
		}
		if c.Values != nil {
			t.values("      ", c.Values)
		}
	}
	t.more("  ", len(groups)-n, "change")
}

func (t *diffText) files(g *compare.Alike[compare.DatasetChange]) {
	f := g.First().Files
	n := t.shown(len(f.Changes), mostFiles)
	for i := range f.Changes[:n] {
		c := &f.Changes[i]
		t.line("      %s %s  %s", t.mark(c.Change), human.Line(c.Path), human.Line(g.Text(func(d *compare.DatasetChange) string { return d.Files.Changes[i].Text() })))
	}
	t.more("      ", len(f.Changes)-n+f.More, "file")
	if f.Unknown != "" {
		t.line("      ? %s", human.Line(f.Unknown))
	}
}

func (t *diffText) tasks() {
	list := &t.d.Tasks
	if len(list.Changes) == 0 && list.Unknown == "" {
		return
	}
	t.w.Section("Tasks")
	if list.Unknown != "" {
		t.line("  ? %s", human.Line(list.Unknown))
	}
	groups := list.Folded()
	if t.all {
		groups = compare.Single(list.Changes, func(c *compare.TaskChange) string { return c.Name })
	}
	n := t.shown(len(groups), mostChanges)
	for i := range groups[:n] {
		g := &groups[i]
		c := g.First()
		text := ""
		if c.Was != "" || c.Is != "" {
			text = c.Was + " → " + c.Is
			if c.Why != "" {
				text += " (" + human.Line(c.Why) + ")"
			}
		}
		t.line("  %s %s  %s", t.mark(c.Change), human.Line(g.Name()), text)
		t.items(g.Items(), c.Name, len(c.Parts) > 0)
		for j := range c.Parts {
			t.part(&c.Parts[j])
		}
	}
	t.more("  ", len(groups)-n, "change")
}

// items names the items that a line is about, and the one whose declaration is shown.
func (t *diffText) items(items, first string, parts bool) {
	switch {
	case items == "":
	case parts:
		t.line("      %s; of %s:", human.Line(items), human.Line(first))
	default:
		t.line("      %s", human.Line(items))
	}
}

// part shows a changed part of a declaration; of a text with many lines, those that differ.
func (t *diffText) part(p *compare.Part) {
	name := p.Part
	if p.Name != "" {
		name += " " + p.Name
	}
	name = human.Line(name)
	one := func(s string) string { return term.Truncate(human.Line(s), 100) }
	switch {
	case p.Change == compare.Added:
		t.line("      %s %s  %s", t.mark(p.Change), name, one(p.Is))
	case p.Change == compare.Removed:
		t.line("      %s %s  %s", t.mark(p.Change), name, one(p.Was))
	case len(p.Was)+len(p.Is) <= 70 && !strings.Contains(strings.TrimRight(p.Was, "\n")+strings.TrimRight(p.Is, "\n"), "\n"):
		t.line("      %s %s  %s → %s", t.mark(p.Change), name, one(strings.TrimRight(p.Was, "\n")), one(strings.TrimRight(p.Is, "\n")))
	default:
		t.line("      %s %s", t.mark(p.Change), name)
		lines := p.Lines()
		if lines == nil {
			lines = []string{"- " + strings.TrimRight(p.Was, "\n"), "+ " + strings.TrimRight(p.Is, "\n")}
		}
		n := t.shown(len(lines), mostChanges)
		for _, l := range lines[:n] {
			t.w.Ink(10, map[byte]string{'-': t.st.Red, '+': t.st.Green}[l[0]], "%s", one(l))
		}
		t.more("          ", len(lines)-n, "line")
	}
}

func (t *diffText) metrics() {
	if len(t.d.Metrics) == 0 {
		return
	}
	t.w.Section("Metrics")
	list := t.d.FoldedMetrics()
	for i := range list {
		m := &list[i]
		name := m.Family
		if m.Entry != "" {
			name += "." + m.Entry
		}
		if m.File != "" {
			name += ": " + m.File
		}
		t.line("  %s", human.Line(name))
		if m.Unknown != "" {
			t.line("    ? %s", human.Line(m.Unknown))
		}
		n := t.shown(len(m.Rows), mostChanges)
		tab := &render.Table{}
		for k := range m.Rows[:n] {
			c := &m.Rows[k]
			row := []string{cmp.Or(c.Key, "(all of it)"), metricText(c.Was), "→", metricText(c.Is), c.DeltaText()}
			if len(c.Items) > 0 {
				row = append([]string{"[" + fewItems(c.Items) + "]"}, row...)
			}
			tab.Row(row...)
		}
		tab.Write(t.w, "    ")
		t.more("    ", len(m.Rows)-n+m.More, "value")
	}
}

// fewItems names the items that share a value.
func fewItems(items []string) string {
	const most = 3
	if len(items) <= most {
		return strings.Join(items, "; ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:most], "; "), len(items)-most)
}

// values shows values that differ, by their keys.
func (t *diffText) values(indent string, v *compare.Values) {
	n := t.shown(len(v.Changes), mostChanges)
	tab := &render.Table{}
	for j := range v.Changes[:n] {
		c := &v.Changes[j]
		tab.Row(cmp.Or(c.Key, "(all of it)"), metricText(c.Was), "→", metricText(c.Is), c.DeltaText())
	}
	tab.Write(t.w, indent)
	t.more(indent, len(v.Changes)-n+v.More, "value")
}

func metricText(v json.RawMessage) string {
	if v == nil {
		return "(none)"
	}
	return term.Truncate(human.Line(figures.Short(v)), 40)
}

func (t *diffText) durations() {
	d := &t.d.Durations
	tab := &render.Table{}
	for i := range d.Tasks {
		if c := &d.Tasks[i]; c.Notable || t.all {
			tab.Row(c.Task, millis(c.WasMs), "→", millis(c.IsMs), ratioText(c.WasMs, c.IsMs))
		}
	}
	if len(tab.Rows) == 0 {
		return
	}
	t.w.Section("Durations")
	n := t.shown(len(tab.Rows), mostChanges)
	more := len(tab.Rows) - n
	tab.Rows = tab.Rows[:n]
	tab.Row("all that differ", millis(d.WasMs), "→", millis(d.IsMs), ratioText(d.WasMs, d.IsMs))
	if d.RunWasMs > 0 && d.RunIsMs > 0 {
		tab.Row("the run", millis(d.RunWasMs), "→", millis(d.RunIsMs), ratioText(d.RunWasMs, d.RunIsMs))
	}
	tab.Write(t.w, "  ")
	t.more("  ", more, "task")
}

func millis(ms int64) string { return human.Duration(time.Duration(ms) * time.Millisecond) }

func ratioText(was, is int64) string {
	if was == 0 {
		return ""
	}
	return fmt.Sprintf("×%.2f", float64(is)/float64(was))
}

// summary counts the elements that differ and those that do not.
func (t *diffText) summary() string {
	metrics := 0
	for i := range t.d.Metrics {
		metrics += len(t.d.Metrics[i].Changes) + t.d.Metrics[i].More
	}
	differ := numbers(len(t.d.Inputs.Changes), "input", len(t.d.Tasks.Changes), "task", len(t.d.Outputs.Changes), "output", metrics, "metric")
	same := numbers(t.d.Inputs.Same, "input", t.d.Tasks.Same, "task", t.d.Outputs.Same, "output")
	switch {
	case !t.d.Differs && same == "":
		return "No differences"
	case !t.d.Differs:
		return "No differences: the same " + same
	case differ == "" && same == "":
		return "They cannot be compared"
	case differ == "":
		return "The same " + same + "; not all can be compared"
	case same == "":
		return "Different: " + differ
	}
	return "Different: " + differ + "; the same: " + same
}

// numbers formats counts, given as pairs of an int and a word.
func numbers(pairs ...any) string {
	var parts []string
	for i := 0; i < len(pairs); i += 2 {
		if n := pairs[i].(int); n > 0 {
			parts = append(parts, human.Count(n, pairs[i+1].(string)))
		}
	}
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}
