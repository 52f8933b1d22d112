package ui

import (
	"fmt"

	"e3/internal/human"
	h "e3/internal/insight/markup"
	"e3/internal/insight/report"
)

func (b *fileBody) page(f *frame) h.Node {
	c := b.Contents
	return h.Group{
		h.El("header.head", b.head(f)), navigation("tabs inner", "Parts of the report", b.Parts),
		h.El("div.pair.why", b.failed(f), b.beside(f)), b.waiting(f), b.now(f),
		h.If(len(c.Metrics) > 0, part("metrics", "Metrics", h.El("div.cards", h.Map(c.Metrics, metrics)))),
		h.If(len(c.Figures) > 0, part("figures", "Plots and reports", figureList(c.Pictures()),
			h.If(len(c.Documents()) > 0, h.El("div.documents", figureList(c.Documents()))))),
		b.spent(f), b.tasks(f),
		part("timeline", "Timeline", b.timelineView()),
		part("graph", "Graph", b.graphView()),
		h.If(len(c.Commands) > 0, part("commands", "Commands", h.Map(c.Commands, command))),
		h.If(len(c.Notes) > 0, part("missing", "What is not shown", items(c.Notes, h.Class("note")))),
		b.logs(),
	}
}

// part is a section to which the report links.
func part(id, title string, children ...h.Node) h.Node {
	return section(id, title, h.ID(id), h.Group(children))
}

// tasks is the list of all tasks; the script of the file shows its filter.
func (b *fileBody) tasks(f *frame) h.Node {
	statuses := h.Map(b.List.Statuses, func(s string) h.Node { return h.El("option", h.Text(s)) })
	list := note("The run has no tasks on record.")
	if len(b.List.Rows) > 0 {
		list = b.List.table(f)
	}
	left := ""
	if n := b.Contents.Left; n > 0 {
		left = fmt.Sprintf("%d more tasks, all without a fault in this run, are left out to keep the page small;"+
			" see them with: e3 run", n)
	}
	return part("tasks", "Tasks", h.Class("whole"),
		h.El("form.filter", h.ID("filter"), h.Attr("role", "search"), h.Attr("aria-label", "Tasks of the run"),
			h.Flag("hidden"),
			h.El("label", h.Text("Name "),
				h.El("input", h.Attr("type", "search"), h.ID("find"), h.Attr("placeholder", "part of it"))), h.Text(" "),
			h.El("label", h.Text("Status "),
				h.El("select", h.ID("state"), h.El("option", h.Attr("value", ""), h.Text("all")), statuses)), h.Text(" "),
			h.El("output.found", h.ID("found"))),
		list, note(left))
}

func command(c report.Command) h.Node {
	if c.Err != "" {
		return h.El("details", h.El("summary", h.Line(c.Title)), note(c.Err))
	}
	return h.El("details", h.El("summary", h.Line(c.Title)), block("text", h.Text(c.Text)),
		h.If(len(c.Values) > 0, facts(c.Values)))
}

func metrics(t report.Table) h.Node {
	return h.El("figure.figure", h.El("figcaption", h.Line(t.Title)), h.If(len(t.Rows) > 0, values(t.Title, &t)),
		note(t.Note))
}

// logs are the ends of the tasks' logs: first of those that failed, the first of which are open.
func (b *fileBody) logs() h.Node {
	l := b.Contents.Logs
	list := make(h.Group, 0, len(l.Failed)+len(l.Quiet))
	for i, t := range l.Failed {
		said := t.Note
		if t.Attempt > 1 {
			said += fmt.Sprintf(", attempt %d", t.Attempt)
		}
		list = append(list, h.El("details", h.If(i < maxOpen, h.Flag("open")),
			h.El("summary", h.Line(t.Task), h.Text(" "), state(t.StateText()), h.Text(" "), dim(said)), streams(t)))
	}
	list = append(list, h.Map(l.Quiet, func(t report.TaskLog) h.Node {
		return h.El("details", h.El("summary", h.Line(t.Task), h.Text(" "), state(t.StateText())), streams(t))
	}))
	empty := ""
	switch {
	case len(l.Quiet) > 0:
	case len(l.Failed) > 0:
		empty = "The other tasks printed nothing."
	default:
		empty = "No task printed anything."
	}
	return part("logs", "Logs", list, note(empty), note(l.Note))
}

// logAnchor is the place in a file where the log of a task begins.
func logAnchor(r *report.Row) string { return "log-" + r.Anchor }

// streams are the ends of a task's logs. The first place that a link to the log leads to is in them: a browser opens
// what is folded around it.
func streams(t report.TaskLog) h.Node {
	if len(t.Streams) == 0 {
		return h.El("div", h.ID(logAnchor(t.Row)), h.If(t.Err == "", note("It printed nothing.")), note(t.Err))
	}
	return h.El("div", h.ID(logAnchor(t.Row)), h.Map(t.Streams, func(s report.Tail) h.Node {
		title := s.Name
		if s.Cut {
			title += ", the end of " + human.Bytes(s.Whole)
		}
		return logTail(title, t.Task, s.Lines)
	}), note(t.Err))
}

// figures are plots, pictures and documents.
func figureList(list []report.Figure) h.Node {
	if len(list) == 0 {
		return nil
	}
	return h.El("div.cards", h.Map(list, figure))
}

func figure(x report.Figure) h.Node {
	title, label := h.Group{h.Line(x.Task)}, human.Line(x.Name+" of "+x.Task)
	if x.Name != "" {
		title = append(title, h.Text(" · "), h.Line(x.Name))
	}
	if x.Size >= 0 {
		title = append(title, h.Text(" "), dim(human.Bytes(x.Size)))
	}
	shown := content(&x.Content, label)
	if x.Document != "" {
		shown = h.Group{frameOf(label, h.Attr("srcdoc", x.Document)),
			note("Scripts in this report do not run here; get the file with: e3 get")}
	}
	return h.El("figure.figure", h.El("figcaption", title), shown, note(x.Note))
}

// content is a chart, a table, a picture or a text.
func content(c *report.Content, label string) h.Node {
	switch {
	case c.Chart != nil:
		return c.Chart
	case c.Table != nil:
		return h.Group{values(label, c.Table), note(c.Table.Note)}
	case c.Image != "":
		return h.El("div.paper", h.El("img", h.Attr("src", c.Image), h.Attr("alt", label)))
	case c.Prose != nil:
		return h.El("div.prose", c.Prose)
	case c.Text != "":
		return block("text", h.Text(c.Text))
	}
	return nil
}

// frameOf is a frame in which nothing of a document runs.
func frameOf(label string, document h.Node) h.Node {
	return h.El("iframe", h.Attr("sandbox", ""), h.Attr("referrerpolicy", "no-referrer"), h.Attr("title", label), document)
}

// chartsBody is charts in a file of their own.
type chartsBody []report.Figure

func (b chartsBody) page(f *frame) h.Node {
	return h.Group{h.El("h1", h.Text(f.Title)), h.El("section", h.Attr("aria-label", "Plots"), figureList(b))}
}
