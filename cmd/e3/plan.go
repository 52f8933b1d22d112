package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/cmd/e3/internal/term"
	"e3/executions"
	"e3/internal/human"
	"e3/internal/insight/explain"
	"e3/internal/repo"
	"e3/objectstore"
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
			if _, err := overridesOf(o.set); err != nil {
				return err
			}
			location, ws, err := startArgs(a, cmd, args, o.file)
			if err != nil {
				return err
			}
			return inPlanned(cmd.Context(), a, location, o.file, func(r *repo.Repo) error {
				return runPlan(cmd.Context(), a, r, ws, &o)
			})
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
	return a.answers(cmd, workspace.Plan{})
}

func runPlan(ctx context.Context, a *app, r *repo.Repo, ws string, o *planOptions) error {
	l, err := o.limits.parse()
	if err != nil {
		return err
	}
	r.SayRoom(o.room)
	collectOften()
	set, err := overridesOf(o.set)
	if err != nil {
		return err
	}
	opts := workspace.PlanOptions{Set: set, Concurrency: l.concurrency, Memory: l.memory, Capacities: l.capacities, Force: o.force, Filter: o.filter, FileNamed: o.file != ""}
	p, err := planned(ctx, a, r, ws, o.file, opts)
	if err != nil {
		return unfollowed(a.here(), err)
	}
	a.warn(p.Warnings)
	sayElsewhere(a, a.here(), p.Workspace, p.Elsewhere)
	if err := r.Workspaces.Planner.Explain(ctx, p, a.JSON || o.all, misses{newExplainer(r, p.Objects)}); err != nil {
		return err
	}
	if err := a.Reply(p, func(w *render.Sheet) {
		writePlan(w, p, o.all, a.Now())
		writeRooms(w, p.Rooms)
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
	find := func() (string, error) { return a.named(ctx, r, ws) }
	if file != "" {
		find = func() (string, error) { return linkedTo(ctx, a, r, ws, file) }
	}
	switch found, err := find(); {
	case err != nil:
		return nil, err
	case found == "":
		return r.Workspaces.Planner.PlanFile(ctx, ws, file, o)
	default:
		return r.Workspaces.Planner.Plan(ctx, found, o)
	}
}

// inPlanned calls do with the repository that a start would use. If the start would first create it, an empty repository in
// a temporary folder takes its place.
func inPlanned(ctx context.Context, a *app, location, file string, do func(*repo.Repo) error) error {
	wanted := ""
	if file != "" {
		var err error
		if location, wanted, err = findRepository(a, location, file); err != nil {
			return err
		}
	}
	if wanted != "" {
		return inEmpty(ctx, a, do)
	}
	return a.within(ctx, a.openToRead, location, do)
}

// misses tells causes as e3 why does.
type misses struct{ *explain.Explainer }

// Miss implements [workspace.Misses].
func (m misses) Miss(ctx context.Context, ws, task string, key executions.Key, inputs []objectstore.Hash, gone string) (cause, reason string, err error) {
	c, err := m.Explainer.Miss(ctx, ws, task, key, inputs)
	if c.Kind == explain.Unknown && gone != "" {
		return string(explain.OutputGone), gone, err
	}
	return string(c.Kind), c.String(), err
}

func writePlan(w *render.Sheet, p *workspace.Plan, all bool, now time.Time) {
	fmt.Fprintf(w, "Workspace %s", p.Workspace)
	if p.New {
		fmt.Fprint(w, " (nothing is deployed in it yet)")
	}
	fmt.Fprintf(w, ", package %s", human.Line(p.Package.Name+"@"+p.Package.Version))
	if p.Edited {
		fmt.Fprint(w, " (edited since it was deployed)")
	}
	fmt.Fprintln(w)
	if b := p.Holder; b != nil {
		w.Line("It is %s by %s%s: what is finished meanwhile turns into hits", b.Doing(), cmp.Or(b.Holder, "another process"),
			also(human.Unheard(b.Heard.At, b.Heard.Lease, now)))
	}
	writeSteps(w, p.Steps)
	if n := p.Runs + p.Waits + p.Stuck - len(p.Steps); n > 0 && !all {
		w.Line("  and %s, which --all lists", human.Count(n, "other task"))
	}
	for i := range p.Unmade {
		w.Line("  %s", &p.Unmade[i])
	}
	w.Line("%s", planSummary(p))
	if task := p.Ends(); task != "" {
		w.Line("A start would stop at %s, whatever else there is to run", task)
	}
	switch e := p.Expected; {
	case p.Runs+p.Waits == 0:
	case e == nil:
		w.Line("How long it takes is not known: none of its tasks has ended here yet")
	default:
		w.Line("%s", planTimes(e, p.Concurrency))
		if len(e.CriticalPath) > 1 {
			w.Line("Critical path: %s (%s)", pathText(e.CriticalPath), human.Duration(e.CriticalTime.Duration()))
		}
	}
}

// writeSteps prints a line for each task.
func writeSteps(w *render.Sheet, steps []workspace.PlannedTask) {
	st := w.Style
	names, times := 0, 0
	for i := range steps {
		names = max(names, term.Columns(human.Line(steps[i].Task)))
		times = max(times, term.Columns(planTime(&steps[i])))
	}
	for i := range steps {
		s := &steps[i]
		name, took, color := human.Line(s.Task), planTime(s), st.Tone(s.Plan.String())
		line := fmt.Sprintf("  %s%s  %s%s%s%s  %s%s  %s", name, strings.Repeat(" ", names-term.Columns(name)),
			color, s.Plan, st.EndOf(color), strings.Repeat(" ", len("waits")-len(s.Plan.String())),
			strings.Repeat(" ", times-term.Columns(took)), took, human.Line(s.Reason))
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// planTime is the duration of a task's latest execution; "?" if unknown.
func planTime(s *workspace.PlannedTask) string {
	if s.Last == nil {
		return "?"
	}
	return human.Duration(s.Last.Duration())
}

// planSummary counts the tasks by step.
func planSummary(p *workspace.Plan) string {
	if p.Runs+p.Waits+p.Stuck+len(p.Growing) == 0 {
		return fmt.Sprintf("Nothing to run: %s", human.Count(p.Hits, "hit"))
	}
	parts := []string{human.Count(p.Hits, "hit"), fmt.Sprintf("%d to run", p.Runs)}
	if p.Waits > 0 {
		wait, them := "wait", "them"
		if p.Waits == 1 {
			wait = "waits"
		}
		if p.Runs == 1 {
			them = "it"
		}
		parts = append(parts, fmt.Sprintf("%d %s for %s", p.Waits, wait, them))
	}
	if p.Stuck > 0 {
		parts = append(parts, fmt.Sprintf("%d cannot run", p.Stuck))
	}
	return strings.Join(parts, ", ")
}

func planTimes(e *workspace.Expected, cores int) string {
	least, most := about(e.Least.Duration()), about(e.Most.Duration())
	took := "About " + most
	if least != most {
		took = fmt.Sprintf("About %s to %s", least, most)
	}
	took += fmt.Sprintf(" with %d at a time", cores)
	if e.WithoutHistory > 0 {
		took += fmt.Sprintf("; %s without history counted as the average", human.Count(e.WithoutHistory, "task"))
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
