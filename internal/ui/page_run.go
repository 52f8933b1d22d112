package ui

import (
	"fmt"
	"slices"
	"strings"

	"e3/internal/human"
	h "e3/internal/insight/markup"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
)

func (b *runBody) page(f *frame) h.Node {
	side, before := "-1", "the run before"
	if f.Place.get("r") != "" {
		side, before = b.Run.RunID, "the latest run"
	}
	earlier := f.To(viewCompare, "w", f.Workspace, "a", f.Workspace+"@"+side, "b", "@")
	var views []tab
	for _, v := range []struct{ name, view string }{{"Tasks", runTasks}, {"Timeline", runTimeline}, {"Graph", runGraph}} {
		views = append(views, tab{v.name, f.With("view", strings.TrimPrefix(v.view, runTasks), "page", ""), v.view == b.View})
	}
	cancel := h.If(b.Run.Live, f.action("cancel", hidden("w", f.Workspace), input("Reason", "note", "", 24), h.Text(" "),
		button("Cancel this run")))
	return h.Group{
		h.El("header.head", b.head(f),
			h.El("p.links", h.If(earlier != "" && b.Another, link(earlier, h.Text("What differs from "+before))), b.trials(f)), cancel),
		b.waiting(f), h.El("div.pair.why", b.failed(f), b.beside(f)),
		b.now(f), b.spent(f),
		h.El("section.views", h.Attr("aria-label", "Tasks of the run"), navigation("tabs inner", "Views of the run", views),
			b.view(f)),
	}
}

// side is the run as a side of a comparison.
func (b *runBody) side(f *frame) string { return f.Workspace + "@" + human.Short(b.Run.RunID) }

// trials are links to the run's metrics and curves.
func (b *runBody) trials(f *frame) h.Node {
	side := b.side(f)
	table, curves := f.To(viewTable, "sides", side), f.To(viewTable, "sides", side, "view", trialsCurves)
	return h.If(table != "", link(table, h.Text("Metrics")), h.Text(" "), link(curves, h.Text("Curves")))
}

// view is the view of a run that the address chooses.
func (b *runBody) view(f *frame) h.Node {
	switch b.View {
	case runTasks:
		return h.Group{h.El("h2.away", h.Text("Tasks")), b.List.view(f)}
	case runTimeline:
		return h.Group{h.El("h2.away", h.Text("Timeline")), b.timelineView()}
	}
	return h.Group{h.El("h2.away", h.Text("Graph")), b.graphView()}
}

// head is the beginning of every view of a run.
func (b *runBody) head(f *frame) h.Node {
	counts := h.Map(b.Shares, func(c report.Share) h.Node {
		said := " " + c.State
		if c.State == string(runview.TaskDeferred) {
			said += ", " + human.Meaning(c.State)
		}
		label := h.Group{sign(h.Class("sign"), c.State), h.El("b", h.Text(itoa(c.Count))), h.Text(said)}
		if url := f.With("status", c.State, "view", "", "page", ""); url != "" && c.State != "waits" {
			label = h.Group{h.El("a", h.Attr("href", url),
				h.If(f.Place.get("status") == c.State, h.Attr("aria-current", "true")), label)}
		}
		meaning := human.Meaning(c.State)
		return h.El("li", h.Class("s-"+c.State), h.If(meaning != "", h.Attr("title", meaning)), label)
	})
	return h.Group{
		h.El("h1", h.Line(f.Workspace), h.Text(" "), runBadge(b.Run.Status(), b.At.Stands())),
		h.El("p.lead", h.Attr("aria-live", "polite"), h.Line(report.Lead(b.Run)),
			b.left()),
		h.If(len(b.Shares) > 0, shareBar(b.Shares), h.El("ul.counts", h.Attr("aria-label", "Tasks by state"), counts)),
		facts(b.Facts),
	}
}

// waiting lists the tasks that wait for approval.
func (b *runBody) waiting(f *frame) h.Node {
	if len(b.Waiting) == 0 {
		return nil
	}
	return section("waiting", "Waits for approval", h.El("ul.plain", h.Map(b.Waiting, func(t runview.TaskReport) h.Node {
		return waitingItem(f.taskLink(t.Task), t.Since.Time, f.decision(t.Task))
	})))
}

func (b *runBody) timelineView() h.Node {
	if b.Line == nil {
		return note("Nothing ran in this run.")
	}
	said := "Each bar is an attempt, in a lane of its worker; the outlined ones are on the critical path."
	if slices.ContainsFunc(b.Line.Bars, func(at *lineBar) bool { return at.Wait != "" }) {
		said += " Bars among the waits are times in which a task waited for an approval, a worker or its next attempt."
	}
	if b.Line.Note != "" {
		said += " " + b.Line.Note
	}
	return h.Group{scroll("The timeline, drawn", b.Line.draw()), note(said)}
}

func (b *runBody) graphView() h.Node {
	return h.Group{h.If(b.Graph != nil, scroll("The graph, drawn", b.Graph)), note(b.GraphNote)}
}

// view is the list with its filter.
func (l *taskList) view(f *frame) h.Node {
	return h.Group{h.If(!f.Static, l.filter(f)), l.lines(f)}
}

func (l *taskList) filter(f *frame) h.Node {
	p := f.Place
	statuses := h.Map(l.Statuses, func(s string) h.Node {
		return h.El("option", h.If(s == p.get("status"), h.Flag("selected")), h.Text(s))
	})
	folding := link(f.With("by", "family", "page", ""), h.Text("fold items of a matrix"))
	if p.get("by") != "" {
		folding = link(f.With("by", "", "page", ""), h.Text("single tasks"))
	}
	clear := h.Node(nil)
	if p.get("q")+p.get("status")+p.get("reason")+p.get("over") != "" {
		clear = link(f.With("q", "", "status", "", "reason", "", "over", "", "page", ""), h.Text("all tasks"))
	}
	return h.El("form.filter", h.Attr("method", "get"), h.Attr("action", "/run"), h.Attr("role", "search"),
		h.Attr("aria-label", "Tasks of the run"),
		hidden("w", f.Workspace), hidden("r", p.get("r")), hidden("sort", p.get("sort")), hidden("by", p.get("by")),
		input("Name", "q", p.get("q"), 0, h.Attr("type", "search"), h.Attr("placeholder", "part of it")), h.Text(" "),
		h.El("label", h.Text("Status "),
			h.El("select", h.Attr("name", "status"), h.El("option", h.Attr("value", ""), h.Text("all")), statuses)), h.Text(" "),
		input("Longer than", "over", p.get("over"), 6, h.Attr("placeholder", "30s")), h.Text(" "),
		input("Reason", "reason", p.get("reason"), 10, h.Attr("placeholder", "oom")), h.Text(" "),
		button("Show"), h.Text(" "),
		h.El("span.found", h.Attr("aria-live", "polite"), h.Textf("%d of %d", l.Found, l.All)), h.Text(" "),
		clear, h.Text(" "), folding)
}

// lines are the tasks, or the families of tasks.
func (l *taskList) lines(f *frame) h.Node {
	switch {
	case f.Place.get("by") != "":
		return familyTable(f, l.Families)
	case len(l.Rows) == 0 && l.All == 0:
		return note("No task has begun yet.")
	case len(l.Rows) == 0:
		return note("No task fits.")
	case l.pages() == 1:
		return l.table(f)
	}
	first := (l.Page-1)*maxRows + 1
	return h.Group{l.table(f), pager(f, "page", l.Page, l.pages(), "Pages of the list",
		fmt.Sprintf("%d to %d of %d", first, first+len(l.Rows)-1, l.Found))}
}

// table is the tasks of a run; in a file they have their executions and keys as well.
func (l *taskList) table(f *frame) h.Node {
	columns := sortHeads(f, listColumns)
	if l.Whole {
		columns = h.Group{columns, heads("Execution.id", "Key.id")}
	}
	return scroll("", h.El("table.tasks.flow", h.If(l.Whole, h.ID("list")),
		h.El("caption.away", h.Text("The tasks of the run")),
		h.El("thead", h.El("tr", columns)),
		h.El("tbody", h.Map(l.Rows, func(r row) h.Node { return r.line(l.Whole) }))))
}

// sortHeads are heads of columns by which the address can sort a table.
func sortHeads(f *frame, list []column) h.Node {
	key, down := strings.CutPrefix(f.Place.get("sort"), "-")
	return h.Map(list, func(c column) h.Node {
		next, sorted := c.first+c.key, ""
		switch {
		case c.key == "":
		case c.key == key && down:
			next, sorted = key, "descending"
		case c.key == key:
			next, sorted = "-"+key, "ascending"
		}
		label := breakable(c.name)
		if c.key != "" {
			label = link(f.With("sort", next, "page", ""), label)
		}
		return h.El("th", h.Attr("scope", "col"), h.Class(c.class),
			h.If(sorted != "", h.Attr("aria-sort", sorted)), label)
	})
}

func (r row) line(whole bool) h.Node {
	took := textIf(r.Took(), human.Duration(r.Duration.Duration()))
	memory, cores := textIf(r.Memory > 0, human.Bytes(r.Memory)), textIf(r.Cores > 0, fmt.Sprintf("%.1f", r.Cores))
	attempt := textIf(r.Attempt > 0, fmt.Sprint(r.Attempt))
	return h.El("tr", h.ID(r.Anchor), rowHead(link(r.URL, h.Line(r.Task))), h.El("td", state(r.StateText())),
		h.El("td", h.Class("num"+textIf(r.State == runview.TaskCached, " dim")),
			h.Attr("data-ms", fmt.Sprint(r.Duration.Duration().Milliseconds())), h.Text(took)),
		h.El("td.num.opt", h.Attr("data-l", "memory"), h.Attr("data-n", fmt.Sprint(r.Memory)), h.Text(memory)),
		h.El("td.num.opt", h.Attr("data-l", "cores"), h.Attr("data-n", fmt.Sprintf("%.3f", r.Cores)), h.Text(cores)),
		h.El("td.when.later", h.Attr("data-l", "began"), h.Text(stamp(r.StartedAt.Time))),
		h.El("td.num.opt", h.Attr("data-l", "attempt"), h.Text(attempt)), cell("td.about", r.Note),
		h.If(whole, cell("td.id", r.ExecutionID), cell("td.id", r.Key)))
}
