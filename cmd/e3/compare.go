package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/human"
	"e3/internal/insight/compare"
	"e3/internal/repo"
)

type compareOptions struct {
	all    bool
	best   []string
	where  []string
	family string
	sort   string
	asCSV  bool
	plots  string // a page to write
	force  bool
}

func newCompare(a *app) *cobra.Command {
	var o compareOptions
	cmd := &cobra.Command{
		Use:   "compare [repo] <side>...",
		Short: "Show parameters, metrics and times of many workspaces or runs in one table",
		Long: `Show a table with a row for each side: parameters that differ, metrics (files marked as such: "kind: metrics") and how long the tasks
took. A side is a workspace, a pattern of workspaces ('exp*'), or a run as "e3 diff" names it: dev@, dev@-1, dev@018f.

Where the metrics are those of a matrix, there is a row for each item. An input that is a file or a directory shows the
beginning of its hash.

--where shows only rows with a value of a parameter; the same name twice means either value. --family shows only the metrics of
one task. Rows without metrics are named below the table. A number has at most six digits of a fraction; --csv and --json have
all of them.

With --plots, outputs marked "kind: plot" that are tables are drawn in a page: a chart for each, with a line for each side and item.

The best value of a metric has an asterisk. Its name tells which value that is (accuracy, loss, rmse, …), or --best does:
"lower" or "higher" for all metrics, "name=lower" for one.`,
		Example: `  e3 compare . dev exp1 'exp*'
  e3 compare . dev 'exp*' --sort -accuracy
  e3 compare . dev --best rank=lower --all
  e3 compare . sweep --where depth=4 --where rate=0.1 --where rate=0.3
  e3 compare . 'exp*' --csv > experiments.csv
  e3 compare . dev 'exp*' --plots curves.html`,
		ValidArgsFunction: completeWorkspace(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			location, rest, err := compareArgs(a, cmd, args)
			if err != nil {
				return err
			}
			table, err := o.table(a)
			if err != nil {
				return err
			}
			return a.within(cmd.Context(), a.openToRead, location, func(r *repo.Repo) error {
				return runCompare(cmd.Context(), a, r, rest, table, &o)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "also parameters that are the same everywhere")
	f.StringArrayVar(&o.best, "best", nil, "lower or higher, or name=lower, name=higher for one metric (repeatable)")
	f.StringArrayVar(&o.where, "where", nil, "only rows with this value of a parameter, as rate=0.1; also of side and item (repeatable)")
	f.StringVar(&o.family, "family", "", "only the metrics of this `task`, and rows that have one")
	f.StringVar(&o.sort, "sort", "", "sort by a column, with a leading - from the greatest: a parameter, a metric, side, item or time")
	f.BoolVar(&o.asCSV, "csv", false, "print CSV")
	f.StringVar(&o.plots, "plots", "", "write the plots as a page to this `file`")
	f.BoolVar(&o.force, "force", false, "with --plots: replace the file if it exists")
	return a.answers(cmd, compare.Table{})
}

// compareArgs splits the arguments: the first may be the repository.
func compareArgs(a *app, cmd *cobra.Command, args []string) (location string, sides []string, err error) {
	if len(args) == 0 {
		return "", nil, usagef("%s needs a workspace, as in: e3 compare . dev 'exp*'", cmd.CommandPath())
	}
	if isLocation(args[0]) && len(args) == 1 {
		return "", nil, usagef("%s needs workspaces after the repository, as in: e3 compare . dev 'exp*'", cmd.CommandPath())
	}
	if isLocation(args[0]) {
		return args[0], args[1:], nil
	}
	return a.location(), args, nil
}

// table are the options of the table.
func (o *compareOptions) table(a *app) (compare.TableOptions, error) {
	opts := compare.TableOptions{All: o.all, Family: o.family, Best: map[string]compare.Better{}, Sort: o.sort}
	var err error
	if opts.Where, err = compare.ParseWhere(o.where); err != nil {
		return opts, usagef("--where: %v", err)
	}
	for _, arg := range o.best {
		name, better, named := strings.Cut(arg, "=")
		if !named {
			name, better = "", arg
		}
		if better != string(compare.Lower) && better != string(compare.Higher) {
			return opts, usagef("--best is lower or higher, or such as loss=lower, not %q", arg)
		}
		opts.Best[name] = compare.Better(better)
	}
	if a.JSON && o.asCSV {
		return opts, usagef("--json and --csv are two forms: give one of them")
	}
	return opts, nil
}

func runCompare(ctx context.Context, a *app, r *repo.Repo, args []string, opts compare.TableOptions, o *compareOptions) error {
	sides, err := comparedSides(ctx, r, args)
	if err != nil {
		return err
	}
	if o.plots != "" {
		if err := writePlots(ctx, a, r, sides, opts.Where, o); err != nil {
			return err
		}
	}
	t, err := comparedFrom(r).Table(ctx, sides, opts)
	if errors.Is(err, compare.ErrSyntax) || errors.Is(err, compare.ErrNoColumn) {
		return usagef("%v", err)
	}
	if err != nil {
		return err
	}
	if err := sayOutdated(ctx, a, r, sides); err != nil {
		return err
	}
	if len(t.Rows) == 0 && len(o.where) > 0 {
		a.Notef("No row has %s", strings.Join(o.where, " and "))
	}
	if o.asCSV {
		return a.Raw(func(w io.Writer) error { return writeCSV(w, t) })
	}
	return a.Reply(t, func(w *render.Sheet) { writeTable(w, t) })
}

// comparedSides reads the arguments; a pattern stands for the workspaces that it matches.
func comparedSides(ctx context.Context, r *repo.Repo, args []string) ([]compare.Side, error) {
	sides, err := compare.Sides(args, func() ([]string, error) { return r.Workspaces.States.List(ctx) })
	if errors.Is(err, compare.ErrSyntax) {
		return nil, usagef("%v", err)
	}
	return sides, err
}

// sayOutdated names the workspaces whose inputs have changed since their outputs were made.
func sayOutdated(ctx context.Context, a *app, r *repo.Repo, sides []compare.Side) error {
	for _, s := range sides {
		if s.What != compare.Workspace {
			continue
		}
		st, err := r.Workspaces.Planner.Status(ctx, s.Workspace)
		if err != nil {
			return err
		}
		if is := st.Standing(); len(is.Stale)+len(is.Missing) > 0 && !st.East {
			a.Warnf("%s: not all outputs are of its present inputs; make them with: e3 start %s %s", s.Workspace, human.Quoted(shown(r.Location, r)), human.Quoted(s.Workspace))
		}
	}
	return nil
}

func writeTable(w io.Writer, t *compare.Table) {
	const most = 40 // bytes of a value
	list, bare := t.Leads(), t.Bare()
	cells := make([][]string, len(t.Metrics)) // by metric and row
	for k, c := range t.Metrics {
		texts, pads := t.Cells(c)
		for i := range texts {
			texts[i] = human.Truncate(texts[i], most)
			if slices.Contains(c.Best, i) {
				texts[i] += "*"
			} else {
				texts[i] += " "
			}
			texts[i] += strings.Repeat(" ", pads[i])
		}
		cells[k] = texts
	}
	out := &render.Table{Right: map[int]bool{len(list) + len(t.Metrics): true}}
	for _, c := range t.Metrics {
		out.Right[len(list)] = true
		list = append(list, c.Name)
	}
	out.Row(append(list, "time")...)
	for i, r := range t.Rows {
		if bare[i] {
			continue
		}
		row := t.Lead(r)
		for k := range row {
			row[k] = human.Truncate(row[k], most+1)
		}
		for k := range t.Metrics {
			row = append(row, cells[k][i])
		}
		took := "-"
		if r.Ms > 0 {
			took = human.Duration(r.Time())
		}
		out.Row(append(row, took)...)
	}
	out.Write(w, "")
	if note := t.BareNote(); note != "" {
		fmt.Fprintln(w, human.Line(note))
	}
	for _, note := range t.Remarks() {
		fmt.Fprintln(w, human.Line(note))
	}
}

func writeCSV(w io.Writer, t *compare.Table) error {
	list := t.Leads()
	for _, c := range t.Metrics {
		list = append(list, c.Name)
	}
	out := csv.NewWriter(w)
	if err := out.Write(append(list, "ms")); err != nil {
		return err
	}
	for _, r := range t.Rows {
		row := t.Lead(r)
		for _, c := range t.Metrics {
			row = append(row, compare.Plain(r.Metrics[c.Name]))
		}
		if err := out.Write(append(row, fmt.Sprint(r.Ms))); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
