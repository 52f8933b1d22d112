package ui

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"e3/internal/human"
	"e3/internal/insight/compare"
	"e3/internal/insight/figures"
	h "e3/internal/insight/markup"
)

func (b *tableBody) page(f *frame) h.Node {
	var family h.Node
	if b.Table != nil {
		family = ofFamily(f, "Metrics of", b.Table.Families)
	}
	return b.around(f, h.Group{family, hidden("sort", f.Place.get("sort"))}, b.table(f))
}

// ofFamily chooses one of several families of tasks.
func ofFamily(f *frame, label string, families []string) h.Node {
	return h.If(len(families) > 1, choose(label, "family", f.Place.get("family"), "all tasks", families), h.Text(" "))
}

// around is what all views have around their parts: the choices of what is compared, with further inputs, and notes.
func (b *trialsBody) around(f *frame, inputs h.Node, parts ...h.Node) h.Node {
	quick := b.quick(f)
	view := f.Place.get("view")
	form := h.El("form.filter", h.Attr("method", "get"), h.Attr("action", "/experiments"),
		h.Attr("aria-label", "What is compared"), hidden("view", view),
		input("Workspaces and runs", "sides", b.Sides, 28, h.Attr("placeholder", "dev exp* dev@-1")), h.Text(" "),
		b.choices(), inputs,
		h.If(view != trialsCurves, input("Best", "best", f.Place.get("best"), 16, h.Attr("placeholder", "loss=lower")), h.Text(" "),
			checkbox("all", "parameters that are the same, too", f.Place.get("all") != ""), h.Text(" ")), button("Show"))
	var views []tab
	for _, v := range []struct{ name, view string }{{"Table", ""}, {"Curves", trialsCurves}, {"Scatter", trialsScatter}} {
		views = append(views, tab{v.name, f.With("view", v.view, "family", "", "chart", "", "page", "", "cols", "", "sort", "", "colour", "", "x", "", "y", ""), v.view == view})
	}
	return h.Group{
		h.El("h1", h.Text("Experiments")), h.If(len(quick) > 1, navigation("streams", "Families of workspaces", quick)),
		navigation("tabs inner", "Views", views), form, h.Group(parts),
		h.If(len(b.Notes) > 0, h.El("ul.plain", h.Map(b.Notes, func(s string) h.Node { return h.El("li.dim", h.Line(s)) }))),
	}
}

// quick offers all workspaces, and families of workspaces, whose names differ in digits at their ends.
func (b *trialsBody) quick(f *frame) []tab {
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
		list = append(list, tab{p, f.With("sides", p, "sort", "", "where", "", "page", "", "cols", "", "chart", "", "family", "", "x", "", "y", ""), p == b.Sides})
	}
	return list
}

func (b *tableBody) table(f *frame) h.Node {
	switch {
	case b.Table == nil:
		return h.El("p.lead", h.Text("There are no workspaces yet; make an experiment with: "),
			h.El("code", h.Text("e3 start . dev --as exp1 --set rate=0.2")))
	case len(b.Table.Rows) == 0:
		return note("No row fits.")
	}
	t := b.Table
	bare := t.Bare()
	var rows []int
	for i := range t.Rows {
		if !bare[i] {
			rows = append(rows, i)
		}
	}
	found := len(rows)
	page := pageOf(f, "page", (found+maxTrials-1)/maxTrials)
	rows = rows[(page-1)*maxTrials : min(page*maxTrials, found)]
	sheets := sheets(f, t)
	sheet := pageOf(f, "cols", len(sheets))
	shown := sheets[sheet-1]
	columns := []column{{name: "side", key: "side"}}
	marked := false
	for _, c := range shown {
		columns = append(columns, c.column)
		marked = marked || c.best != nil
	}
	list := make(h.Group, len(rows))
	for k, i := range rows {
		list[k] = trial(f, t.Rows[i], i, k > 0 && t.Rows[rows[k-1]].Side == t.Rows[i].Side, shown)
	}
	return section("table", human.Count(found, "row"),
		h.If(len(sheets) > 1, pager(f, "cols", sheet, len(sheets), "Columns", fmt.Sprintf("columns, part %d of %d", sheet, len(sheets)))),
		table("Parameters and metrics", "trials", "Parameters that differ, metrics, and the time of the tasks",
			sortHeads(f, columns), list),
		h.If(marked, note("* the best value of its column.")),
		h.If(found > maxTrials, pager(f, "page", page, (found+maxTrials-1)/maxTrials, "Rows",
			fmt.Sprintf("%d to %d of %d", (page-1)*maxTrials+1, (page-1)*maxTrials+len(rows), found))))
}

// trialColumn is a column of the table: its cells by row, and the rows whose value is the best.
type trialColumn struct {
	column
	cells []h.Node
	wide  float64 // in pixels, about
	best  []int
}

// Measures of a table, in pixels: a part of its columns fits a window of 1920.
const (
	sheetWidth = 1560.0
	sideWidth  = 180.0
	charWidth  = 7.8
	cellSpace  = 26.0
)

// sheets are the columns of a table beside the side, in parts that fit a wide window. The item and the parameters lead each
// part, unless they take half of it; the first of them leads to the item's task.
func sheets(f *frame, t *compare.Table) [][]trialColumn {
	var all []trialColumn
	none := func(*compare.TableRow) string { return "" }
	task := func(r *compare.TableRow) string {
		ws, _, _ := strings.Cut(r.Side, "@")
		return textIf(r.Task() != "", f.To(viewTask, "w", ws, "t", r.Task(), "r", r.Run, "view", taskData))
	}
	if t.HasItems() {
		all = append(all, paramColumn(t, "item", task, func(r *compare.TableRow) string { return r.Item }))
	}
	for _, name := range t.Params {
		to := task
		if len(all) > 0 {
			to = none
		}
		all = append(all, paramColumn(t, name, to, func(r *compare.TableRow) string { return compare.Plain(r.Params[name]) }))
	}
	leads := len(all)
	for _, m := range t.Metrics {
		texts, pads := t.Cells(m)
		c := trialColumn{column: column{name: m.Name, key: m.Name, class: "num"}, cells: make([]h.Node, len(texts)), best: m.Best}
		for i, text := range texts {
			whole := compare.Plain(t.Rows[i].Metrics[m.Name])
			c.cells[i] = starred(h.Group{h.If(whole != text || len(text) > mostCell, h.Attr("title", human.Line(human.Truncate(whole, 2_000)))),
				h.Line(human.Truncate(text, mostCell))}, pads[i], slices.Contains(m.Best, i))
			c.wide = max(c.wide, float64(utf8.RuneCountInString(human.Truncate(text, mostCell))+pads[i]+1))
		}
		all = append(all, c)
	}
	all = append(all, paramColumn(t, "time", none, func(r *compare.TableRow) string {
		return textOr(r.Ms > 0, human.Duration(r.Time()), "–")
	}))
	all[len(all)-1].class = "num"
	together := 0.0
	for i := range all {
		c := &all[i]
		for _, piece := range pieces(c.name) {
			c.wide = max(c.wide, float64(utf8.RuneCountInString(piece)+2))
		}
		if c.wide = c.wide*charWidth + cellSpace; i < leads {
			together += c.wide
		}
	}
	if together > sheetWidth/2 {
		leads, together = 0, 0 // they would leave no room for metrics
	}
	var list [][]trialColumn
	room := 0.0
	for _, c := range all[leads:] {
		if room -= c.wide; room < 0 || list == nil {
			room = sheetWidth - sideWidth - together - c.wide
			list = append(list, slices.Clone(all[:leads]))
		}
		list[len(list)-1] = append(list[len(list)-1], c)
	}
	return list
}

const mostCell = 40 // bytes

func paramColumn(t *compare.Table, name string, url, text func(*compare.TableRow) string) trialColumn {
	c := trialColumn{column: column{name: name, key: name}, cells: make([]h.Node, len(t.Rows))}
	for i, r := range t.Rows {
		s := text(r)
		c.cells[i] = linkedCell(url(r), s, textIf(name == "time", "num"))
		c.wide = max(c.wide, float64(utf8.RuneCountInString(human.Truncate(s, mostCell))))
	}
	return c
}

// trial is a row: a side, or an item of a matrix in a side. The name of the side is not to be seen again below itself.
func trial(f *frame, r *compare.TableRow, i int, again bool, columns []trialColumn) h.Node {
	ws, _, _ := strings.Cut(r.Side, "@")
	return h.El("tr", h.ID("e-"+strings.TrimSpace(r.Side+" "+r.Item)),
		rowHead(h.If(again, h.Class("again")), link(f.To(viewRun, "w", ws, "r", r.Run), h.Line(r.Side))),
		h.Map(columns, func(c trialColumn) h.Node { return c.cells[i] }))
}

// starred is a cell of a number and as many figure spaces, with a sign at the number if it is the best one.
func starred(number h.Node, spaces int, best bool) h.Node {
	if !best {
		return h.El("td.num", number, figureSpaces(spaces))
	}
	return h.El("td.num.best", number, h.El("span.star", h.Attr("aria-hidden", "true"), h.Text("*")), away(" best"), figureSpaces(spaces))
}

// alignedTexts are the texts of numbers, set flush right, whose points stand below each other.
func alignedTexts(texts []string) []h.Node {
	list, pads := make([]h.Node, len(texts)), figures.Pads(texts)
	for i, text := range texts {
		list[i] = h.Group{h.Line(text), figureSpaces(pads[i])}
	}
	return list
}

// figureSpaces are as wide as that many digits.
func figureSpaces(n int) h.Node {
	return h.If(n > 0, h.El("span", h.Attr("aria-hidden", "true"), h.Text(strings.Repeat("\u2007", n))))
}

// valueCell is a cell with the beginning of a value, as on the command line; pointing at it shows more of it.
func valueCell(text, class string) h.Node { return linkedCell("", text, class) }

func linkedCell(url, text, class string) h.Node {
	return h.El("td", h.Class(class), h.If(len(text) > mostCell, h.Attr("title", human.Line(human.Truncate(text, 2_000)))),
		link(url, h.Line(human.Truncate(text, mostCell))))
}
