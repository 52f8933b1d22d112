package ui

import (
	"encoding/json"
	"fmt"
	"strings"

	"e3/internal/human"
	"e3/internal/insight/compare"
	"e3/internal/insight/figures"
	h "e3/internal/insight/markup"
	"e3/internal/insight/runview"
)

func (b *compareBody) page(f *frame) h.Node {
	head := h.Group{h.El("h1", h.Line(f.Workspace), h.Text(": compare")), h.If(!f.Static, b.form(f))}
	if b.D == nil {
		return append(head, h.El("p.lead", h.Text("There is only one run yet.")))
	}
	return append(head, b.said(), b.sides(f),
		section("params", "Inputs and parameters", datasets(&b.D.Inputs)),
		b.metrics(),
		section("outputs", "Outputs", datasets(&b.D.Outputs)),
		b.tasks(f), b.durations(f))
}

// form chooses the sides.
func (b *compareBody) form(f *frame) h.Node {
	options := h.Map(b.Runs, func(r *runview.Report) h.Node {
		return h.El("option", h.Attr("value", f.Workspace+"@"+r.RunID), h.Text(stamp(r.StartedAt)+" "+r.Status()))
	})
	var usual []tab
	for _, q := range []struct{ name, a, b string }{
		{"the latest run and the one before", "", ""},
		{"the latest run and what the next start sees", f.Workspace + "@", "@next"},
		{"the latest run and the workspace now", f.Workspace + "@", f.Workspace},
	} {
		usual = append(usual, tab{q.name, f.With("a", q.a, "b", q.b), q.a == f.Place.get("a") && q.b == f.Place.get("b")})
	}
	usual = append(usual, tab{Name: "many side by side", URL: f.To(viewTable, "sides", f.Workspace+" *")})
	return h.Group{
		navigation("streams", "Usual comparisons", usual),
		h.El("form.filter", h.Attr("method", "get"), h.Attr("action", "/compare"), h.Attr("aria-label", "Sides"),
			hidden("w", f.Workspace),
			input("A", "a", b.A, 28, h.Attr("list", "sides")), h.Text(" "), input("B", "b", b.B, 28, h.Attr("list", "sides")),
			h.El("datalist", h.ID("sides"), options), h.Text(" "), button("Compare")),
	}
}

// sides says what the two sides are.
func (b *compareBody) sides(f *frame) h.Node {
	line := func(name string, of func(s *compare.Seen) h.Node) h.Node {
		return h.El("tr", rowHead(h.Text(name)), h.El("td", of(b.D.A)), h.El("td", of(b.D.B)))
	}
	took := map[*compare.Seen]int64{b.D.A: b.D.Durations.RunWasMs, b.D.B: b.D.Durations.RunIsMs}
	return h.El("section", h.Attr("aria-label", "The two sides"), table("The two sides", "sides", "The two sides",
		h.Group{h.El("td"), h.El("th", h.Attr("scope", "col"), h.Text("A: "), h.Line(b.A)),
			h.El("th", h.Attr("scope", "col"), h.Text("B: "), h.Line(b.B))},
		h.Group{
			line("Run", func(s *compare.Seen) h.Node {
				return h.Group{h.Class("mono"), h.If(s.RunID != "",
					link(f.To(viewRun, "w", s.Workspace, "r", s.RunID), h.Text(short(s.RunID))))}
			}),
			line("Status", func(s *compare.Seen) h.Node { return h.If(s.Status != "", state(s.Status)) }),
			line("Package", func(s *compare.Seen) h.Node { return h.Line(s.Package) }),
			h.If(b.D.A.Git != nil || b.D.B.Git != nil, line("Commit", func(s *compare.Seen) h.Node { return h.Line(s.Git.String()) })),
			line("Started", func(s *compare.Seen) h.Node { return h.Text(stamp(s.StartedAt.Time)) }),
			line("Duration", func(s *compare.Seen) h.Node { return h.If(took[s] > 0, h.Text(millis(took[s]))) }),
		}))
}

// said is what changed, in a few lines.
func (b *compareBody) said() h.Node {
	said := b.D.Said()
	if d := &b.D.Durations; d.RunWasMs > 0 && d.RunIsMs > 0 {
		said = append(said, fmt.Sprintf("Duration: %s → %s", millis(d.RunWasMs), millis(d.RunIsMs)))
	}
	return section("said", "What changed", h.If(!b.D.Differs, h.El("p.lead", h.Text("Nothing differs but times."))), items(said, h.Class("plain")))
}

// datasets are the inputs or the outputs that differ, items that differ alike as one.
func datasets(d *compare.Datasets) h.Node {
	rows := make(h.Group, 0, len(d.Changes))
	for _, g := range d.Folded() {
		c := g.First()
		rows = append(rows, h.El("tr", itemHead(g.Name(), g.Items(), nil), cell("td", string(c.Change)), cell("td", g.Text((*compare.DatasetChange).Text))))
		if c.Values != nil {
			rows = append(rows, h.Map(c.Values.Changes, func(v compare.Metric) h.Node {
				return h.El("tr.sub", rowHead(h.Line(v.Key)), cell("td", string(v.Change)), cell("td", valueText(v.Was)+" → "+valueText(v.Is)))
			}))
		}
		if c.Files != nil {
			for i, x := range c.Files.Changes {
				rows = append(rows, h.El("tr.sub", rowHead(h.Line(x.Path)), cell("td", string(x.Change)),
					cell("td", g.Text(func(d *compare.DatasetChange) string { return d.Files.Changes[i].Text() }))))
			}
			rows = append(rows, h.If(c.Files.More > 0, h.El("tr.sub", rowHead(h.Text("and "+human.Count(c.Files.More, "more file"))), h.El("td"), h.El("td"))))
		}
	}
	return h.Group{
		h.If(len(rows) > 0, table("Values that differ", "flow", "", heads("Name", "Change", "Difference"), rows)),
		sameNote(len(d.Changes), d.Same, d.Unknown),
	}
}

// valueText is a value of a mapping; a side may lack it.
func valueText(v json.RawMessage) string {
	if v == nil {
		return "none"
	}
	return figures.Short(v)
}

// itemHead is the head of a row of a task, or of items of a family, which it names.
func itemHead(name, items string, url func(string) h.Node) h.Node {
	label := h.Line(name)
	if url != nil && items == "" {
		label = url(name)
	}
	return rowHead(label, h.If(items != "", h.El("br"), dim(items)))
}

// sameNote says how many are alike, apart from the differing ones, and what cannot be compared.
func sameNote(differ, same int, unknown string) h.Node {
	text := sameText(differ, same)
	if unknown != "" {
		text += "; " + unknown
	}
	return note(text)
}

func (b *compareBody) metrics() h.Node {
	if len(b.D.Metrics) == 0 {
		return section("metrics", "Metrics", note("No metric differs."))
	}
	return section("metrics", "Metrics", h.El("div.cards", h.Map(b.D.FoldedMetrics(), metricsCard)))
}

// maxMetricRows bounds the rows of a family that are open at first.
const maxMetricRows = 12

// metricsCard is the metrics of a file of a task, or of the items of a family, that differ.
func metricsCard(m compare.MetricsOf) h.Node {
	title, family := m.Family, false
	for i := range m.Rows {
		family = family || len(m.Rows[i].Items) > 0
	}
	if m.Entry != "" {
		title += " · " + m.Entry
	}
	if m.File != "" {
		title += " · " + m.File
	}
	said := sameText(len(m.Rows), m.Same)
	if m.More > 0 {
		said += fmt.Sprintf(", %d more differ", m.More)
	}
	if m.Unknown != "" {
		said += "; " + m.Unknown
	}
	var was, is []string
	for _, c := range m.Rows {
		was, is = append(was, figures.Short(c.Was)), append(is, figures.Short(c.Is))
	}
	wasAligned, isAligned := alignedTexts(was), alignedTexts(is)
	rows := make(h.Group, len(m.Rows))
	for i := range m.Rows {
		c := &m.Rows[i]
		rows[i] = h.El("tr", rowHead(h.Line(c.Key)), h.If(family, cell("td", human.Few(c.Items))), h.El("td.num", h.Attr("title", figures.Text(c.Was)), wasAligned[i]),
			h.El("td.num", h.Attr("title", figures.Text(c.Is)), isAligned[i]), number(c.DeltaText()))
	}
	columns := heads("Key", "A.num", "B.num", "Change.num")
	if family {
		columns = heads("Key", "Item", "A.num", "B.num", "Change.num")
	}
	shown := func(rows h.Group) h.Node { return table("Metrics that differ", "", "", columns, rows) }
	first := min(len(rows), maxMetricRows)
	return h.El("article.figure", h.El("h3", h.Line(title)), shown(rows[:first]),
		h.If(len(rows) > first, h.El("details.folded", h.El("summary", h.Text(human.Count(len(rows)-first, "more value")+" that differ")), shown(rows[first:]))), note(said))
}

// maxDiffLines bounds the lines of a text that differs.
const maxDiffLines = 60

func (b *compareBody) tasks(f *frame) h.Node {
	t := &b.D.Tasks
	outcome := func(side, status, why string) h.Node {
		return h.El("td", h.Attr("data-l", side), h.If(status != "", state(status)), h.If(why != "" && status != "" && status != "success", h.Text(" "), dim(why)))
	}
	rows := h.Map(t.Folded(), func(g compare.Alike[compare.TaskChange]) h.Node {
		c := g.First()
		parts := h.Map(c.Parts, func(p compare.Part) h.Node {
			what := p.Part
			if p.Name != "" {
				what += " " + p.Name
			}
			if lines := p.Lines(); lines != nil {
				shown := human.Text(strings.Join(lines[:min(len(lines), maxDiffLines)], "\n"))
				return h.Group{h.El("br"), dim(what), h.El("pre", h.Text(shown)), note(textIf(len(lines) > maxDiffLines, "and "+human.Count(len(lines)-maxDiffLines, "more line")))}
			}
			return h.Group{h.El("br"), dim(fmt.Sprintf("%s: %s → %s", what, p.Was, p.Is))}
		})
		said := string(c.Change)
		if len(g.Names) > 1 && len(c.Parts) > 0 {
			said += ", for example " + g.Names[0]
		}
		whyWas, whyIs := c.Why, c.Why
		if c.Is != "" && c.Is != "success" {
			whyWas = ""
		}
		return h.El("tr", itemHead(g.Name(), g.Items(), func(name string) h.Node { return f.taskLink(name) }), h.El("td", h.Line(said), parts),
			outcome("A", c.Was, whyWas), outcome("B", c.Is, whyIs))
	})
	return section("tasks", "Tasks",
		h.If(len(t.Changes) > 0, table("Tasks that differ", "flow", "", heads("Task", "Change", "A", "B"), rows)),
		sameNote(len(t.Changes), t.Same, t.Unknown))
}

func (b *compareBody) durations(f *frame) h.Node {
	d := &b.D.Durations
	rows := h.Map(d.Folded(), func(t compare.FamilyTimes) h.Node {
		ratio, name := textIf(t.Was > 0, fmt.Sprintf("%.2f", float64(t.Is)/float64(max(t.Was, 1)))), h.Line(t.Name)
		if t.Tasks == 1 {
			name = f.taskLink(t.Name, "view", taskHistory)
		} else {
			name = h.Group{name, h.Text(" "), dim(human.Count(t.Tasks, "item"))}
		}
		return h.El("tr", h.If(t.Notable > 0, h.Class("now")), rowHead(name),
			number(millis(t.Was)), number(millis(t.Is)),
			h.El("td.num", h.Text(ratio), h.If(t.Notable > 0, h.Text(" "), h.El("b", h.Text("!")), away(" notable"))))
	})
	return section("dur", "Durations",
		h.If(len(d.Tasks) > 0,
			table("Durations that differ", "", "", heads("Task or family", "A.num", "B.num", "Ratio.num"), rows)),
		note(fmt.Sprintf("All of these together: %s and %s", millis(d.WasMs), millis(d.IsMs))))
}
