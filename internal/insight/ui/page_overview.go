package ui

import (
	"cmp"
	"fmt"
	"time"

	"e3/internal/format/record"
	"e3/internal/human"
	h "e3/internal/insight/markup"
	"e3/internal/insight/runview"
	"e3/internal/insight/stats"
)

func (b *workspacesBody) page(f *frame) h.Node {
	title := h.El("h1", h.Text("Workspaces"))
	if len(b.List) == 0 {
		return h.Group{title, h.El("p.lead", h.Text("There are no workspaces yet; make one with: "),
			h.El("code", h.Text("e3 start -f e3.yaml")))}
	}
	cards := h.Map(b.List, func(w Workspace) h.Node { return w.card(f, b.Now) })
	return h.Group{title, h.El("div.grid", cards)}
}

func (w Workspace) card(f *frame, now time.Time) h.Node {
	url, status, deployed := f.To(viewHistory, "w", w.Name), "", cmp.Or(w.Package, "nothing is deployed")
	if w.Run != nil {
		url, status = f.To(viewRun, "w", w.Name), w.Run.Status()
	}
	if w.File != "" {
		deployed += " · " + w.File
		if w.Edited {
			deployed += " (edited since)"
		}
	}
	said := func(name string, rest ...h.Node) h.Node { return h.El("p", dim(name), h.Text(" "), h.Group(rest)) }
	outputs := outputsText(&w)
	return h.El("article.card", h.ID("w-"+w.Name),
		h.El("header", h.El("h2", link(url, h.Line(w.Name))), h.If(status != "", badge(status))),
		h.El("p.dim", h.Line(deployed)), latest(w.Run, now),
		h.If(outputs != "", said("Outputs:", h.Line(outputs))),
		h.If(w.Busy != "", said("Busy:", h.Line(w.Busy), h.Text(" since "+stamp(w.BusySince)))),
		h.Map(w.Deferred, func(d Deferred) h.Node {
			return h.El("p.warn", sign(nil, "deferred"), h.Text(" "),
				link(f.To(viewTask, "w", w.Name, "t", d.Task), h.Line(d.Task)),
				h.Text(" waits for approval since "+stamp(d.Since)))
		}),
		warnings(w.Faults),
		h.If(w.Package != "", f.action("start", hidden("w", w.Name),
			input("Only", "filter", "", 12, h.Attr("placeholder", "all tasks")), h.Text(" "),
			checkbox("force", "run what is cached too", false), h.Text(" "), button("Start"))))
}

// latest is the facts of the latest run.
func latest(r *runview.Report, now time.Time) h.Node {
	if r == nil {
		return nil
	}
	took, summary := "Took", summaryText(r)
	if r.Live {
		took = "Running for"
	}
	return h.El("dl.facts", fact("Latest run", short(r.RunID)), fact("Started", stamp(r.StartedAt)),
		fact(took, human.Duration(r.RanFor(now))), h.If(summary != "", fact("Tasks", summary)))
}

func (b *historyBody) page(f *frame) h.Node {
	var words []tab
	for _, word := range []string{"", "completed", "failed", "cancelled", "waits", "crashed", "running"} {
		words = append(words, tab{cmp.Or(word, "all"), f.With("status", word), f.Place.get("status") == word})
	}
	plot := b.durations(f)
	return h.Group{
		h.El("h1", h.Line(f.Workspace), h.Text(": history")), h.If(!f.Static, navigation("streams", "Status", words)),
		h.El("div.pair", h.If(plot != nil, section("took", "Durations", scroll("", plot))),
			h.If(len(b.Days) > 1, section("days", "Days", h.El("ol.days", h.Map(b.Days, day.line))))),
		b.table(f),
	}
}

func (b *historyBody) table(f *frame) h.Node {
	if len(b.Runs) == 0 {
		return h.El("p.lead", h.Text("None"))
	}
	rows := make(h.Group, len(b.Runs))
	for i, r := range b.Runs {
		compared := ""
		if i+1 < len(b.Runs) && f.Place.get("status") == "" {
			compared = f.To(viewCompare, "w", f.Workspace, "a", f.Workspace+"@"+b.Runs[i+1].RunID, "b", "@"+r.RunID)
		}
		took := textIf(r.State != record.RunRunning || r.Live, human.Duration(r.RanFor(b.Now)))
		rows[i] = h.El("tr", h.ID("r-"+r.RunID),
			h.El("th.mono", h.Attr("scope", "row"), link(f.runURL(r.RunID), h.Text(short(r.RunID)))),
			h.El("td", badge(r.Status())), cell("td.when", stamp(r.StartedAt)), number(took), cell("td", summaryText(r)),
			cell("td.opt", r.PackageRef), cell("td.opt", r.Process.Who()),
			h.El("td.about", h.Line(noteOf(r)), h.If(compared != "", h.Text(" "), link(compared, h.Text("compare")))))
	}
	columns := heads("Run", "Status", "Started.when", "Took.num", "Tasks", "Package.opt", "By.opt", "Note")
	return section("runs", "Runs", table("", "tasks flow", "Runs, the latest first", columns, rows),
		h.If(b.More, more(f.With("all", "1"), "earlier runs")))
}

func (d day) line() h.Node {
	words := ": "
	for _, s := range d.Shares {
		words += fmt.Sprintf("%d %s ", s.Count, s.State)
	}
	return h.El("li", h.El("span.date", h.Text(d.Date)), shareBar(d.Shares),
		h.El("span.num", h.Text(human.Count(d.Count, "run"))), away(words))
}

func (b queueBody) page(f *frame) h.Node {
	title := h.El("h1", h.Text("Queue"))
	if len(b) == 0 {
		return h.Group{title, h.El("p.lead", h.Text("Nothing was ever queued here; have tasks executed by workers with: "),
			h.El("code", h.Text("e3 start <repo> <workspace> --workers")))}
	}
	return h.Group{title, h.Map(b, func(q Queue) h.Node { return q.section(f) })}
}

func (q Queue) section(f *frame) h.Node {
	lead := fmt.Sprintf("%d waiting", q.Ready)
	if q.Ready > 0 && !q.Since.IsZero() {
		lead += " since " + stamp(q.Since)
	}
	if q.Delayed > 0 {
		lead += fmt.Sprintf(", %d later", q.Delayed)
	}
	lead += fmt.Sprintf(", %d running, %d failed", len(q.Running), len(q.Failed))
	command := "e3 worker " + f.Repo()
	if q.Name != "default" {
		command += " --queue " + human.Line(q.Name)
	}
	return h.El("section", h.ID("q-"+q.Name), h.Attr("aria-labelledby", "qh-"+q.Name),
		h.El("h2", h.ID("qh-"+q.Name), h.Line(q.Name)),
		h.El("p.lead", h.Text(lead)), warnings(q.Over), warnings(q.Faults),
		jobs("At work", q.Running, heads("Task", "Status", "Since.when", "Worker", "Lease"), func(j Job) h.Node {
			return j.line(f, h.El("td", state(j.State)), cell("td.when", stamp(j.Since)), tagged("td", "by", j.Worker),
				tagged("td", "lease", cmp.Or(j.Lease, "alive")))
		}),
		h.If(len(q.Waiting) > 0 && len(q.Running) == 0, h.El("p.note",
			h.Text("No worker is at work here. A worker that has what a task asks for takes it: "),
			h.El("code", h.Text(command)))),
		jobs("Waiting, in the order in which workers take them", q.Waiting,
			heads("Task", "Status", "Since.when", "Asks for"), func(j Job) h.Node {
				return j.line(f, h.El("td", state(j.State)), cell("td.when", stamp(j.Since)), tagged("td", "asks for", j.Asks))
			}),
		q.failed(f))
}

func (q Queue) failed(f *frame) h.Node {
	acts := f.Token != ""
	columns := h.Group{heads("Task", "Ended.when", "Reason"),
		h.If(acts, h.El("th", h.Attr("scope", "col"), away("Action")))}
	return jobs("Failed in the last week", q.Failed, columns, func(j Job) h.Node {
		return j.line(f, cell("td.when", stamp(j.Since)), cell("td", j.Message),
			h.If(acts, h.El("td", f.action("retry", hidden("job", j.ID), button("Retry")))))
	})
}

// jobs is a table of jobs; nothing if there are none.
func jobs(title string, list []Job, columns h.Node, line func(Job) h.Node) h.Node {
	if len(list) == 0 {
		return nil
	}
	return h.Group{h.El("h3", h.Text(title)), table("", "tasks flow", "", columns, h.Map(list, line))}
}

func (j Job) line(f *frame, cells ...h.Node) h.Node {
	return h.El("tr", h.ID("j-"+j.ID),
		rowHead(link(f.To(viewTask, "w", j.Workspace, "t", j.Task), h.Line(j.Workspace+"."+j.Task))), h.Group(cells))
}

func (s *Store) page(f *frame) h.Node {
	amount := func(a Amount) string { return human.Count(a.Objects, "object") + ", " + human.Bytes(a.Bytes) }
	return h.Group{
		h.El("h1", h.Text("Store")),
		h.El("p.lead", h.Text(human.Bytes(s.Kept.Bytes)+" are in use; "), h.El("code", h.Text("e3 gc")),
			h.Text(" would free "+human.Bytes(s.Free.Bytes)+".")),
		h.El("dl.facts", fact("In use", amount(s.Kept)), fact("gc would remove", amount(s.Free)),
			fact("Too young to remove", amount(s.Young)),
			fact("Executions", fmt.Sprintf("%d, %d pinned", s.Executions, s.Pinned)),
			h.If(s.Missing > 0, fact("Missing objects", itoa(s.Missing))), fact("Measured", stamp(s.At))),
		warnings(s.Warnings), s.use(f), s.largest(f), h.If(!f.Static, more(f.To(viewStore, "again", "1"), "measure again")),
	}
}

// use is what cached results have saved.
func (s *Store) use(f *frame) h.Node {
	if s.Stats == nil {
		return nil
	}
	line := func(name h.Node, x stats.Group) h.Node {
		return h.El("tr", rowHead(name), number(fmt.Sprint(x.Runs)), number(fmt.Sprint(x.Hits)),
			number(fmt.Sprintf("%.1f %%", 100*x.HitRate)),
			number(millis(x.SavedMs)), number(fmt.Sprint(x.Executed)), number(millis(x.ExecutedMs)),
			number(fmt.Sprint(x.Failures)), number(human.Bytes(x.Bytes)))
	}
	workspaces := h.Map(s.Stats.Workspaces, func(g stats.Group) h.Node {
		return line(link(f.To(viewHistory, "w", g.Name), h.Line(g.Name)), g)
	})
	users := h.Map(s.Stats.Users, func(g stats.Group) h.Node {
		if g.Name == "" {
			return line(h.Text("unknown"), g)
		}
		return line(h.Line(g.Name), g)
	})
	columns := heads("Workspace or user", "Runs.num", "Hits.num", "Hit rate.num", "Time saved.num", "Executed.num",
		"Took.num", "Failed.num", "Stored.num")
	return section("use", "Hits and time saved", table("", "tasks", "Sums of all runs", columns, workspaces,
		h.El("tbody", users), h.El("tfoot", line(h.Text("all"), s.Stats.Total))))
}

// largest are the tasks with the largest outputs.
func (s *Store) largest(f *frame) h.Node {
	if len(s.Tasks) == 0 {
		return nil
	}
	rows := h.Map(s.Tasks, func(t TaskSize) h.Node {
		url := f.To(viewTask, "w", t.Workspace, "t", t.Task, "view", taskHistory)
		return h.El("tr", rowHead(link(url, h.Line(t.Workspace+"."+t.Task))), number(itoa(t.Executions)),
			number(human.Bytes(t.Bytes)))
	})
	return section("size", "The largest outputs, by task",
		table("", "tasks", "Outputs of all executions on record", heads("Task", "Executions.num", "Bytes.num"), rows),
		note("Content that two executions share counts twice."))
}
