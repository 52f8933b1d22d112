package ui

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/diagram"
	"e3/internal/insight/explain"
	h "e3/internal/insight/markup"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
)

// runBody is what the page of a run shows.
type runBody struct {
	Run       *runview.Report
	Now       time.Time
	Facts     []report.Fact
	Shares    []report.Share
	At        *runview.Now   // of a run at work; nil: not known
	Spent     *runview.Spent // nil: nothing ran
	Failures  *explain.Failures
	Results   *results
	View      string // tasks, timeline or graph
	List      *taskList
	Line      *timeline
	Graph     h.Node
	GraphNote string
	Waiting   []runview.TaskReport // for approval
	Another   bool                 // the workspace has another run, to compare this one with
}

// row is a task in a list.
type row struct {
	report.Row
	URL string
}

// Bounds of the page of a run.
const (
	maxNodes  = 160 // of a graph
	maxSingle = 40  // of a graph in which the items of a matrix are drawn one by one
	maxRows   = 100 // rows of a page of the list
	maxBars   = 20_000
	maxWaits  = 40 // bars of waits
)

// Views of a run.
const (
	runTasks    = "tasks"
	runTimeline = "timeline"
	runGraph    = "graph"
)

func (s *Server) runPage(ctx context.Context, f *frame) (body, error) {
	p := f.Place
	m, err := s.models.run(ctx, f.Workspace, p.get("r"))
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	r := m.report
	now := s.o.Now()
	f.ofWorkspace(viewRun)
	b := s.headOf(f, m, now)
	b.View = cmp.Or(p.get("view"), runTasks)
	if p.get("r") != "" {
		f.Nav[0].Current = false
		f.Crumbs = append(f.Crumbs, crumb{"run " + short(r.RunID), ""})
		f.command("run", human.Quoted(f.Workspace), "--run", short(r.RunID))
	} else {
		f.command("run", human.Quoted(f.Workspace))
	}
	if p.get("r") == "" || r.Live {
		s.live(f)
	}
	b.Failures = s.failures(ctx, m)
	if b.Results, err = s.results(ctx, m); err != nil {
		return nil, err
	}
	if b.Another, err = s.stores.Runs.Another(ctx, f.Workspace, r.RunID); err != nil {
		return nil, err
	}
	switch b.View {
	case runTasks:
		b.List, err = s.taskList(ctx, f, m)
	case runTimeline:
		b.timeline(f, m, now)
		f.command("run", human.Quoted(f.Workspace), "--run", short(r.RunID), "--trace", "-")
	case runGraph:
		err = s.graph(ctx, f, m, b)
		f.command("graph", human.Quoted(f.Workspace), "--format", "svg")
	default:
		err = errAsked
	}
	return b, err
}

// headOf makes the beginning of every view of a run.
func (s *Server) headOf(f *frame, m *model, now time.Time) *runBody {
	r := m.report
	b := &runBody{Run: r, Now: now, Facts: s.facts(f, r), Spent: m.where(now)}
	if r.Live && m.ahead != nil {
		b.At = m.ahead.Now(r, now)
	}
	f.Title = fmt.Sprintf("%s: run %s, %s", human.Line(r.WorkspaceName), short(r.RunID), r.Status())
	b.counts()
	if r.Damage != nil {
		f.Notes = append(f.Notes, "Not all is known of this run: "+human.Line(r.Damage.Error()))
	}
	if r.Unnamed > 0 {
		f.Notes = append(f.Notes, human.Count(r.Unnamed, "more task")+" had results of an earlier run of which nothing is left")
	}
	return b
}

// facts are the lines of the header.
func (s *Server) facts(f *frame, r *runview.Report) []report.Fact {
	var list []report.Fact
	add := func(name, value string) {
		if value != "" {
			list = append(list, report.Fact{Name: name, Value: human.Line(value)})
		}
	}
	add("Package", r.PackageRef)
	add("Run", r.RunID)
	add("Started", f.Stamp(r.StartedAt))
	add("Ended", f.Stamp(r.CompletedAt))
	switch {
	case r.State != record.RunRunning:
		add("Duration", human.Duration(r.RanFor(s.o.Now())))
	case r.Live:
		add("Duration", human.Duration(r.RanFor(s.o.Now()))+" so far")
	}
	add("By", r.Process.Who())
	add("Commit", r.Git.String())
	add("Cancelled by", r.By)
	add("Reason", human.Truncate(r.Why, 400))
	add("Only", r.Filter)
	add("Made from", r.From)
	add("Set", human.Truncate(r.Set.String(), 400))
	if r.FailedTask == "" {
		add("Error", human.Truncate(r.Error, 400))
	}
	if r.Provenance != nil {
		add("Imported", report.Whence(r.Provenance))
	}
	return list
}

// counts are the tasks by state; those without a state wait for their turn.
func (b *runBody) counts() {
	counts := map[string]int{}
	for i := range b.Run.Tasks {
		t := &b.Run.Tasks[i]
		counts[t.Shown()]++
		if t.State == runview.TaskDeferred {
			b.Waiting = append(b.Waiting, *t)
		}
	}
	if waiting := int(b.Run.Total) - len(b.Run.Tasks) - int(b.Run.Unnamed); waiting > 0 {
		counts["waits"] += waiting
	}
	counts["cached"] += int(b.Run.Unnamed)
	b.Shares = report.Shares(counts)
}

// taskURL is the address of the page of a task in the shown run.
func taskURL(f *frame, task string) string {
	return f.To(viewTask, "w", f.Workspace, "t", task, "r", f.Place.get("r"))
}

func rowsOf(f *frame, list []runview.TaskReport) []row {
	rows := make([]row, len(list))
	for i := range list {
		t := &list[i]
		rows[i] = row{report.Row{TaskReport: t, Anchor: "t-" + t.Task, Note: report.Note(t)}, taskURL(f, t.Task)}
	}
	return rows
}

// timeline draws the attempts of the run, and the longest waits.
func (b *runBody) timeline(f *frame, m *model, now time.Time) {
	spans, waits := m.spans.All(m.report, now), runview.LongestWaits(m.spans.Waits(m.report, now), maxWaits)
	critical := map[string]bool{}
	if b.Spent != nil {
		for _, t := range b.Spent.Path {
			critical[t.Task] = true
		}
	}
	if len(spans) > maxBars {
		f.Notes = append(f.Notes, fmt.Sprintf("Only the first %d of %d attempts are drawn", maxBars, len(spans)))
		spans = spans[:maxBars]
	}
	bars := make([]lineBar, 0, len(spans)+len(waits))
	for _, at := range spans {
		bars = append(bars, lineBar{Span: at, Href: taskURL(f, at.Task), Critical: critical[at.Task]})
	}
	for _, w := range waits {
		at := lineBar{Span: runview.Span{Task: w.Task, State: w.State(), Start: w.Start, End: w.End}, Wait: w.Text()}
		if w.Task != "" {
			at.Href = taskURL(f, w.Task)
		}
		bars = append(bars, at)
	}
	b.Line = timelineOf(bars, b.Run.StartedAt, b.Run.CompletedAt)
}

// graph draws the package, coloured by the states of the tasks.
func (s *Server) graph(ctx context.Context, f *frame, m *model, b *runBody) error {
	pkg, err := m.pkg(ctx, s.stores)
	if err != nil {
		return err
	}
	if pkg == nil {
		b.GraphNote = "The package of this run is not in the repository in a form that can be drawn."
		return nil
	}
	g := report.Graph(pkg, report.GraphOptions{
		Inputs: len(pkg.Inputs)+len(pkg.Tasks) <= 40,
		Look: func(n *diagram.Node, name string, input bool) {
			if input {
				return
			}
			n.Href = taskURL(f, name)
			t := m.find(name)
			if t == nil {
				if m.report.Live {
					n.Status = diagram.Waits
				}
				return
			}
			n.Status = diagram.Status(t.Shown())
			if t.Took() {
				n.Note = human.Duration(t.Duration.Duration())
			}
		},
	})
	g.Title = "Tasks of " + b.Run.PackageRef + " and what they read from each other"
	whole := len(g.Nodes)
	if whole > maxSingle {
		g = diagram.FoldGroups(g)
	}
	g = diagram.Fold(g, maxNodes)
	if len(g.Nodes) < whole {
		b.GraphNote = fmt.Sprintf("%d nodes are drawn as %d: items of a matrix, or tasks of the same depth, are one.", whole, len(g.Nodes))
		failed := failedOf(m.report)
		for i := range g.Nodes {
			if n := &g.Nodes[i]; n.Tallies != nil && n.Group != "" {
				folded(f, n, failed[n.Group])
			}
		}
	}
	b.Graph, err = g.Drawing()
	return err
}
