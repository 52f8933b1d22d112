package ui

import (
	"slices"
	"strings"

	"e3/internal/human"
	"e3/internal/insight/compare"
	h "e3/internal/insight/markup"
)

func (b *tableBody) page(f *frame) h.Node {
	quick := b.quick(f)
	form := h.El("form.filter", h.Attr("method", "get"), h.Attr("action", "/experiments"),
		h.Attr("aria-label", "What is compared"),
		hidden("sort", f.Place.get("sort")),
		input("Workspaces and runs", "sides", b.Sides, 28, h.Attr("placeholder", "dev exp* dev@-1")), h.Text(" "),
		input("Best", "best", f.Place.get("best"), 16, h.Attr("placeholder", "loss=lower")), h.Text(" "),
		checkbox("all", "parameters that are the same, too", f.Place.get("all") != ""), h.Text(" "), button("Compare"))
	return h.Group{
		h.El("h1", h.Text("Experiments")), h.If(len(quick) > 1, navigation("streams", "Families of workspaces", quick)), form,
		b.table(f),
		h.If(len(b.Notes) > 0, h.El("ul.plain", h.Map(b.Notes, func(s string) h.Node { return h.El("li.dim", h.Line(s)) }))),
	}
}

// quick offers all workspaces, and families of workspaces, whose names differ in digits at their ends.
func (b *tableBody) quick(f *frame) []tab {
	families := map[string]int{}
	for _, n := range b.Names {
		if base := strings.TrimRight(n, "0123456789"); base != n && base != "" {
			families[base]++
		}
	}
	patterns := []string{"*"}
	for _, n := range b.Names {
		if base := strings.TrimRight(n, "0123456789"); families[base] > 1 && len(patterns) < 8 {
			patterns = append(patterns, base+"*")
			delete(families, base)
		}
	}
	var list []tab
	for _, p := range patterns {
		list = append(list, tab{p, f.With("sides", p, "sort", ""), p == b.Sides})
	}
	return list
}

func (b *tableBody) table(f *frame) h.Node {
	if b.Table == nil || len(b.Table.Rows) == 0 {
		return h.El("p.lead", h.Text("There are no workspaces yet; make an experiment with: "),
			h.El("code", h.Text("e3 start . dev --as exp1 --set rate=0.2")))
	}
	t := b.Table
	columns := []column{{name: "side", key: "side"}}
	if t.HasItems() {
		columns = append(columns, column{name: "item", key: "item"})
	}
	for _, name := range t.Params {
		columns = append(columns, column{name: name, key: name})
	}
	marked := false
	for _, c := range t.Metrics {
		columns = append(columns, column{name: c.Name, key: c.Name, class: "num"})
		marked = marked || len(c.Best) > 0
	}
	columns = append(columns, column{name: "time", key: "time", class: "num"})
	rows := make(h.Group, min(len(t.Rows), maxRowsOf))
	for i := range rows {
		rows[i] = trial(f, t, i)
	}
	return section("table", human.Count(len(t.Rows), "row"),
		table("Parameters and metrics", "trials", "Parameters that differ, metrics, and the time of the tasks",
			sortHeads(f, columns), rows),
		h.If(marked, note("* the best value of its column.")))
}

// trial is a row: a side, or an item of a matrix in a side.
func trial(f *frame, t *compare.Table, i int) h.Node {
	r := t.Rows[i]
	ws, _, _ := strings.Cut(r.Side, "@")
	var cells h.Group
	if t.HasItems() {
		cells = append(cells, valueCell(r.Item, ""))
	}
	for _, name := range t.Params {
		cells = append(cells, valueCell(compare.Plain(r.Params[name]), ""))
	}
	for _, c := range t.Metrics {
		text := compare.Plain(r.Metrics[c.Name])
		if slices.Contains(c.Best, i) {
			cells = append(cells, valueCell(text, "num best", h.El("span.star", h.Attr("aria-hidden", "true"), h.Text("*")),
				away(" best")))
			continue
		}
		cells = append(cells, valueCell(text, "num"))
	}
	took := "–"
	if r.Ms > 0 {
		took = human.Duration(r.Time())
	}
	return h.El("tr", h.ID("e-"+strings.TrimSpace(r.Side+" "+r.Item)),
		rowHead(link(f.To(viewRun, "w", ws, "r", r.Run), h.Line(r.Side))), cells, number(took))
}

// valueCell is a cell with the beginning of a value, as on the command line; pointing at it shows more of it.
func valueCell(text, class string, more ...h.Node) h.Node {
	const most = 40 // bytes
	whole := h.Node(nil)
	if len(text) > most {
		whole = h.Attr("title", human.Line(human.Truncate(text, 2_000)))
	}
	return h.El("td", h.Class(class), whole, h.Line(human.Truncate(text, most)), h.Group(more))
}
