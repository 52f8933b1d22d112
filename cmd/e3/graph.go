package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/diagram"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
	"e3/internal/repo"
	"e3/workspace"
)

type graphOptions struct {
	getOptions
	format, run, filter, fold string
	inputs                    bool
}

// foldAbove is the largest number of nodes of a drawing by default.
const foldAbove = 200

func newGraph(a *app) *cobra.Command {
	var o graphOptions
	cmd := &cobra.Command{
		Use:   "graph [repo] <workspace>",
		Short: "Draw the tasks of a workspace and what they read from each other",
		Long: `Draw the tasks of a workspace and their dependencies, as DOT for Graphviz, as Mermaid, or as SVG. Colours show the present
state of the outputs, as in "e3 status", or with --run the outcome of the tasks in a run. If the package file was edited, the
edited version is drawn.

A graph of more than 200 nodes is folded: the items of a matrix become one node with their number and states. If that is not
enough, tasks of the same depth are folded too.`,
		Example: `  e3 graph . prod | dot -Tpdf > prod.pdf
  e3 graph . prod -o prod.svg --inputs
  e3 graph . prod --run 018f3b4c-9a -o run.svg
  e3 graph . prod --filter 'report*' --format mermaid`,
		ValidArgsFunction: completeWorkspace(a),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			if err := filled("--%s is empty", "run", "output", "filter")(cmd, args); err != nil {
				return err
			}
			return o.check()
		},
		RunE: a.onOne(a.openToRead, func(ctx context.Context, r *repo.Repo, ws string) error {
			return runGraph(ctx, a, r, ws, &o)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.format, "format", "", "dot, mermaid or svg (default: as the name of the file ends, else dot)")
	f.StringVarP(&o.out, "output", "o", "", "file to write (default: standard output)")
	f.BoolVar(&o.force, "force", false, "replace the file if it exists")
	f.StringVar(&o.run, "run", "", "colour by a run that is on record or has events, by the beginning of its id")
	f.StringVar(&o.filter, "filter", "", "only tasks that match, with everything upstream of them (* and ?)")
	f.BoolVar(&o.inputs, "inputs", false, "draw inputs too")
	f.StringVar(&o.fold, "fold", "auto", "fold the items of a matrix: auto, always or never")
	completeRuns(a, cmd, "run")
	fixedValues(cmd, "format", "dot", "mermaid", "svg")
	fixedValues(cmd, "fold", "auto", "always", "never")
	return a.answers(cmd, diagram.Drawing{})
}

// endings maps file extensions to formats.
var endings = map[string]string{".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid", ".svg": "svg"}

func (o *graphOptions) check() error {
	if o.format != "" {
		return nil
	}
	ending := strings.ToLower(filepath.Ext(o.out))
	if o.format = endings[ending]; o.format != "" {
		return nil
	}
	if ending != "" {
		return usagef("the ending of %s is not .dot, .mmd or .svg; name the --format", o.out)
	}
	o.format = "dot"
	return nil
}

func runGraph(ctx context.Context, a *app, r *repo.Repo, ws string, o *graphOptions) error {
	pkg, run, look, err := graphOf(ctx, a, r, ws, o)
	if err != nil {
		return err
	}
	keep, err := kept(pkg, o.filter)
	if err != nil {
		return err
	}
	g := report.Graph(pkg, report.GraphOptions{Inputs: o.inputs, Keep: keep, Look: look})
	doc := g.Answer()
	doc.Workspace, doc.Package, doc.Run = ws, pkg.Name+"@"+pkg.Version, run
	drawn := g
	switch {
	case o.fold == "always":
		drawn = diagram.FoldGroups(g)
	case o.fold == "auto":
		drawn = diagram.Fold(g, foldAbove)
	}
	write := map[string]func(io.Writer) error{"dot": drawn.DOT, "mermaid": drawn.Mermaid, "svg": drawn.SVG}[o.format]
	if o.out != "" {
		if err := writeDrawing(a, o.target(), write); err != nil {
			return err
		}
	}
	if o.fold == "auto" && len(drawn.Nodes) < len(g.Nodes) && (o.out != "" || !a.JSON) {
		a.Notef("note: %d nodes are drawn as %d; --fold never draws each", len(g.Nodes), len(drawn.Nodes))
	}
	if o.out != "" && !a.JSON {
		return nil
	}
	var fault error
	err = a.Reply(doc, func(w *render.Sheet) { fault = write(w) })
	if fault != nil {
		return fault
	}
	return err
}

// graphOf builds the graph to draw, with the states of its nodes.
func graphOf(ctx context.Context, a *app, r *repo.Repo, ws string, o *graphOptions) (pkg *record.Package, run string, look lookFunc, err error) {
	if o.run != "" {
		rep, err := r.Workspaces.Runs.Report(ctx, ws, o.run)
		if err != nil {
			return nil, "", nil, err
		}
		pkg, _, err := r.Workspaces.Runs.PackageOf(ctx, rep)
		if err == nil && pkg == nil {
			err = usagef("package %s of run %s is not in the repository in a form that can be drawn", rep.PackageRef, rep.RunID)
		}
		return pkg, rep.RunID, lookOfRun(rep), err
	}
	sayWhereItStands(ctx, a, r, ws)
	st, err := r.Workspaces.Planner.Status(ctx, ws)
	switch {
	case err != nil:
		return nil, "", nil, err
	case !st.State.Deployed:
		return nil, "", nil, fmt.Errorf("workspace %s: %w", ws, workspace.ErrNotDeployed)
	case st.Next == nil:
		return nil, "", nil, usagef("workspace %s has a package of the TypeScript e3, which holds East code and cannot be drawn", ws)
	}
	for _, f := range st.Faults {
		a.Notef("note: %s", human.Text(f.Error()))
	}
	return st.Next, "", lookOfStatus(st), nil
}

// lookFunc fills in the state of a node.
type lookFunc = func(n *diagram.Node, name string, isInput bool)

func lookOfRun(r *runview.Report) lookFunc {
	tasks := make(map[string]*runview.TaskReport, len(r.Tasks))
	for i := range r.Tasks {
		tasks[r.Tasks[i].Task] = &r.Tasks[i]
	}
	return func(n *diagram.Node, name string, isInput bool) {
		if t := tasks[name]; t != nil && !isInput {
			n.Status, n.Note = diagram.Status(t.State), executionTime(t)
		}
	}
}

func lookOfStatus(st *workspace.Status) lookFunc {
	type key struct {
		name  string
		input bool
	}
	rows := make(map[key]*workspace.DatasetRow, len(st.Datasets))
	for i := range st.Datasets {
		rows[key{st.Datasets[i].Name, !st.Datasets[i].Output}] = &st.Datasets[i]
	}
	pending := map[string]bool{}
	for i := range st.Unmade {
		pending[st.Unmade[i].Name] = st.Unmade[i].Pending
	}
	return func(n *diagram.Node, name string, isInput bool) {
		d := rows[key{name, isInput}]
		switch {
		case d == nil:
			if pending[name] && !isInput {
				n.Status = diagram.Unknown
			}
			return
		case d.Freshness == dataflow.Stale:
			n.Status = diagram.Stale
		case d.Freshness == dataflow.Absent || d.Freshness == dataflow.LeftOut:
			n.Status = diagram.Missing
		case !isInput:
			n.Status = diagram.Current
		}
		if d.Set {
			n.Note = "set"
		}
	}
}

// kept returns a function that reports whether a task is named by a filter or upstream of one that is; nil means all
// tasks.
func kept(pkg *record.Package, filter string) (func(task string) bool, error) {
	if filter == "" {
		return nil, nil
	}
	g, err := graph.New(pkg)
	if err != nil {
		return nil, err
	}
	named, selected := g.Select(filter)
	any := false
	known := make([]string, g.Len())
	for i := range known {
		known[i] = g.Name(int32(i))
		any = any || named[i]
	}
	if !any {
		return nil, fmt.Errorf("--filter %s: %w", filter, &workspace.UnknownError{What: "task", Name: filter, Known: known})
	}
	return func(task string) bool {
		i, ok := g.Find(task)
		return ok && selected[i]
	}, nil
}
