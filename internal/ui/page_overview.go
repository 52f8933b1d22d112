package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"e3/gc"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/explain"
	h "e3/internal/insight/markup"
	"e3/internal/insight/runview"
	"e3/internal/insight/stats"
	"e3/internal/jobs/approval"
	"e3/internal/jobs/queue"
	"e3/workspace"
)

func (b *workspacesBody) page(f *frame) h.Node {
	title := h.El("h1", h.Text("Workspaces"))
	if len(b.List) == 0 {
		return h.Group{title, h.El("p.lead", h.Text("There are no workspaces yet; make one with: "),
			h.El("code", h.Text("e3 start -f e3.yaml")))}
	}
	cards := make(h.Group, len(b.List))
	for i, st := range b.List {
		cards[i] = card(f, st, b.Failures[i], b.Stands[i], b.Now)
	}
	return h.Group{title, h.El("div.grid", cards)}
}

func card(f *frame, st *workspace.Status, failures *explain.Failures, stands string, now time.Time) h.Node {
	name := st.Workspace
	url, status, deployed := f.To(viewHistory, "w", name), "", "nothing is deployed"
	if st.Run != nil {
		url, status = f.To(viewRun, "w", name), st.Run.Status()
	}
	if st.Package != nil {
		deployed = st.Package.String()
	}
	if st.File != "" {
		deployed += " · " + st.File
		if st.Edited {
			deployed += " (edited since)"
		}
	}
	said := func(name string, rest ...h.Node) h.Node { return h.El("p", dim(name), h.Text(" "), h.Group(rest)) }
	outputs := outputsText(st)
	var busy h.Node
	if b := st.Holder; b != nil {
		by := b.Doing() + " by " + cmp.Or(b.Holder, "another process")
		if late := human.Unheard(b.Heard.At, b.Heard.Lease, now); late != "" {
			by += ", " + late
		}
		busy = said("Busy:", h.Line(by), h.Text(" since "+stamp(b.Since)))
	}
	return h.El("article.card", h.ID("w-"+name),
		h.El("header", h.El("h2", link(url, h.Line(name))), h.If(status != "", runBadge(status, stands))),
		h.El("p.dim", h.Line(deployed)), latest(st.Run, now), ofCard(f, name, failures),
		h.If(outputs != "", said("Outputs:", h.Line(outputs))),
		busy, queued(f, st.Run),
		h.Map(st.Deferred, func(d approval.Waiting) h.Node {
			return h.El("p.warn", sign(nil, "deferred"), h.Text(" "),
				link(f.To(viewTask, "w", name, "t", d.Task), h.Line(d.Task)),
				h.Text(" waits for approval since "+stamp(d.Since.Time)))
		}),
		h.Map(st.Faults, func(fault human.Fault) h.Node { return warning(fault.Error()) }),
		h.If(st.Package != nil, f.action("start", hidden("w", name),
			input("Only", "filter", "", 12, h.Attr("placeholder", "all tasks")), h.Text(" "),
			checkbox("force", "run what is cached too", false), h.Text(" "), button("Start"))))
}

// queued says how many tasks of a run wait for a worker.
func queued(f *frame, r *runview.Report) h.Node {
	if r == nil || len(r.Queued) == 0 {
		return nil
	}
	verb := " wait for a worker: "
	if len(r.Queued) == 1 {
		verb = " waits for a worker: "
	}
	return h.El("p.warn", sign(nil, "waits"), h.Text(" "+human.Count(len(r.Queued), "task")+verb), link(f.To(viewQueue), h.Text("the queue")))
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
	commits := slices.ContainsFunc(b.Runs, func(r *runview.Report) bool { return r.Git != nil })
	for i, r := range b.Runs {
		took := textIf(r.State != record.RunRunning || r.Live, human.Duration(r.RanFor(b.Now)))
		rows[i] = h.El("tr", h.ID("r-"+r.RunID),
			h.El("th.mono", h.Attr("scope", "row"), link(f.runURL(r.RunID), h.Text(short(r.RunID)))),
			h.El("td", badge(r.Status())), cell("td.when", stamp(r.StartedAt)), number(took), cell("td", summaryText(r)),
			cell("td.opt", r.PackageRef), cell("td.opt", r.Process.Who()), h.If(commits, cell("td.opt", cmp.Or(r.Git.Short(), "-"))),
			h.El("td.about", h.Line(strings.Join(r.Notes(b.Now), ", ")), h.Text(" "), b.compared(f, i)))
	}
	columns := []string{"Run", "Status", "Started.when", "Took.num", "Tasks", "Package.opt", "By.opt"}
	if commits {
		columns = append(columns, "Commit.opt")
	}
	return section("runs", "Runs", b.picked(f), table("", "tasks flow", "Runs, the latest first", heads(append(columns, "Note")...), rows),
		h.If(b.More, more(f.With("all", "1"), "earlier runs")))
}

// picked says which run was picked, and what is next.
func (b *historyBody) picked(f *frame) h.Node {
	if b.Picked == nil {
		return nil
	}
	return h.El("p.lead", h.Attr("role", "status"), h.Text("Compare run "), h.El("b", h.Text(short(b.Picked.RunID))),
		h.Text(" of "+stamp(b.Picked.StartedAt)+" with: choose another below. "), link(f.With("a", ""), h.Text("Leave it")))
}

// compared are the links of a run that compare it: with the run before it, or, after one was picked, with that one.
func (b *historyBody) compared(f *frame, i int) h.Node {
	r := b.Runs[i]
	of := func(was, is string, label string) h.Node {
		url := f.To(viewCompare, "w", f.Workspace, "a", f.Workspace+"@"+was, "b", "@"+is)
		return h.If(url != "", link(url, h.Text(label)))
	}
	switch p := b.Picked; {
	case p != nil && p.RunID == r.RunID:
		return h.El("b", h.Text("picked"))
	case p != nil && p.RunID < r.RunID: // ids are in the order of time
		return of(p.RunID, r.RunID, "compare with "+short(p.RunID))
	case p != nil:
		return of(r.RunID, p.RunID, "compare with "+short(p.RunID))
	}
	return h.Group{
		h.If(i+1 < len(b.Runs) && f.Place.get("status") == "", of(b.Runs[min(i+1, len(b.Runs)-1)].RunID, r.RunID, "what changed"), h.Text(" ")),
		h.If(len(b.Runs) > 1 && !f.Static, link(f.With("a", r.RunID), h.Text("compare with…"))),
	}
}

func (d day) line() h.Node {
	words := ": "
	for _, s := range d.Shares {
		words += fmt.Sprintf("%d %s ", s.Count, s.State)
	}
	return h.El("li", h.El("span.date", h.Text(d.Date)), shareBar(d.Shares),
		h.El("span.num", h.Text(human.Count(d.Count, "run"))), away(words))
}

func (b *queueBody) page(f *frame) h.Node {
	title := h.El("h1", h.Text("Queue"))
	if len(b.List) == 0 {
		return h.Group{title, h.El("p.lead", h.Text("Nothing was ever queued here; have tasks executed by workers with: "),
			h.El("code", h.Text("e3 start <repo> <workspace> --workers")))}
	}
	return h.Group{title, h.Map(b.List, func(q queueState) h.Node { return q.section(f, b.Now) })}
}

func (q queueState) section(f *frame, now time.Time) h.Node {
	lead := fmt.Sprintf("%d waiting", q.Ready)
	if q.Ready > 0 && !q.Since.IsZero() {
		lead += " since " + stamp(q.Since.Time)
	}
	if q.Delayed > 0 {
		lead += fmt.Sprintf(", %d later", q.Delayed)
	}
	lead += fmt.Sprintf(", %d running, %d failed", len(q.Running), len(q.Failed))
	command := "e3 worker " + f.Repo()
	if q.Queue != queue.DefaultQueue {
		command += " --queue " + human.Line(q.Queue)
	}
	return h.El("section", h.ID("q-"+q.Queue), h.Attr("aria-labelledby", "qh-"+q.Queue),
		h.El("h2", h.ID("qh-"+q.Queue), h.Line(q.Queue)), h.El("p.lead", h.Text(lead)),
		h.Map(q.Over, func(run queue.RunJobs) h.Node {
			return warning(fmt.Sprintf("%d of run %s of %s, which has ended", run.Jobs, human.Short(run.Run), run.Workspace))
		}),
		warnings(q.Faults),
		jobs("At work", q.Running, heads("Task", "Status", "Since.when", "Worker", "Lease"), func(r queue.WorkRow) h.Node {
			j := r.Job
			return jobLine(f, j, h.El("td", state(jobState(j))), cell("td.when", stamp(cmp.Or(j.Started, j.Claimed).Time())),
				tagged("td", "by", cmp.Or(j.Worker, j.Maker)), tagged("td", "lease", cmp.Or(r.Work.Doubt(now), "alive")))
		}),
		h.If(len(q.Waiting) > 0 && len(q.Running) == 0, h.El("p.note",
			h.Text("No worker is at work here. A worker that has what a task asks for takes it: "),
			h.El("code", h.Text(command)))),
		q.waiting(f),
		q.failed(f))
}

// waiting is the jobs that no worker has; what they ask for is a column if any of them asks for something.
func (q queueState) waiting(f *frame) h.Node {
	asks := func(r queue.Row) string { return strings.TrimSpace(r.Job.Rank() + " " + r.Job.Demands()) }
	columns, asked := []string{"Task", "Status", "Since.when"}, slices.ContainsFunc(q.Waiting, func(r queue.Row) bool { return asks(r) != "" })
	if asked {
		columns = append(columns, "Asks for")
	}
	return jobs("Waiting, in the order in which workers take them", q.Waiting, heads(columns...), func(r queue.Row) h.Node {
		return jobLine(f, r.Job, h.El("td", state(jobState(r.Job))), cell("td.when", stamp(r.CreatedAt.Time)), h.If(asked, tagged("td", "asks for", asks(r))))
	})
}

func (q queueState) failed(f *frame) h.Node {
	acts := f.Token != ""
	columns := h.Group{heads("Task", "Ended.when", "Reason"),
		h.If(acts, h.El("th", h.Attr("scope", "col"), away("Action")))}
	return jobs("Failed in the last week", q.Failed, columns, func(r queue.Row) h.Node {
		return jobLine(f, r.Job, cell("td.when", stamp(r.FinishedAt.Time)), cell("td", r.Failure()),
			h.If(acts, h.El("td", f.action("retry", hidden("job", r.ID), button("Retry")))))
	})
}

// jobs is a table of jobs; nothing if there are none.
func jobs[T any](title string, list []T, columns h.Node, line func(T) h.Node) h.Node {
	if len(list) == 0 {
		return nil
	}
	return h.Group{h.El("h3", h.Text(title)), table("", "tasks flow", "", columns, h.Map(list, line))}
}

func jobLine(f *frame, j *queue.Job, cells ...h.Node) h.Node {
	return h.El("tr", h.ID("j-"+j.ID),
		rowHead(link(f.To(viewTask, "w", j.Workspace, "t", j.Task), h.Line(j.Workspace+"."+j.Task))), h.Group(cells))
}

// jobState is the state of a job that has not ended, as pages name it.
func jobState(j *queue.Job) string {
	switch {
	case j.Orphaned():
		return "interrupted"
	case j.Status == queue.Running:
		return "running"
	}
	return "waits"
}

func (b *storeBody) page(f *frame) h.Node {
	amount := func(a gc.Amount) string { return human.Count(a.Objects, "object") + ", " + human.Bytes(a.Bytes) }
	g := &b.Garbage
	return h.Group{
		h.El("h1", h.Text("Store")),
		h.El("p.lead", h.Text(human.Bytes(g.Live.Bytes)+" are in use; "), h.El("code", h.Text("e3 gc")),
			h.Text(" would free "+human.Bytes(g.Collected.Bytes)+".")),
		h.El("dl.facts", fact("In use", amount(g.Live)), fact("gc would remove", amount(g.Collected)),
			fact("Too young to remove", amount(g.Young)),
			fact("Executions", fmt.Sprintf("%d, %d pinned", b.Executions, b.Pinned)),
			h.If(g.Missing > 0, fact("Missing objects", itoa(g.Missing))), fact("Measured", stamp(b.At))),
		warnings(b.Warnings), b.use(f), b.largest(f), h.If(!f.Static, more(f.To(viewStore, "again", "1"), "measure again")),
	}
}

// use shows what cached results have saved.
func (b *storeBody) use(f *frame) h.Node {
	if b.Stats == nil {
		return nil
	}
	line := func(name h.Node, x stats.Group) h.Node {
		return h.El("tr", rowHead(name), number(fmt.Sprint(x.Runs)), number(fmt.Sprint(x.Hits)),
			number(fmt.Sprintf("%.1f %%", 100*x.HitRate)),
			number(millis(x.SavedMs)), number(fmt.Sprint(x.Executed)), number(millis(x.ExecutedMs)),
			number(fmt.Sprint(x.Failures)), number(human.Bytes(x.Bytes)))
	}
	workspaces := h.Map(b.Stats.Workspaces, func(g stats.Group) h.Node {
		return line(link(f.To(viewHistory, "w", g.Name), h.Line(g.Name)), g)
	})
	users := h.Map(b.Stats.Users, func(g stats.Group) h.Node {
		if g.Name == "" {
			return line(h.Text("unknown"), g)
		}
		return line(h.Line(g.Name), g)
	})
	columns := heads("Workspace or user", "Runs.num", "Hits.num", "Hit rate.num", "Time saved.num", "Executed.num",
		"Took.num", "Failed.num", "Stored.num")
	return section("use", "Hits and time saved", table("", "tasks", "Sums of all runs", columns, workspaces,
		h.El("tbody", users), h.El("tfoot", line(h.Text("all"), b.Stats.Total))))
}

// largest are the tasks with the largest outputs.
func (b *storeBody) largest(f *frame) h.Node {
	if len(b.Tasks) == 0 {
		return nil
	}
	rows := h.Map(b.Tasks, func(t taskSize) h.Node {
		url := f.To(viewTask, "w", t.Workspace, "t", t.Task, "view", taskHistory)
		return h.El("tr", rowHead(link(url, h.Line(t.Workspace+"."+t.Task))), number(itoa(t.Executions)),
			number(human.Bytes(t.Bytes)))
	})
	return section("size", "The largest outputs, by task",
		table("", "tasks", "Outputs of all executions on record", heads("Task", "Executions.num", "Bytes.num"), rows),
		note("Content that two executions share counts twice."))
}
