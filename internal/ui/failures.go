package ui

import (
	"context"
	"slices"
	"sync"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/diagram"
	"e3/internal/insight/explain"
	h "e3/internal/insight/markup"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
	"e3/workspace"
)

// Bounds of the failures that a page explains.
const (
	maxFailures = 8 // groups
	maxOpen     = 3 // groups that are open at first
)

// failures explains the failures of a run. It reads the ends of a few logs, once while nothing changes.
func (s *Server) failures(ctx context.Context, m *model) *explain.Failures {
	if m.failures == nil {
		m.failures = s.failureReader()
	}
	return m.failures.Read(ctx, m.ws, m.report.Tasks, maxFailures)
}

// latestFailures remembers why the latest run of each workspace failed, for the first page. It is safe for concurrent
// use.
type latestFailures struct {
	mu sync.Mutex
	of map[string]*latestFailure // by workspace
}

type latestFailure struct {
	run    string
	ended  bool
	tasks  runview.FailedTasks
	work   runview.AtWork
	reader *explain.FailureReader
	shown  *explain.Failures
}

// Bounds of the failures on the first page.
const (
	maxOfCard = 3   // groups of a workspace
	maxCards  = 256 // workspaces that are remembered
)

// latest explains the failures of a workspace's latest run, given its report without tasks. An ended run is read once.
func (s *Server) latestFailures(ctx context.Context, r *runview.Report) (*explain.Failures, error) {
	live := r.State == record.RunRunning
	if !live && r.Summary.Failed == 0 {
		return &explain.Failures{}, nil
	}
	l := &s.lately
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.of[r.WorkspaceName]
	switch {
	case x == nil && len(l.of) >= maxCards, l.of == nil:
		l.of = map[string]*latestFailure{}
		fallthrough
	case x == nil || x.run != r.RunID:
		x = &latestFailure{run: r.RunID, reader: s.failureReader()}
		l.of[r.WorkspaceName] = x
	case x.ended:
		return x.shown, nil
	}
	tasks, err := x.tasks.Read(ctx, s.stores.Runs, r)
	if err != nil {
		return nil, err
	}
	x.shown = x.reader.Read(ctx, r.WorkspaceName, tasks, maxOfCard)
	x.ended = !live && !slices.ContainsFunc(x.shown.Groups, func(g explain.FailureGroup) bool { return g.Fault != "" })
	return x.shown, nil
}

// stands is what a workspace's latest run waits for while no command is at work; "": one is, or the run has ended. The failures of
// the run are known.
func (s *Server) stands(ctx context.Context, st *workspace.Status) (string, error) {
	why := runview.WaitsWorker
	switch {
	case st.Run == nil || !st.Run.Live || len(st.Run.Queued)+len(st.Deferred) == 0:
		return "", nil
	case len(st.Run.Queued) == 0:
		why = runview.WaitsApproval
	}
	s.lately.mu.Lock()
	defer s.lately.mu.Unlock()
	x := s.lately.of[st.Run.WorkspaceName]
	if x == nil || x.run != st.Run.RunID {
		return "", nil // a later view has them
	}
	if working, err := x.work.Read(ctx, s.stores.Runs, st.Run); err != nil || working > 0 {
		return "", err
	}
	return why, nil
}

func (s *Server) failureReader() *explain.FailureReader {
	return &explain.FailureReader{Executions: s.stores.Executions, Objects: s.stores.Objects, Hints: s.stores.Hints}
}

// ofCard names the failures of a workspace's latest run, each with the last that it said.
func ofCard(f *frame, ws string, x *explain.Failures) h.Node {
	if x == nil || len(x.Groups) == 0 {
		return nil
	}
	list := make(h.Group, len(x.Groups))
	for i := range x.Groups {
		g := &x.Groups[i]
		list[i] = h.El("li", state(g.Shown), h.Text(" "), link(f.To(viewTask, "w", ws, "t", g.Task), h.Line(g.Tasks())), h.Text(" "),
			dim(g.Ended()), h.If(g.Said() != "", h.El("code.said", h.Text(report.Plain([]byte(g.Said()))))))
	}
	return h.Group{h.El("ul.plain", h.Attr("aria-label", "What failed"), list),
		h.If(x.More > 0, h.El("p.note", link(f.To(viewRun, "w", ws), h.Textf("and %d more", x.More))))}
}

// failed tells why tasks failed, those that failed alike once: the message is on the page of the run itself.
func (b *runBody) failed(f *frame) h.Node {
	x := b.Failures
	if len(x.Groups) == 0 {
		return nil
	}
	title, class := "What failed", "failures"
	if x.Groups[0].Allowed != "" { // what fails the run comes first
		title, class = "What failed, as it may", "failures mild"
	}
	var open, folded h.Group
	for i := range x.Groups {
		if g := &x.Groups[i]; i < maxOpen {
			open = append(open, b.group(f, g))
		} else {
			folded = append(folded, b.group(f, g))
		}
	}
	rest := h.Node(nil)
	if x.More > 0 {
		rest = h.El("p.note", h.Textf("and %d more: ", x.More), link(f.With("status", "failed", "view", "", "page", ""), h.Text("all that failed")))
	}
	return section("failed", title, h.ID("failures"), h.Class(class), open,
		h.If(len(folded) > 0, h.El("details.folded", h.El("summary", h.Textf("%d more of those that failed", len(folded))), folded)), rest)
}

// group is a failure, with those that are alike.
func (b *runBody) group(f *frame, g *explain.FailureGroup) h.Node {
	tail := h.Node(nil)
	if len(g.Tail) > 0 {
		lines := make([][]byte, len(g.Tail))
		for i, line := range g.Tail {
			lines[i] = []byte(line)
		}
		tail = logTail("the end of its "+g.Log, g.Task, lines)
	}
	fault := textIf(g.Fault != "", "Its log cannot be read: "+g.Fault)
	return h.El("article", h.ID("why-"+g.Task), h.Class("failed s-"+g.Shown),
		h.El("h3", state(g.Shown), h.Text(" "), link(taskURL(f, g.Task), h.Line(g.Task)), h.Text(" "), dim(g.Ended())),
		note(g.Meaning), tail, note(fault), note(g.Others()), h.If(len(g.Hints) > 0, items(g.Hints, h.Class("hints"))),
		h.El("div.links", h.Map(g.Commands(f.Repository, f.Workspace, f.Place.get("r") == ""), func(c explain.Onward) h.Node {
			return f.copied(c.To, c.Line)
		})))
}

// copied is a command line that can be copied, and where it leads.
func (f *frame) copied(label, line string) h.Node {
	return h.El("p.command", h.El("span", h.Line(label+":")), h.Text(" "), h.El("code", h.Attr("tabindex", "0"), h.Line(line)),
		h.If(!f.Static, h.Text(" "), h.El("button.copy", h.Attr("type", "button"), h.Text("copy"))))
}

// logTail is the end of a log, whose last line is in sight.
func logTail(title, task string, lines [][]byte) h.Node {
	var p report.Painter
	return h.Group{h.El("p.stream", h.Text(title)),
		h.El("div.log.tail", h.Attr("tabindex", "0"), h.Attr("role", "region"), h.Attr("aria-label", title+" of "+human.Line(task)),
			h.El("ol", h.Map(lines, func(line []byte) h.Node { return h.El("li", h.El("span.l", painted(p.Line(line)))) })))}
}

// failedOf are the items of each matrix that have failed, by the name of the matrix: first those for which the run
// fails.
func failedOf(r *runview.Report) map[string][]*runview.TaskReport {
	list := map[string][]*runview.TaskReport{}
	for _, allowed := range []bool{false, true} {
		for i := range r.Tasks {
			if t := &r.Tasks[i]; t.HasFailed() && (t.Allowance() != "") == allowed {
				name := runview.FamilyOf(t.Task)
				list[name] = append(list[name], t)
			}
		}
	}
	return list
}

// folded links the node of a matrix to its items, or to those that failed, which it names.
func folded(f *frame, n *diagram.Node, failed []*runview.TaskReport) {
	if len(failed) == 0 {
		n.Href = f.With("view", "", "q", n.Group+"[", "page", "")
		return
	}
	names := make([]string, len(failed))
	for i, t := range failed {
		names[i] = t.Task
	}
	n.Note = human.Few(names)
	n.Href = f.With("view", "", "q", n.Group+"[", "status", failed[0].Shown(), "page", "")
	if n.Href == "" { // a file has no filter
		n.Href = taskURL(f, failed[0].Task)
	}
}
