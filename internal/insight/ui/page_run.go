package ui

import (
	"fmt"

	"e3/internal/human"
	h "e3/internal/insight/markup"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
)

func (b *runBody) page(f *frame) h.Node {
	before := "the run before"
	if f.Place.get("r") != "" {
		before = "the latest run"
	}
	cancel := h.If(b.Run.Live, f.action("cancel", hidden("w", f.Workspace), input("Reason", "note", "", 24), h.Text(" "),
		button("Cancel this run")))
	return h.Group{
		h.El("header.head", b.head(f), h.El("p.links",
			h.If(b.Earlier != "", link(b.Earlier, h.Text("What differs from "+before)))), cancel),
		h.El("div.pair", b.waiting(f), b.failures(), b.criticalPath()),
		h.El("section.views", h.Attr("aria-label", "Tasks of the run"), navigation("tabs inner", "Views of the run", b.Tabs),
			b.view(f)),
	}
}

// view is what the address chooses of a run.
func (b *runBody) view(f *frame) h.Node {
	switch b.View {
	case runTasks:
		return h.Group{h.El("h2.away", h.Text("Tasks")), b.List.view(f)}
	case runTimeline:
		return h.Group{h.El("h2.away", h.Text("Timeline")), b.timelineView()}
	}
	return h.Group{h.El("h2.away", h.Text("Graph")), b.graphView()}
}

// head is what every view of a run begins with.
func (b *runBody) head(f *frame) h.Node {
	counts := h.Map(b.Shares, func(c countOf) h.Node {
		label := h.Group{sign(h.Class("sign"), c.State), h.El("b", h.Text(itoa(c.Count))), h.Text(" " + c.State)}
		if c.URL != "" {
			return h.El("li", h.Class("s-"+c.State),
				h.El("a", h.Attr("href", c.URL), h.If(c.Current, h.Attr("aria-current", "true")), label))
		}
		return h.El("li", h.Class("s-"+c.State), label)
	})
	shares := make([]report.Share, len(b.Shares))
	for i := range b.Shares {
		shares[i] = b.Shares[i].Share
	}
	return h.Group{
		h.El("h1", h.Line(f.Workspace), h.Text(" "), badge(b.Status)),
		h.El("p.lead", h.Attr("aria-live", "polite"), h.Line(b.Lead),
			h.If(b.Left != "", h.Text(" "), h.El("span.left", h.Text(b.Left)))),
		h.If(len(shares) > 0, shareBar(shares), h.El("ul.counts", h.Attr("aria-label", "Tasks by state"), counts)),
		facts(b.Facts),
	}
}

// waiting lists what waits for approval.
func (b *runBody) waiting(f *frame) h.Node {
	if len(b.Waiting) == 0 {
		return nil
	}
	return section("waiting", "Waits for approval", h.El("ul.plain", h.Map(b.Waiting, func(t runview.TaskReport) h.Node {
		return waitingItem(f.taskLink(t.Task), t.Since.Time, f.decision(t.Task))
	})))
}

func (b *runBody) failures() h.Node {
	if len(b.Failed) == 0 {
		return nil
	}
	list := h.Map(b.Failed, func(r row) h.Node {
		said := r.Note
		if r.Took() {
			said += ", after " + human.Duration(r.Duration.Duration())
		}
		return h.El("li", state(r.State), h.Text(" "), link(r.URL, h.Line(r.Task)), h.Text(" "), dim(said))
	})
	return section("failed", "What failed", h.Class("failures"), h.El("ul.plain", list),
		h.If(b.MoreBad > 0, note(fmt.Sprintf("and %d more", b.MoreBad))))
}

// criticalPath says where the time went.
func (b *runBody) criticalPath() h.Node {
	if len(b.Path) == 0 {
		return nil
	}
	said := fmt.Sprintf("The critical path: %s of %s", human.Duration(b.PathTime), human.Duration(b.Took))
	if b.PathMore > 0 {
		said += fmt.Sprintf("; its %d longest tasks of %d + %d", len(b.Path), len(b.Path), b.PathMore)
	}
	return section("path", "Where the time went", note(said+"."), h.El("ol.path", h.Map(b.Path, func(s step) h.Node {
		about := fmt.Sprintf("%d %%", s.Share)
		if s.Waited.Milliseconds() > 100 {
			about += ", began " + human.Duration(s.Waited) + " later"
		}
		return h.El("li", h.Class("s-"+s.State),
			link(s.URL, h.Line(s.Task)), h.Text(" "), h.El("b", h.Text(human.Duration(s.Took))), h.Text(" "), dim(about))
	})))
}

func (b *runBody) timelineView() h.Node {
	if b.Line == nil {
		return note("Nothing ran in this run.")
	}
	said := "Each bar is an attempt, in a lane of its worker; the outlined ones are on the critical path."
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
	return h.Group{h.If(!f.Static, l.filter(f)), l.lines()}
}

func (l *taskList) filter(f *frame) h.Node {
	statuses := h.Map(l.Statuses, func(s string) h.Node {
		return h.El("option", h.If(s == l.Status, h.Flag("selected")),
			h.Text(s))
	})
	folding := link(l.Folded, h.Text("fold items of a matrix"))
	if l.By != "" {
		folding = link(l.Unfolded, h.Text("single tasks"))
	}
	return h.El("form.filter", h.Attr("method", "get"), h.Attr("action", "/run"), h.Attr("role", "search"),
		h.Attr("aria-label", "Tasks of the run"),
		hidden("w", f.Workspace), hidden("r", f.Place.get("r")), hidden("sort", l.Sort), hidden("by", l.By),
		input("Name", "q", l.Q, 0, h.Attr("type", "search"), h.Attr("placeholder", "part of it")), h.Text(" "),
		h.El("label", h.Text("Status "),
			h.El("select", h.Attr("name", "status"), h.El("option", h.Attr("value", ""), h.Text("all")), statuses)), h.Text(" "),
		input("Longer than", "over", l.Over, 6, h.Attr("placeholder", "30s")), h.Text(" "),
		input("Reason", "reason", l.Reason, 10, h.Attr("placeholder", "oom")), h.Text(" "),
		button("Show"), h.Text(" "),
		h.El("span.found", h.Attr("aria-live", "polite"), h.Textf("%d of %d", l.Found, l.All)), h.Text(" "),
		h.If(l.Q+l.Status+l.Over+l.Reason != "", link(l.Clear, h.Text("all tasks")), h.Text(" ")), folding)
}

// lines are the tasks, or the families of tasks.
func (l *taskList) lines() h.Node {
	switch {
	case l.By != "":
		return scroll("", table("tasks", "Tasks, with the items of a matrix as one line",
			heads("Task", "Items.num.opt", "Status", "Together.num.opt", "Longest.num"), h.El("tbody",
				h.Map(l.Families, family.line))))
	case len(l.Rows) == 0 && l.All == 0:
		return note("No task has begun yet.")
	case len(l.Rows) == 0:
		return note("No task fits.")
	case l.Prev == "" && l.Next == "":
		return l.table()
	}
	return h.Group{l.table(), h.El("nav.pages", h.Attr("aria-label", "Pages of the list"),
		h.If(l.Prev != "", h.El("a", h.Attr("href", l.Prev), h.Attr("rel", "prev"), h.Text("← before"))),
		h.El("span", h.Textf("%d to %d of %d", l.First, l.Last, l.Found)),
		h.If(l.Next != "", h.El("a", h.Attr("href", l.Next), h.Attr("rel", "next"), h.Text("after →"))))}
}

func (x family) line() h.Node {
	tallies := h.Map(x.Shares, func(s report.Share) h.Node {
		return h.Group{h.El("span.tally", h.Text(itoa(s.Count)+" "), state(s.State)), h.Text(" ")}
	})
	return h.El("tr", h.ID("f-"+x.Name), rowHead(link(x.URL, h.Line(x.Name))), cell("td.num.opt", itoa(x.Count)),
		h.El("td", tallies), cell("td.num.opt", elapsed(x.Took)), number(elapsed(x.Worst)))
}

// table is the tasks of a run; in a file they have their executions and keys as well.
func (l *taskList) table() h.Node {
	return scroll("", h.El("table.tasks.flow", h.If(l.Whole, h.ID("list")),
		h.El("caption.away", h.Text("The tasks of the run")),
		h.El("thead", h.El("tr", columnHeads(l.Columns))),
		h.El("tbody", h.Map(l.Rows, func(r row) h.Node { return r.line(l.Whole) }))))
}

// columnHeads are heads of columns by which a table is sorted.
func columnHeads(list []column) h.Node {
	return h.Map(list, func(c column) h.Node {
		return h.El("th", h.Attr("scope", "col"), h.If(c.Class != "", h.Class(c.Class)),
			h.If(c.Sorted != "", h.Attr("aria-sort", c.Sorted)),
			link(c.URL, h.Line(c.Name)))
	})
}

func (r row) line(whole bool) h.Node {
	took, memory, cores, attempt, class := "", "", "", "", "num"
	if r.Took() {
		took = human.Duration(r.Duration.Duration())
	}
	if r.State == string(runview.TaskCached) {
		class += " dim"
	}
	if r.Memory > 0 {
		memory = human.Bytes(r.Memory)
	}
	if r.Cores > 0 {
		cores = fmt.Sprintf("%.1f", r.Cores)
	}
	if r.Attempt > 0 {
		attempt = fmt.Sprint(r.Attempt)
	}
	return h.El("tr", h.ID(r.Anchor), rowHead(link(r.URL, h.Line(r.Task))), h.El("td", state(r.State)),
		h.El("td", h.Class(class), h.Attr("data-ms", fmt.Sprint(r.Duration.Duration().Milliseconds())), h.Text(took)),
		h.El("td.num.opt", h.Attr("data-l", "memory"), h.Attr("data-n", fmt.Sprint(r.Memory)), h.Text(memory)),
		h.El("td.num.opt", h.Attr("data-l", "cores"), h.Attr("data-n", fmt.Sprintf("%.3f", r.Cores)), h.Text(cores)),
		h.El("td.when.later", h.Attr("data-l", "began"), h.Text(stamp(r.StartedAt.Time))),
		h.El("td.num.opt", h.Attr("data-l", "attempt"), h.Text(attempt)), cell("td.about", r.Note),
		h.If(whole, cell("td.id", r.ExecutionID), cell("td.id", r.Key)))
}
