package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/cmd/e3/internal/term"
	"e3/dataflow"
	"e3/internal/human"
	"e3/internal/insight/explain"
	"e3/internal/insight/history"
	"e3/internal/jobs/approval"
	"e3/internal/repo"
	"e3/workspace"
)

type planOptions struct {
	file     string
	limits   limitOptions
	force    bool
	filter   string
	set      []string
	room     string
	all      bool
	exitCode bool
}

func newPlan(a *app) *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan [repo] <workspace>",
		Short: "Tell what a start would do, and how long it would take",
		Long: `Tell for every task whether a start would take it from the cache (hit), run it (run), or decide later (waits). A task that
waits reads an output that is still to be made; it becomes a hit if that output is the same as before. A task that could not
run is "stuck". Times are those of earlier runs; a task without history counts as the average of the others.

The package file and the inputs on disk are read as by a start. If anything says in which room tasks run, plan names the room of
each, and what has decided it. plan is read-only and takes no locks. With -f it also plans a
file that is not deployed.`,
		Example: `  e3 plan . prod
  e3 plan -f e3.yaml
  e3 plan . prod --filter 'train*' --force -j 8
  e3 plan . prod --exit-code > /dev/null && echo "nothing to run"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			location, ws, err := startArgs(a, cmd, args, o.file)
			if err != nil {
				return err
			}
			return runPlan(cmd.Context(), a, location, ws, &o)
		},
	}
	cmd.ValidArgsFunction = completeWorkspace(a)
	f := cmd.Flags()
	f.StringVarP(&o.file, "file", "f", "", "package file: plan what start -f would do with it")
	o.limits.flags(f)
	f.BoolVar(&o.force, "force", false, "plan a start --force, which runs cached tasks too")
	setFlag(f, &o.set)
	roomFlag(cmd, &o.room)
	f.StringVar(&o.filter, "filter", "", "only tasks that match, with everything upstream of them (* and ?)")
	f.BoolVar(&o.all, "all", false, "list every task, hits as well")
	f.BoolVar(&o.exitCode, "exit-code", false, "end with exit code 1 if anything is to run, 0 if all are hits")
	return cmd
}

// planJSON is a plan for programs.
type planJSON struct {
	Workspace   string               `json:"workspace"`
	New         bool                 `json:"new,omitempty"`
	Package     workspace.PackageRef `json:"package"`
	File        string               `json:"file,omitempty"`
	Edited      bool                 `json:"edited,omitempty"`
	Elsewhere   *elsewhereJSON       `json:"elsewhere,omitempty"`
	Busy        *busyJSON            `json:"busy"`
	Hits        int                  `json:"hits"`
	Run         int                  `json:"run"`
	Waits       int                  `json:"waits"`
	Stuck       int                  `json:"stuck"`
	Concurrency int                  `json:"concurrency"`
	Expected    *expectedJSON        `json:"expected"` // null without any history
	Tasks       []planTaskJSON       `json:"tasks"`
	Growing     []growingJSON        `json:"growing,omitempty"`
	Rooms       []roomJSON           `json:"rooms,omitempty"` // none: all tasks run in the open, as nothing says otherwise
}

// expectedJSON is the expected duration of a run.
type expectedJSON struct {
	Least          int64    `json:"leastMs"`
	Most           int64    `json:"mostMs"`
	WithoutHistory int      `json:"withoutHistory"`
	CriticalPath   []string `json:"criticalPath"`
	CriticalTime   int64    `json:"criticalMs"`
}

// planTaskJSON is a task in a plan.
type planTaskJSON struct {
	Task      string `json:"task"`
	Plan      string `json:"plan"` // hit, run, waits or stuck
	Execution string `json:"execution,omitempty"`
	Key       string `json:"key,omitempty"`
	Forced    bool   `json:"forced,omitempty"`
	// NeedsApproval means that the task must be approved before it runs.
	NeedsApproval bool   `json:"needsApproval,omitempty"`
	Cause         string `json:"cause,omitempty"` // a stable word, as in e3 why
	Reason        string `json:"reason,omitempty"`
	// For are the tasks that it waits for, or that make it stuck.
	For      []string `json:"for,omitempty"`
	Expected *int64   `json:"expectedMs,omitempty"`
	Last     *int64   `json:"lastMs,omitempty"` // duration of its latest execution here
}

func runPlan(ctx context.Context, a *app, location, ws string, o *planOptions) error {
	l, err := o.limits.parse()
	if err != nil {
		return err
	}
	r, err := openToPlan(ctx, a, location, o.file)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := sayRoom(r.Repo, o.room); err != nil {
		return err
	}
	collectOften()
	set, err := overridesOf(o.set)
	if err != nil {
		return err
	}
	opts := workspace.PlanOptions{Set: set, Concurrency: l.concurrency, Memory: l.memory, Capacities: l.capacities, Force: o.force, Filter: o.filter, FileNamed: o.file != ""}
	p, err := planned(ctx, a, r.Repo, ws, o.file, opts)
	if err != nil {
		return unfollowed(shown(location, r.Repo), err)
	}
	a.warn(p.Warnings)
	sayElsewhere(a, shown(location, r.Repo), p.Workspace, p.Elsewhere)
	list := planRows(p, !a.JSON && !o.all)
	if err := explainPlan(ctx, a, r.Repo, p, list); err != nil {
		return err
	}
	doc := planOf(p, list, l.concurrency)
	if doc.Rooms, err = roomsOfPlan(ctx, r.Repo, p); err != nil {
		return err
	}
	if err := a.Reply(doc, func(w *render.Sheet) {
		writePlan(w, p, list, l.concurrency, o.all, a.Now(), a.Style())
		writeRooms(w, doc.Rooms)
	}); err != nil {
		return err
	}
	if o.exitCode && p.Runs+p.Waits+p.Stuck+len(p.Growing) > 0 {
		return &exitError{exitFailed}
	}
	return nil
}

// planned makes the plan of "start", or of "start -f".
func planned(ctx context.Context, a *app, r *repo.Repo, ws, file string, o workspace.PlanOptions) (*workspace.Plan, error) {
	if file == "" {
		return r.Workspaces.Planner.Plan(ctx, ws, o)
	}
	linked, err := linkedTo(ctx, a, r, ws, file)
	if err != nil {
		return nil, err
	}
	if linked != "" {
		return r.Workspaces.Planner.Plan(ctx, linked, o)
	}
	return r.Workspaces.Planner.PlanFile(ctx, ws, file, o)
}

// planRepo is a repository to plan in, with its temporary folder, if it has one.
type planRepo struct {
	*repo.Repo
	dir string
}

func (r *planRepo) Close() error {
	err := r.Repo.Close()
	if r.dir != "" {
		err = errors.Join(err, os.RemoveAll(r.dir))
	}
	return err
}

// openToPlan opens the repository that a start would use. If the start would first create it, an empty repository in a
// temporary folder takes its place.
func openToPlan(ctx context.Context, a *app, location, file string) (*planRepo, error) {
	r := &planRepo{}
	var err error
	if file != "" {
		wanted := ""
		if location, wanted, err = findRepository(a, location, file); err != nil {
			return nil, err
		}
		if wanted != "" {
			if r.dir, err = os.MkdirTemp("", "e3-plan-"); err == nil {
				location, err = repo.Create(r.dir)
			}
		}
	} else if location == "" {
		location = a.location()
	}
	if err == nil {
		r.Repo, err = a.openToRead(ctx, location)
	}
	if err != nil && r.dir != "" {
		err = errors.Join(err, os.RemoveAll(r.dir))
	}
	return r, err
}

// planRow is a task in a plan with its reason.
type planRow struct {
	task   int32
	cause  explain.Cause // of a task that runs and is not forced
	reason string
	// decided is the decision of a person for what the task would run; nil: there is none, or the task needs none
	decided *approval.Block
}

// mostRows is the number of tasks of a plan that are listed by default.
const mostRows = 50

// planRows are the listed tasks: all, or the first of those that are not hits.
func planRows(p *workspace.Plan, some bool) []planRow {
	var list []planRow
	for i := range p.Tasks {
		switch step := p.Tasks[i].Step; {
		case step == dataflow.StepNone, some && step == dataflow.StepHit:
		case some && len(list) == mostRows:
			return list
		default:
			list = append(list, planRow{task: int32(i)})
		}
	}
	return list
}

// explainPlan adds the reason of each task's step. The cause of a task that runs comes from records.
func explainPlan(ctx context.Context, a *app, r *repo.Repo, p *workspace.Plan, list []planRow) error {
	x := explain.New(explain.Stores{
		Stores: history.Stores{Records: r.Records, Executions: r.Executions, Runs: r.Workspaces.Runs}, Workspaces: r.Workspaces.View(), Objects: p.Objects,
	})
	var looked []string
	for i := range list {
		if t := &p.Tasks[list[i].task]; t.Step == dataflow.StepRun && t.Answer != nil {
			looked = append(looked, p.Graph.Name(list[i].task))
		}
	}
	if len(looked) > 0 {
		if err := x.Prefetch(ctx, p.Workspace, looked); err != nil {
			return err
		}
	}
	for i := range list {
		row := &list[i]
		t := &p.Tasks[row.task]
		switch {
		case t.Step == dataflow.StepRun && t.Answer != nil:
			var err error
			if row.cause, err = x.Miss(ctx, p.Workspace, p.Graph.Name(row.task), *t.Key, t.Inputs); err != nil {
				return err
			}
			if n := len(t.Answer.Passed); n > 0 && row.cause.Kind == explain.Unknown {
				row.cause.Kind, row.cause.Text = explain.OutputGone, t.Answer.Passed[n-1].Reason
			}
			row.reason = row.cause.String()
		case t.Step == dataflow.StepRun:
			row.reason = "forced"
		case t.Step == dataflow.StepWait && t.Twin:
			row.reason = "the same as " + p.Graph.Name(t.Waits[0]) + ": one of them runs"
		case t.Step == dataflow.StepWait:
			row.reason = "for " + human.Few(taskNames(p.Graph, t.Waits))
			if needs := p.Graph.Needs(row.task); needs != "" {
				row.reason += "; " + needs + " must succeed"
			}
		case t.Err != nil:
			row.reason = t.Err.Error()
		case t.Step == dataflow.StepStuck:
			row.reason = "without " + human.Few(taskNames(p.Graph, t.Waits))
		}
		if t.Step == dataflow.StepWait && t.Err != nil {
			row.reason += "; it could not run: " + t.Err.Error()
		}
		if needsApproval(p, row.task) {
			var err error
			if row.decided, err = decisionFor(ctx, r, p, row.task); err != nil {
				return err
			}
			switch {
			case row.decided == nil:
				row.reason += "; needs approval"
			case row.decided.Status == approval.Rejected:
				row.reason += "; fails, as it was rejected by " + human.Line(row.decided.By)
			default:
				row.reason += "; approved by " + human.Line(row.decided.By)
			}
		}
	}
	return nil
}

// needsApproval reports whether a task that must run waits for approval first.
func needsApproval(p *workspace.Plan, i int32) bool {
	step := p.Tasks[i].Step
	return (step == dataflow.StepRun || step == dataflow.StepWait) && p.Graph.Package.Tasks[i].Policy.Approve
}

// decisionFor is the decision of a person that a start would act on for a task that must run; nil: there is none.
func decisionFor(ctx context.Context, r *repo.Repo, p *workspace.Plan, i int32) (*approval.Block, error) {
	t := &p.Tasks[i]
	if t.Key == nil || t.Forced || p.New {
		return nil, nil
	}
	b, err := r.Workspaces.Approvals.Present(ctx, p.Workspace, p.Graph.Name(i))
	switch {
	case errors.Is(err, human.ErrNotFound), errors.Is(err, approval.ErrMalformed):
		return nil, nil
	case err != nil:
		return nil, err
	case b == nil, b.Key != t.Key.String():
		return nil, nil
	case b.Status == approval.Approved && b.Acted.IsZero(), b.Status == approval.Rejected:
		return b, nil
	}
	return nil, nil
}

func taskNames(g *dataflow.Graph, tasks []int32) []string {
	names := make([]string, len(tasks))
	for k, i := range tasks {
		names[k] = g.Name(i)
	}
	return names
}

func planOf(p *workspace.Plan, list []planRow, cores int) planJSON {
	doc := planJSON{
		Workspace: p.Workspace, New: p.New, Package: p.Package,
		File: p.File, Edited: p.Edited, Elsewhere: elsewhereOf(p.Elsewhere), Hits: p.Hits, Run: p.Runs, Waits: p.Waits, Stuck: p.Stuck, Concurrency: cores,
		Tasks: make([]planTaskJSON, 0, len(list)),
	}
	doc.Busy = busyOf(p.Busy)
	if p.History {
		doc.Expected = &expectedJSON{
			Least: p.Least.Milliseconds(), Most: p.Most.Milliseconds(), WithoutHistory: p.Unknown,
			CriticalPath: taskNames(p.Graph, p.Critical), CriticalTime: p.CriticalTime.Milliseconds(),
		}
	}
	for i := range list {
		row := &list[i]
		t := &p.Tasks[row.task]
		task := planTaskJSON{
			Task: p.Graph.Name(row.task), Plan: t.Step.String(), Execution: t.ExecutionID, Forced: t.Forced,
			Cause: string(row.cause.Kind), Reason: row.reason, For: taskNames(p.Graph, t.Waits),
			NeedsApproval: needsApproval(p, row.task) && row.decided == nil,
		}
		if t.Key != nil {
			task.Key = t.Key.String()
		}
		ms := p.Forecast.Expected[row.task].Milliseconds()
		if p.Known[row.task] {
			task.Last = &ms
		}
		if p.History && (t.Step == dataflow.StepRun || t.Step == dataflow.StepWait) {
			task.Expected = &ms
		}
		doc.Tasks = append(doc.Tasks, task)
	}
	doc.Growing = unmadeOf(growingOf(p))
	return doc
}

func writePlan(w io.Writer, p *workspace.Plan, list []planRow, cores int, all bool, now time.Time, st term.Style) {
	fmt.Fprintf(w, "Workspace %s", p.Workspace)
	if p.New {
		fmt.Fprint(w, " (nothing is deployed in it yet)")
	}
	fmt.Fprintf(w, ", package %s", human.Line(p.Package.Name+"@"+p.Package.Version))
	if p.Edited {
		fmt.Fprint(w, " (edited since it was deployed)")
	}
	fmt.Fprintln(w)
	if b := p.Busy; b != nil {
		fmt.Fprintf(w, "It is %s by %s%s: what is finished meanwhile turns into hits\n", b.Doing(), human.Line(cmp.Or(b.Holder, "another process")),
			also(unheard(b.Heard, now)))
	}
	names, times := 0, 0
	for i := range list {
		names = max(names, term.Columns(human.Line(p.Graph.Name(list[i].task))))
		times = max(times, term.Columns(planTime(p, list[i].task)))
	}
	for i := range list {
		t := &p.Tasks[list[i].task]
		name, took := human.Line(p.Graph.Name(list[i].task)), planTime(p, list[i].task)
		color := map[dataflow.Step]string{dataflow.StepHit: st.Dim, dataflow.StepRun: st.Green, dataflow.StepWait: st.Yellow, dataflow.StepStuck: st.Red}[t.Step]
		line := fmt.Sprintf("  %s%s  %s%s%s%s  %s%s  %s", name, strings.Repeat(" ", names-term.Columns(name)),
			color, t.Step, st.EndOf(color), strings.Repeat(" ", len("waits")-len(t.Step.String())),
			strings.Repeat(" ", times-term.Columns(took)), took, human.Line(list[i].reason))
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	if n := p.Runs + p.Waits + p.Stuck - len(list); n > 0 && !all {
		fmt.Fprintf(w, "  and %s, which --all lists\n", human.Count(n, "other task"))
	}
	writeGrowing(w, p)
	fmt.Fprintln(w, planSummary(p))
	if i := slices.IndexFunc(p.Tasks, stops); i >= 0 {
		fmt.Fprintf(w, "A start would stop at %s, whatever else there is to run\n", human.Line(p.Graph.Name(int32(i))))
	}
	if p.Runs+p.Waits == 0 {
		return
	}
	if !p.History {
		fmt.Fprintln(w, "How long it takes is not known: none of its tasks has ended here yet")
		return
	}
	fmt.Fprintln(w, planTimes(p, cores))
	if len(p.Critical) > 1 {
		fmt.Fprintf(w, "Critical path: %s (%s)\n", human.Line(pathText(taskNames(p.Graph, p.Critical))), human.Duration(p.CriticalTime))
	}
}

// stops reports whether a task cannot run for a reason that ends the whole run, as opposed to one that lacks its own
// input.
func stops(t dataflow.TaskPlan) bool {
	var lacking *dataflow.LackingError
	return t.Step == dataflow.StepStuck && t.Err != nil && !errors.As(t.Err, &lacking)
}

// planTime is the duration of a task's latest execution; "?" if unknown.
func planTime(p *workspace.Plan, i int32) string {
	if !p.Known[i] {
		return "?"
	}
	return human.Duration(p.Forecast.Expected[i])
}

// planSummary counts the tasks by step.
func planSummary(p *workspace.Plan) string {
	if p.Runs+p.Waits+p.Stuck+len(p.Growing) == 0 {
		return fmt.Sprintf("Nothing to run: %s", human.Count(p.Hits, "hit"))
	}
	parts := []string{human.Count(p.Hits, "hit"), fmt.Sprintf("%d to run", p.Runs)}
	if p.Waits > 0 {
		parts = append(parts, fmt.Sprintf("%d %s for %s", p.Waits, map[bool]string{true: "waits", false: "wait"}[p.Waits == 1], map[bool]string{true: "it", false: "them"}[p.Runs == 1]))
	}
	if p.Stuck > 0 {
		parts = append(parts, fmt.Sprintf("%d cannot run", p.Stuck))
	}
	return strings.Join(parts, ", ")
}

func planTimes(p *workspace.Plan, cores int) string {
	took := "About " + about(p.Most)
	if least := about(p.Least); least != about(p.Most) {
		took = fmt.Sprintf("About %s to %s", least, about(p.Most))
	}
	took += fmt.Sprintf(" with %d at a time", cores)
	if p.Unknown > 0 {
		took += fmt.Sprintf("; %s without history counted as the average", human.Count(p.Unknown, "task"))
	}
	return took
}

// about prints a forecast without false precision.
func about(d time.Duration) string { return human.Seconds(max(d.Round(time.Second), time.Second)) }

// pathText shows the two ends of a long path.
func pathText(names []string) string {
	const end = 4
	if n := len(names) - 2*end; n > 1 {
		names = append(append(names[:end:end], fmt.Sprintf("… %d more …", n)), names[len(names)-end:]...)
	}
	return strings.Join(names, " → ")
}
