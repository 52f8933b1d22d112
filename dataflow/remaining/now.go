package remaining

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/insight/runview"
)

// Bounds of what is said of a run at work.
const (
	mostRunning  = 100
	mostWaits    = 50
	mostFirst    = 8
	mostFamilies = 200
)

// Ask says what a run at work does, by its report with its tasks. It is nil if the run is not at work, or its package
// is not here.
func Ask(ctx context.Context, runs *runview.Runs, r *runview.Report) (*runview.Now, error) {
	if !r.Live {
		return nil, nil
	}
	pkg, _, err := runs.PackageOf(ctx, r)
	if err != nil || pkg == nil {
		return nil, err
	}
	g, err := graph.New(pkg)
	if err != nil {
		return nil, err
	}
	return OfReport(g, r, runs.Workspaces.Expected(ctx, r.WorkspaceName)).Now(r, runs.Now()), nil
}

// AskFor is Ask for a run of a workspace by its id.
func AskFor(ctx context.Context, runs *runview.Runs, ws, run string) (*runview.Now, error) {
	r, err := runs.Find(ctx, ws, run)
	if err != nil || !r.Live {
		return nil, err
	}
	f, damage, err := runs.Fold(ctx, ws, run)
	if err != nil {
		return nil, err
	}
	if err := runs.Tasks(ctx, r, f, damage); err != nil {
		return nil, err
	}
	return Ask(ctx, runs, r)
}

// OfReport is Of for a run that another process executes.
func OfReport(g *graph.Graph, r *runview.Report, expected func(task string) time.Duration) *Run {
	return Of(g, &events.Data{Filter: r.Filter, Force: r.Force, Limits: r.Limits}, expected)
}

// Now says what the run does, by its report with its tasks.
func (r *Run) Now(report *runview.Report, now time.Time) *runview.Now {
	o := r.Look(Reported(report), now)
	if r.workers && r.peak == 0 { // no worker is at work, so nothing has a turn
		o.Next = nil
	}
	n := &runview.Now{
		AtLeast: o.AtLeast, Cores: r.opts.Concurrency, Text: o.Text(),
		Running: []runview.Working{}, Waits: []runview.WaitFor{}, Next: []runview.Turn{},
	}
	if n.Text != "" {
		left := moment.Millis(o.Left)
		n.Left = &left
	} else {
		n.AtLeast = false
	}
	r.working(n, report, o)
	state := make([]*runview.TaskReport, r.g.Len())
	for t := range report.Each() {
		if i, ok := r.g.Find(t.Task); ok {
			state[i] = t
		}
	}
	if report.Total > 0 { // else it has only begun, and nothing is told yet
		r.waiting(n, report, state, o)
	}
	for _, t := range o.Next {
		n.Next = append(n.Next, runview.Turn{Task: r.g.Name(t.Task), At: moment.At(now.Add(t.In))})
	}
	n.Families = runview.Families(r.all(report, state))
	runview.AtWorkFirst(n.Families)
	n.Families = n.Families[:min(len(n.Families), mostFamilies)]
	return n
}

// all yields the tasks of the run: those of the graph that it selects, and those that the graph lacks.
func (r *Run) all(report *runview.Report, state []*runview.TaskReport) iter.Seq[*runview.TaskReport] {
	return func(yield func(*runview.TaskReport) bool) {
		for i, t := range state {
			switch {
			case t == nil && r.part != nil && !r.part[i]:
				continue
			case t == nil:
				t = &runview.TaskReport{Task: r.g.Name(int32(i))}
			}
			if !yield(t) {
				return
			}
		}
		for t := range report.Each() {
			if _, ok := r.g.Find(t.Task); !ok && !yield(t) {
				return
			}
		}
	}
}

// working lists the commands that are at work.
func (r *Run) working(n *runview.Now, report *runview.Report, o Outlook) {
	for t := range report.Each() {
		if t.State != runview.TaskRunning && t.State != runview.TaskClaimed {
			continue
		}
		w := runview.Working{Task: t.Task, State: t.State, Since: t.StartedAt, Worker: t.Worker, Attempt: t.Attempt}
		if i, ok := r.g.Find(t.Task); ok {
			p := &r.g.Package.Tasks[i].Policy
			w.Memory, w.Cores = p.Memory, p.CPU
			if d := o.Expected[i]; d > 0 {
				w.Ends = moment.At(t.StartedAt.Add(d))
			}
		}
		n.Running = append(n.Running, w)
	}
	slices.SortStableFunc(n.Running, func(a, b runview.Working) int { return a.Since.Compare(b.Since.Time) })
	if more := len(n.Running) - mostRunning; more > 0 {
		n.Running, n.Unlisted = n.Running[:mostRunning], more
	}
}

// waiting groups the tasks that have not had their turn by what they wait for.
func (r *Run) waiting(n *runview.Now, report *runview.Report, state []*runview.TaskReport, o Outlook) {
	queued := map[string]bool{}
	for _, q := range report.Queued {
		queued[q.Task] = true
	}
	next := map[int32]bool{} // begins in this moment
	for _, t := range o.Next {
		next[t.Task] = t.In == 0
	}
	type group struct{ why, of string }
	at := map[group]int{}
	for i, t := range state {
		i := int32(i)
		if r.part != nil && !r.part[i] || t != nil && !pending(t.State) || next[i] {
			continue
		}
		g := group{why: dataflow.WaitsCores}
		if r.workers {
			g.why = runview.WaitsWorker
		}
		name := r.g.Name(i)
		switch made := r.awaited(i, state); {
		case t != nil && t.State == runview.TaskDeferred:
			g.why = runview.WaitsApproval
		case t != nil && t.State == runview.TaskRetrying:
			g.why = runview.WaitsAttempt
		case made != "":
			g = group{runview.WaitsInput, made}
		case queued[name]:
			g.why = runview.WaitsWorker
		default:
			switch what := o.Blocked[i]; what {
			case "", dataflow.WaitsCores:
			case dataflow.WaitsMemory:
				g.why = what
			default:
				g = group{runview.WaitsResource, what}
			}
		}
		k, ok := at[g]
		if !ok {
			k = len(n.Waits)
			at[g] = k
			n.Waits = append(n.Waits, runview.WaitFor{For: g.why, Of: g.of})
		}
		w := &n.Waits[k]
		if w.Tasks++; len(w.First) < mostFirst {
			w.First = append(w.First, name)
		}
		if t != nil && g.why == runview.WaitsApproval && (w.Since.IsZero() || t.Since.Before(w.Since.Time)) {
			w.Since = t.Since
		}
	}
	late := func(w *runview.WaitFor) int { // what waits for more than an input is of more interest
		if w.For == runview.WaitsInput {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(n.Waits, func(a, b runview.WaitFor) int { return cmp.Or(late(&a)-late(&b), b.Tasks-a.Tasks) })
	n.Waits = n.Waits[:min(len(n.Waits), mostWaits)]
}

// pending reports whether a task in this state has yet to run.
func pending(s runview.TaskState) bool {
	switch s {
	case "", runview.TaskReady, runview.TaskRetrying, runview.TaskQueued, runview.TaskDeferred:
		return true
	}
	return false
}

// awaited is the task, or family of tasks, that has yet to make an input of a task; "" for none.
func (r *Run) awaited(i int32, state []*runview.TaskReport) string {
	for _, d := range r.g.Dependencies(i) {
		t := state[d]
		if t == nil || pending(t.State) || t.State == runview.TaskRunning || t.State == runview.TaskClaimed {
			return runview.FamilyOf(r.g.Name(d))
		}
	}
	return ""
}
