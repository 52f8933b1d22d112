package ui

import (
	"slices"
	"strings"

	"e3/internal/human"
	"e3/internal/insight/compare"
	"e3/internal/insight/figures"
	h "e3/internal/insight/markup"
	"e3/internal/insight/report"
)

func (b *curvesBody) page(f *frame) h.Node {
	if len(b.Charts) == 0 && b.Axes.chosen() {
		return b.around(f, nil, h.El("p.lead", h.Text("No table has these columns. "), link(f.With("x", "", "y", ""), h.Text("Draw them as declared"))))
	}
	if len(b.Charts) == 0 {
		return b.around(f, nil, h.El("p.lead", h.Text("No output of these is marked as a plot. A task marks one with: "),
			h.El("code", h.Text("out: {curve: {file: curve.csv, kind: plot}}"))))
	}
	var others []report.Chart
	for i := range b.Charts {
		if i != b.Chosen {
			others = append(others, b.Charts[i])
		}
	}
	left := ""
	if b.Left > 0 {
		left = human.Count(b.Left, "more chart") + " are left out; choose fewer sides or values"
	}
	return b.around(f, b.axes(f), h.If(b.Chosen >= 0, b.large(f)),
		h.If(len(others) > 0, section("charts", textOr(b.Chosen >= 0, "Other charts", "Charts"), h.El("div.cards", h.Map(others, func(c report.Chart) h.Node {
			title := h.Line(c.Title)
			if c.Curves("") != nil {
				title = link(f.With("chart", c.Title, "at", "", "sort", ""), title)
			}
			return h.El("figure.figure", h.El("figcaption", title), c.Drawing(report.Look{}), note(c.Note(report.Look{})))
		})), note(left))))
}

// axes are the inputs that say how the chart is drawn.
func (b *curvesBody) axes(f *frame) h.Node {
	if b.Curves == nil {
		return nil
	}
	ys := make([]option, len(b.Names))
	for i, name := range b.Names {
		ys[i] = option{name, name, slices.Contains(b.Axes.y, name)}
	}
	return h.Group{
		hidden("chart", f.Place.get("chart")),
		ofFamily(f, "Plots of", b.Families),
		h.If(len(b.Names) > 2 || b.Axes.chosen(), choose("Across", "x", b.Axes.x, "as declared", b.Names), h.Text(" "),
			several("Up", "y", "as declared", ys), h.Text(" ")),
		choose("Colour", "colour", f.Place.get("colour"), "each line", b.Params), h.Text(" "), logAxes(f), h.Text(" "),
		input("Values at "+b.Curves.X, "at", f.Place.get("at"), 8, h.Attr("placeholder", b.Curves.Last)), h.Text(" "),
	}
}

func logAxes(f *frame) h.Node {
	return h.Group{checkbox("logx", "logarithmic x", f.Place.get("logx") != ""), h.Text(" "),
		checkbox("logy", "logarithmic y", f.Place.get("logy") != "")}
}

// large is the chosen chart with its lines in numbers.
func (b *curvesBody) large(f *frame) h.Node {
	c, look := &b.Charts[b.Chosen], b.look(f)
	f.Module = "curves.js"
	return section("chart", c.Title, scroll("The chart, drawn", c.Drawing(look)), note(c.Note(look)), b.numbers(f))
}

// numbers are the lines in a table. A script puts the values at the pointer into it.
func (b *curvesBody) numbers(f *frame) h.Node {
	c := b.Curves
	better := compare.DirectionOf(c.Y)
	var last, anywhere map[int]bool
	if better != "" {
		last, anywhere = c.Best(better == compare.Lower)
	}
	columns := []column{{name: "Line", key: "line"}}
	for _, name := range b.Params {
		columns = append(columns, column{name: name, class: "opt"})
	}
	columns = append(columns, column{name: "At " + c.X + " " + c.Place, key: "at", class: "num here"},
		column{name: "Least", key: "least", class: "num"}, column{name: "Greatest", key: "greatest", class: "num"},
		column{name: "Last", key: "last", class: "num"})
	least, greatest := anywhere, map[int]bool(nil)
	if better == compare.Higher {
		least, greatest = nil, anywhere
	}
	texts := make([]string, len(c.Lines))
	for i := range c.Lines {
		texts[i] = c.Lines[i].At
	}
	ats, leasts := alignedTexts(texts), pointed(c, least, func(l *report.Curve) string { return l.Least })
	greatests, lasts := pointed(c, greatest, func(l *report.Curve) string { return l.Greatest }), pointed(c, last, func(l *report.Curve) string { return l.Last })
	rows := make(h.Group, len(c.Lines))
	for i := range c.Lines {
		l := &c.Lines[i]
		p := &b.Plots[l.Of]
		ws, _, _ := strings.Cut(p.Side, "@")
		name := l.Name
		if name == "" {
			name = p.Task
		}
		rows[i] = h.El("tr", rowHead(l.Swatch, h.Text(" "), link(f.To(viewTask, "w", ws, "t", p.Task, "r", p.Run, "view", taskData), breakableItem(name))),
			h.Map(b.Params, func(name string) h.Node { return valueCell(compare.Plain(p.Params[name]), "opt") }),
			h.El("td.num.here", h.Attr("data-line", itoa(l.Index)), ats[i]), leasts[i], greatests[i], lasts[i])
	}
	return h.Group{table("The lines in numbers", "trials", "The lines in numbers", sortHeads(f, columns), rows),
		h.If(len(last)+len(anywhere) > 0, note("* the best value of its column.")),
		note(human.Count(len(c.Lines), "line") + ", from " + c.X + " " + c.First + " to " + c.Last + ". Other values: point at the chart, or give a place above.")}
}

// pointed are the cells of numbers of a column, whose points stand below each other.
func pointed(c *report.Curves, best map[int]bool, of func(*report.Curve) string) []h.Node {
	texts := make([]string, len(c.Lines))
	for i := range c.Lines {
		texts[i] = of(&c.Lines[i])
	}
	cells := make([]h.Node, len(texts))
	for i, spaces := range figures.Pads(texts) {
		cells[i] = starred(h.Line(texts[i]), spaces, best[i])
	}
	return cells
}

func (b *scatterBody) page(f *frame) h.Node {
	if b.Table == nil || len(b.Table.Rows) == 0 {
		return b.around(f, nil, b.table(f))
	}
	pick := h.Group{
		choose("Across", "x", b.X, "", b.Xs), h.Text(" "), choose("Up", "y", b.Y, "", b.Ys), h.Text(" "),
		choose("Colour", "colour", f.Place.get("colour"), "sides", b.Table.Params), h.Text(" "), logAxes(f), h.Text(" "),
	}
	look := b.look(f)
	look.Values = false
	drawn := note("No row has numbers for both.")
	if b.Chart != nil {
		drawn = h.Group{scroll("The points, drawn", b.Chart.Drawing(look)), note(b.Chart.Note(look)),
			note("Point at a point for its name; the table has the same values.")}
	}
	return b.around(f, pick, section("chart", b.Y+" by "+b.X, drawn), b.table(f))
}

// choose is a choice of one name; none, if it is not "", is a word for no choice.
func choose(label, name, chosen, none string, names []string) h.Node {
	option := func(value, text string) h.Node {
		return h.El("option", h.Attr("value", value), h.If(value == chosen, h.Flag("selected")), h.Line(text))
	}
	return h.El("label", h.Text(label+" "), h.El("select", h.Attr("name", name),
		h.If(none != "", option("", none)), h.Map(names, func(s string) h.Node { return option(s, s) })))
}

// choices choose rows by the values of their parameters, of each any number.
func (b *trialsBody) choices() h.Node {
	const mostChoices, mostValues = 12, 80
	return h.Map(b.Choices[:min(len(b.Choices), mostChoices)], func(c compare.Choice) h.Node {
		values := make([]option, 0, len(c.Values))
		for _, v := range c.Values[:min(len(c.Values), mostValues)] {
			values = append(values, option{c.Name + "=" + v, v, slices.Contains(b.Where[c.Name], v)})
		}
		return h.Group{several(c.Name, "where", "all", values), h.Text(" ")}
	})
}

// option is one of several things that can be chosen.
type option struct {
	value, text string
	chosen      bool
}

// several is a choice of any number of things, which opens without a script; all is the word for no choice.
func several(label, name, all string, options []option) h.Node {
	var chosen []string
	boxes := h.Map(options, func(o option) h.Node {
		if o.chosen {
			chosen = append(chosen, human.Truncate(o.text, 40))
		}
		return h.El("label.check", h.El("input", h.Attr("type", "checkbox"), h.Attr("name", name), h.Attr("value", o.value),
			h.If(o.chosen, h.Flag("checked"))), h.Text(" "), h.Line(human.Truncate(o.text, 40)))
	})
	said := all
	if len(chosen) > 0 {
		said = strings.Join(chosen, ", ")
	}
	return h.El("details.choice", h.El("summary", h.Line(label), h.Text(": "), h.El("b", h.Line(human.Truncate(said, 60)))),
		h.El("div", h.Attr("role", "group"), h.Attr("aria-label", label), boxes))
}

func textOr(is bool, text, other string) string {
	if is {
		return text
	}
	return other
}
