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
	"e3/dataflow"
	"e3/internal/human"
	"e3/internal/insight/compare"
	"e3/internal/repo"
	"e3/workspace"
)

type compareOptions struct {
	all   bool
	best  []string
	sort  string
	asCSV bool
	plots string // a page to write
	force bool
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

With --plots, outputs marked "kind: plot" that are tables are drawn in a page: a chart for each, with a line for each side and item.

The best value of a metric has an asterisk. Its name tells which value that is (accuracy, loss, rmse, …), or --best does:
"lower" or "higher" for all metrics, "name=lower" for one.`,
		Example: `  e3 compare . dev exp1 'exp*'
  e3 compare . dev 'exp*' --sort -accuracy
  e3 compare . dev --best rank=lower --all
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
	if len(args) > 1 && isLocation(args[0]) {
		return args[0], args[1:], nil
	}
	return a.location(), args, nil
}

// table are the options of the table.
func (o *compareOptions) table(a *app) (compare.TableOptions, error) {
	opts := compare.TableOptions{All: o.all, Best: map[string]compare.Better{}, Sort: o.sort}
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
		if err := writePlots(ctx, a, r, sides, o); err != nil {
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
		if slices.ContainsFunc(st.Datasets, func(d workspace.DatasetRow) bool { return d.Output && d.Freshness != dataflow.Current && !st.East }) {
			a.Warnf("%s: not all outputs are of its present inputs; make them with: e3 start %s %s", s.Workspace, human.Quoted(shown(r.Location, r)), human.Quoted(s.Workspace))
		}
	}
	return nil
}

// heads are the columns of a table.
func heads(t *compare.Table) (list []string, items bool) {
	items = t.HasItems()
	list = []string{"side"}
	if items {
		list = append(list, "item")
	}
	list = append(list, t.Params...)
	for _, c := range t.Metrics {
		list = append(list, c.Name)
	}
	return list, items
}

// cells are those of a row, apart from the time.
func cells(t *compare.Table, i int, items bool, metric func(c *compare.Column, text string) string) []string {
	r := t.Rows[i]
	row := []string{r.Side}
	if items {
		row = append(row, r.Item)
	}
	for _, name := range t.Params {
		row = append(row, compare.Plain(r.Params[name]))
	}
	for _, c := range t.Metrics {
		row = append(row, metric(c, compare.Plain(r.Metrics[c.Name])))
	}
	return row
}

func writeTable(w io.Writer, t *compare.Table) {
	const most = 40 // bytes of a value
	list, items := heads(t)
	right := map[int]bool{len(list): true}
	for i := len(list) - len(t.Metrics); i < len(list); i++ {
		right[i] = true
	}
	out := &render.Table{Right: right}
	out.Row(append(list, "time")...)
	for i, r := range t.Rows {
		row := cells(t, i, items, func(c *compare.Column, text string) string {
			if slices.Contains(c.Best, i) {
				return human.Truncate(text, most) + "*"
			}
			return human.Truncate(text, most) + " "
		})
		for k := range row {
			row[k] = human.Truncate(row[k], most+1)
		}
		took := "-"
		if r.Ms > 0 {
			took = human.Duration(r.Time())
		}
		out.Row(append(row, took)...)
	}
	out.Write(w, "")
	for _, r := range t.Rows {
		for _, note := range r.Notes {
			fmt.Fprintf(w, "%s: %s\n", human.Line(strings.TrimSpace(r.Side+" "+r.Item)), human.Line(note))
		}
	}
}

func writeCSV(w io.Writer, t *compare.Table) error {
	list, items := heads(t)
	out := csv.NewWriter(w)
	if err := out.Write(append(list, "ms")); err != nil {
		return err
	}
	for i, r := range t.Rows {
		row := cells(t, i, items, func(_ *compare.Column, text string) string { return text })
		if err := out.Write(append(row, fmt.Sprint(r.Ms))); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
