package ui

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"e3/internal/human"
	"e3/internal/insight/figures"
	h "e3/internal/insight/markup"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
)

// link is a link, or its label alone where there is no address.
func link(url string, label ...h.Node) h.Node {
	if url == "" {
		return h.Group(label)
	}
	return h.El("a", h.Attr("href", url), h.Group(label))
}

// navigation is the links to other views, nothing without any.
func navigation(class, label string, tabs []tab) h.Node {
	if len(tabs) == 0 {
		return nil
	}
	return h.El("nav", h.Class(class), h.Attr("aria-label", label), h.Map(tabs, func(t tab) h.Node {
		if t.URL == "" {
			return nil
		}
		return h.El("a", h.Attr("href", t.URL), h.If(t.Current, h.Attr("aria-current", "page")), h.Line(t.Name))
	}))
}

// section is a part of a page with a heading, whose id is id.
func section(id, title string, children ...h.Node) h.Node {
	return h.El("section", h.Attr("aria-labelledby", id+"-h"), h.El("h2", h.ID(id+"-h"), h.Line(title)), h.Group(children))
}

// scroll wraps content that may be wider than the page. A label makes it a group that keys can scroll.
func scroll(label string, children ...h.Node) h.Node {
	return h.El("div.scroll",
		h.If(label != "", h.Attr("tabindex", "0"), h.Attr("role", "group"), h.Attr("aria-label", label)), h.Group(children))
}

// table is a table that may be wider than the page. Its label and its caption may be "". Further nodes follow its
// rows.
func table(label, class, caption string, heads, rows h.Node, more ...h.Node) h.Node {
	return scroll(label, h.El("table", h.Class(class), h.If(caption != "", h.El("caption.away", h.Line(caption))),
		h.El("thead", h.El("tr", heads)), h.El("tbody", rows), h.Group(more)))
}

// heads are the heads of columns; a class follows a name behind a dot.
func heads(names ...string) h.Node {
	return h.Map(names, func(name string) h.Node {
		name, class, _ := strings.Cut(name, ".")
		return h.El("th", h.Attr("scope", "col"), h.Class(strings.ReplaceAll(class, ".", " ")),
			h.Text(name))
	})
}

// rowHead is the first cell of a row, which names it.
func rowHead(children ...h.Node) h.Node {
	return h.El("th", h.Attr("scope", "row"), h.Group(children))
}

// cell is a cell with a text.
func cell(name, text string) h.Node { return h.El(name, h.Line(text)) }

// number is a cell with a number.
func number(text string) h.Node { return h.El("td.num", h.Text(text)) }

// tagged is a cell with a word that narrow windows show, where the cell alone would not tell its column.
func tagged(name, word, text string) h.Node {
	return h.El(name, h.If(text != "", h.Attr("data-l", word)), h.Line(text))
}

// note is a remark; nothing if there is none.
func note(text string) h.Node {
	return h.If(text != "", h.El("p.note", h.Line(text)))
}

// warnings are remarks that matter.
func warnings(texts []string) h.Node { return h.Map(texts, warning) }

func warning(text string) h.Node { return h.El("p.warn", h.Line(text)) }

// dim is text that matters less.
func dim(text string) h.Node { return h.El("span.dim", h.Line(text)) }

// away is text for screen readers only.
func away(text string) h.Node { return h.El("span.away", h.Line(text)) }

// more is a link to the rest of a list that the page cuts off; nothing without an address.
func more(url, label string) h.Node {
	return h.If(url != "", h.El("p.more", link(url, h.Text(label))))
}

// pageOf is the number of a page in the address, from 1 to the number of pages.
func pageOf(f *frame, key string, pages int) int {
	n, _ := strconv.Atoi(f.Place.get(key))
	return max(1, min(n, pages))
}

// pager is the links to the pages before and after one, around a text that says which one it is.
func pager(f *frame, key string, page, pages int, label, said string) h.Node {
	other := func(is bool, page int, rel, text string) h.Node {
		return h.If(is, h.El("a", h.Attr("href", f.With(key, itoa(page))), h.Attr("rel", rel), h.Text(text)))
	}
	return h.El("nav.pages", h.Attr("aria-label", label), other(page > 1, page-1, "prev", "← before"),
		h.El("span", h.Text(said)), other(page < pages, page+1, "next", "after →"))
}

// pieces are the pieces of a long name, which may break behind its marks.
func pieces(name string) []string {
	var list []string
	for {
		at := strings.IndexAny(name, "._/:-")
		if at < 0 || at == len(name)-1 {
			return append(list, name)
		}
		list, name = append(list, name[:at+1]), name[at+1:]
	}
}

// breakable is a name that may break behind its marks.
func breakable(name string) h.Node {
	var list h.Group
	for i, s := range pieces(name) {
		list = append(list, h.If(i > 0, h.El("wbr")), h.Line(s))
	}
	return list
}

// breakableItem is the name of an item, which may break behind its commas.
func breakableItem(name string) h.Node {
	return h.Map(strings.SplitAfter(name, ","), func(s string) h.Node { return h.Group{h.Line(s), h.If(strings.HasSuffix(s, ","), h.El("wbr"))} })
}

// block is text of several lines, which can be scrolled.
func block(class string, children ...h.Node) h.Node {
	return h.El("pre", h.Class(class), h.Attr("tabindex", "0"), h.Group(children))
}

// items is a list of texts.
func items(texts []string, attrs ...h.Node) h.Node {
	return h.El("ul", h.Group(attrs), h.Map(texts, func(s string) h.Node { return h.El("li", h.Line(s)) }))
}

// badge and state are a status with its sign.
func badge(status string) h.Node { return signed("badge", status) }
func state(status string) h.Node { return signed("state", status) }

// runBadge is the status of a run; of one at work that waits for something while no command runs, what for.
func runBadge(status, stands string) h.Node {
	if stands == "" {
		return badge(status)
	}
	as := "waits"
	if stands == runview.WaitsApproval {
		as = "deferred"
	}
	return h.El("span", h.Class("badge s-"+as), sign(nil, as), h.Text(" "+runview.StandsFor(stands)))
}

func signed(class, status string) h.Node {
	return h.El("span", h.Class(class+" s-"+status), sign(nil, status), h.Text(" "), h.Line(status))
}

// sign is the sign of a status, which screen readers skip.
func sign(attrs h.Node, status string) h.Node {
	return h.El("span", attrs, h.Attr("aria-hidden", "true"), h.Text(human.LookOf(status).Mark))
}

// facts are values with their names.
func facts(list []report.Fact) h.Node {
	return h.El("dl.facts", h.Map(list, func(f report.Fact) h.Node {
		return fact(f.Name, f.Value, h.If(f.Name == "Key", h.Class("wide")))
	}))
}

func fact(name, value string, attrs ...h.Node) h.Node {
	return h.El("div", h.Group(attrs), h.El("dt", h.Line(name)), h.El("dd", h.Line(value)))
}

// input is an input of a form with its label; a width of 0 leaves the width to the browser.
func input(label, name, value string, width int, attrs ...h.Node) h.Node {
	return h.El("label", h.Text(label+" "), h.El("input", h.Attr("name", name), h.If(value != "", h.Attr("value", value)),
		h.If(width > 0, h.Attr("size", itoa(width))), h.Group(attrs)))
}

func checkbox(name, label string, checked bool) h.Node {
	return h.El("label.check", h.El("input", h.Attr("type", "checkbox"), h.Attr("name", name), h.Attr("value", "1"),
		h.If(checked, h.Flag("checked"))), h.Text(" "+label))
}

// hidden is a value that a form sends along, nothing if it is empty.
func hidden(name, value string) h.Node {
	return h.If(value != "", h.El("input", h.Attr("type", "hidden"), h.Attr("name", name), h.Attr("value", value)))
}

func button(label string, attrs ...h.Node) h.Node {
	return h.El("button", h.Group(attrs), h.Text(label))
}

// action is a form that does something; nothing if pages offer no actions.
func (f *frame) action(name string, children ...h.Node) h.Node {
	return h.If(f.Token != "", h.El("form.act", h.Attr("method", "post"), h.Attr("action", "/do/"+name),
		hidden("token", f.Token), h.Group(children)))
}

// decision is the form that approves or rejects a task.
func (f *frame) decision(task string) h.Node {
	return f.action("approve", hidden("w", f.Workspace), hidden("t", task), input("Note", "note", "", 20), h.Text(" "),
		button("Approve"), h.Text(" "), button("Reject", h.Attr("formaction", "/do/reject")))
}

// taskLink is a link to the page of a task of the workspace, with further keys of its address.
func (f *frame) taskLink(task string, pairs ...string) h.Node {
	return link(f.To(viewTask, append([]string{"w", f.Workspace, "t", task}, pairs...)...), h.Line(task))
}

// runURL is the page of a run of the workspace.
func (f *frame) runURL(id string) string { return f.To(viewRun, "w", f.Workspace, "r", id) }

// waitingItem is a task that waits for approval.
func waitingItem(task h.Node, since time.Time, rest ...h.Node) h.Node {
	return h.El("li", sign(h.Class("s-deferred ink-text"), "deferred"), h.Text(" "), task, h.Text(" "),
		dim("since "+stamp(since)), h.Group(rest))
}

// shareBar is a bar of the numbers of tasks or runs by state.
func shareBar(list []report.Share) h.Node {
	return h.El("svg.shares", h.Attr("viewBox", "0 0 1000 10"), h.Attr("preserveAspectRatio", "none"),
		h.Attr("aria-hidden", "true"),
		h.Map(list, func(s report.Share) h.Node {
			return h.El("rect", h.Class("ink s-"+s.State), h.Number("x", s.X), h.Number("width", s.W), h.Attr("y", "0"),
				h.Attr("height", "10"))
		}))
}

// values is a table of numbers and words.
func values(label string, t *report.Table) h.Node {
	columns := make(h.Group, len(t.Head))
	for i, name := range t.Head {
		columns[i] = h.El("th", h.Attr("scope", "col"), h.If(t.Number[i], h.Class("num")), h.Line(name))
	}
	rows := make([]h.Group, len(t.Rows))
	for i := range t.Head {
		texts := make([]string, len(t.Rows))
		for r, row := range t.Rows {
			if i < len(row) && row[i].Number {
				texts[r] = row[i].Text
			}
		}
		for r, pad := range figures.Pads(texts) {
			if i < len(t.Rows[r]) {
				c := t.Rows[r][i]
				cell := h.Group{h.If(c.Whole != "", h.Attr("title", c.Whole)), h.Line(c.Text)}
				if c.Number {
					rows[r] = append(rows[r], starred(cell, pad, t.Best != nil && slices.Contains(t.Best[i], r)))
				} else {
					rows[r] = append(rows[r], h.El("td", cell))
				}
			}
		}
	}
	return table(label, "", "", columns, h.Map(rows, func(row h.Group) h.Node { return h.El("tr", row) }))
}

// painted is a line of a program's output with its colours.
func painted(segments []report.Segment) h.Node {
	return h.Map(segments, func(s report.Segment) h.Node {
		if s.Class == "" {
			return h.Text(s.Text)
		}
		return h.El("span", h.Class(s.Class), h.Text(s.Text))
	})
}

// textIf is a text if a condition holds, else "".
func textIf(is bool, text string) string {
	if !is {
		return ""
	}
	return text
}

func millis(n int64) string { return human.Duration(time.Duration(n) * time.Millisecond) }

// seconds is the text of a duration in seconds.
func seconds(v float64) string { return human.Duration(time.Duration(v * float64(time.Second))) }

// short is an id as people see it.
func short(id string) string { return human.Line(human.Short(id)) }

// stamp is a time for people, "" if it is unknown.
func stamp(t time.Time) string { return textIf(!t.IsZero(), human.Stamp(t)) }
