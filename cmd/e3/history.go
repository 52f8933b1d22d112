package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/human"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/internal/repo"
)

// screenful is the number of entries that a terminal shows without --last.
const screenful = 20

type historyOptions struct {
	history.Filter
	since, until string
	deep, plot   bool
	plotSet      bool // --plot was given
}

// runStatuses are the words of runview.Report.Status.
var runStatuses = []string{"completed", "failed", "cancelled", "waits", "crashed", "running", "interrupted", "unfinished"}

// allStatuses are the words of runs and of attempts.
func allStatuses() []string {
	words := slices.Clone(runStatuses)
	for _, s := range history.Statuses() {
		if !slices.Contains(words, string(s)) {
			words = append(words, string(s))
		}
	}
	return words
}

func newHistory(a *app) *cobra.Command {
	var o historyOptions
	cmd := &cobra.Command{
		Use:   "history [repo] <workspace>[.<task>]",
		Short: "List the runs of a workspace, or all attempts of a task",
		Long: `List the runs of a workspace, or all executions of a task under its name, with any command and inputs; the latest first.
The name may be a pattern of * and ?: then the tasks are listed one after the other.

A terminal shows the latest 20, otherwise all are listed; --last sets the number. Times are local. If the record of an execution
was pruned or is gone, its events are shown. --plot draws the durations over time; for one task a terminal shows the plot
anyway. The numbers below it are those of successes.

History is read from executions and from the events of runs, which the setting events-retention keeps for a time. --deep also
reads every execution of the repository: it finds older ones, and those that were imported without events.`,
		Example: `  e3 history . prod
  e3 history . prod.train
  e3 history . 'prod.train*' --failed --since 7d
  e3 history . 'prod.*' --exit 137
  e3 history . prod.train --plot --last 5
  e3 history . prod --json`,
		ValidArgsFunction: completeEvents(a),
		PreRunE:           func(cmd *cobra.Command, _ []string) error { return parseHistory(a, cmd, &o) },
		RunE: a.on(a.openToRead, func(ctx context.Context, r *repo.Repo, args []string) error {
			arg, err := a.named(ctx, r, args[0])
			if err != nil {
				return err
			}
			return a.inOnly(ctx, r, arg, func(name string) error { return showHistory(ctx, a, r, name, &o) })
		}, "[workspace.task]"),
	}
	f := cmd.Flags()
	f.StringVar(&o.since, "since", "", "only what began then or later: 2h, 7d, 2026-11-20, 2026-11-20T15:04")
	f.StringVar(&o.until, "until", "", "only what began before then")
	f.BoolVar(&o.Failed, "failed", false, "only what failed, was cancelled or interrupted")
	f.StringSliceVar(&o.Status, "status", nil, "only with this status (repeatable)")
	f.Int64SliceVar(&o.Exit, "exit", nil, "only attempts with this exit code (repeatable); 128 + a signal's number also means commands that it ended")
	f.StringVar(&o.By, "by", "", "only what this user or machine ran: ann, ann@lab, @lab (* and ?)")
	f.StringVar(&o.By, "worker", "", "the same as --by")
	f.StringVar(&o.Run, "run", "", "only of the run whose id begins so")
	f.IntVarP(&o.Last, "last", "n", 0, "this many, of each task; 0 is all")
	f.BoolVar(&o.deep, "deep", false, "also search all executions of the repository")
	f.BoolVar(&o.plot, "plot", false, "draw how long they took")
	completeRuns(a, cmd, "run")
	fixedValues(cmd, "status", allStatuses()...)
	return a.answers(cmd, history.RunList{}, history.TaskLists{})
}

// parseHistory reads the flags.
func parseHistory(a *app, cmd *cobra.Command, o *historyOptions) error {
	f := cmd.Flags()
	if err := alternatives(cmd, "by", "worker"); err != nil {
		return err
	}
	if err := filled("--%s must not be empty", "run", "by", "worker")(cmd, nil); err != nil {
		return err
	}
	if o.Last < 0 {
		return usagef("--last counts from 1; 0 is all")
	}
	if !f.Changed("last") && !a.JSON && a.ToTerminal() {
		o.Last = screenful
	}
	o.plotSet, o.Whole = f.Changed("plot"), o.plot
	var err error
	if o.Since, err = parseMoment(a, "since", o.since); err != nil {
		return err
	}
	o.Until, err = parseMoment(a, "until", o.until)
	return err
}

func showHistory(ctx context.Context, a *app, r *repo.Repo, name string, o *historyOptions) error {
	ws, task, ofTask := strings.Cut(name, ".")
	words := runStatuses
	if ofTask {
		words = nil
		for _, s := range history.Statuses() {
			words = append(words, string(s))
		}
	}
	for _, s := range o.Status {
		if err := oneOf("status", s, words...); err != nil {
			return err
		}
	}
	if strings.ContainsAny(ws, "[*?") {
		return unnamed(name, "<workspace>[.<task>]")
	}
	if err := checkName("workspace", ws); err != nil {
		return err
	}
	if o.deep && !ofTask {
		return usagef("--deep is for the history of a task: it looks for executions")
	}
	if len(o.Exit) > 0 && !ofTask {
		return usagef("--exit is for the attempts of tasks, as: e3 history <repo> %s --exit %d", human.Quoted(ws+".*"), o.Exit[0])
	}
	if ofTask && !events.IsPattern(task) {
		var err error
		if _, task, err = splitTask(name); err != nil {
			return err
		}
	}
	if !ofTask {
		list, err := history.Runs(ctx, r.Workspaces.Runs, ws, &o.Filter)
		if err != nil {
			return err
		}
		return a.Reply(list, func(w *render.Sheet) { writeRuns(a, w, list, o) })
	}
	list, err := history.Tasks(ctx, historyOf(r), ws, task, o.deep, &o.Filter)
	if err != nil {
		return err
	}
	sayDamaged(a, list.Damaged)
	return a.Reply(list, func(w *render.Sheet) {
		for i := range list.Tasks {
			if i > 0 {
				fmt.Fprintln(w)
			}
			writeAttempts(a, w, ws, &list.Tasks[i], !events.IsPattern(task), o)
		}
		if len(list.Tasks) == 0 {
			fmt.Fprintln(w, "None")
		}
	})
}

// historyOf returns the stores that history reads.
func historyOf(r *repo.Repo) history.Stores {
	return history.Stores{Records: r.Records, Executions: r.Executions, Runs: r.Workspaces.Runs}
}

// earlier says that entries are left out: how many, or that there are some if their number is not known.
func earlier(left int, partial bool) string {
	if partial {
		return "… and earlier ones"
	}
	return "… and " + human.Count(left, "earlier one")
}

// writePlot draws durations if that was asked for, or if enough of one task are shown on a terminal.
func (o *historyOptions) writePlot(a *app, w io.Writer, what string, list []history.Point, single bool) {
	if len(list) == 0 || o.plotSet && !o.plot || !o.plotSet && (!single || len(list) < render.Fewest || !a.ToTerminal()) {
		return
	}
	points := make([]render.Point, len(list))
	for i, p := range list {
		points[i] = render.Point{At: p.At.Time, Took: p.Took.Duration(), Status: p.Status, Bad: p.Bad}
	}
	fmt.Fprintln(w)
	a.Plot(what, points).Write(w)
}

// sayDamaged warns about event logs with damaged lines.
func sayDamaged(a *app, faults []human.Fault) {
	for _, err := range faults {
		a.Notef("e3: %s; what that line said is missing here", human.Line(err.Error()))
	}
}

func writeAttempts(a *app, w *render.Sheet, ws string, l *history.TaskList, single bool, o *historyOptions) {
	indent := ""
	if !single {
		w.Line("%s", ws+"."+l.Task)
		indent = "  "
	}
	if len(l.Shown) == 0 {
		fmt.Fprintf(w, "%sNone\n", indent)
		return
	}
	t := a.Headed(map[int]bool{3: true, 4: true}, "EXECUTION", "STATUS", "STARTED", "TOOK", "MEMORY", "RUN")
	for i := range l.Shown {
		x := &l.Shown[i]
		note := attemptNotes(a, x)
		if l.Workers > 1 && x.Worker != "" {
			note = append(note, "by "+x.Worker)
		}
		t.Row(cmp.Or(human.Short(x.ExecutionID), "-"), string(x.Status), human.Stamp(x.At()), attemptTook(x), attemptMemory(x), cmp.Or(human.Short(x.MadeBy), "-"), strings.Join(note, ", "))
	}
	w.Table(t, indent)
	if l.Left > 0 {
		fmt.Fprintf(w, "%s%s; --last 0 shows all\n", indent, earlier(l.Left, l.Partial))
	} else if c := l.Created; c != nil && a.ToTerminal() { // elsewhere each line is an attempt
		which := "the first run with it"
		if c.Earliest {
			which = "the earliest run on record"
		}
		fmt.Fprintf(w, "%sIn the workspace since run %s of %s, %s\n", indent, human.Short(c.Run), human.Stamp(c.At.Time), which)
	}
	o.writePlot(a, w, "execution", l.Durations, single)
}

func attemptTook(x *history.Attempt) string {
	switch {
	case x.Timed:
		return human.Duration(x.Duration)
	case x.Status == runview.TaskRunning:
		return human.Seconds(x.Duration) + "…"
	}
	return ""
}

func attemptMemory(x *history.Attempt) string {
	if x.Peak() <= 0 {
		return ""
	}
	return human.Bytes(x.Peak())
}

// attemptNotes are details of an attempt beyond its status.
func attemptNotes(a *app, x *history.Attempt) []string {
	notes := x.Notes()
	if e := x.Execution; e != nil {
		if e.Rejected() {
			notes = append(notes, runview.RejectionOf(e.Rejection).Text(a.Now()))
		}
		if e.Provenance != nil {
			notes = append(notes, "imported "+runview.Whence(runview.Steps(e.Provenance), a.Now())[0])
		}
	}
	if fault := attemptFault(a, x); fault != "" {
		notes = append(notes, fault)
	}
	return notes
}

// attemptFault says why the record of an attempt is not here.
func attemptFault(a *app, x *history.Attempt) string {
	if gone := x.Pruned(); gone != nil {
		text := fmt.Sprintf("pruned %s by %s", human.Ago(a.Now(), gone.PrunedAt), gone.By)
		if gone.Reason != "" {
			text += " (" + gone.Reason + ")"
		}
		return text
	}
	switch {
	case x.Execution != nil || x.Err == nil || x.Status == runview.TaskRunning: // it gets a record only after a moment
		return ""
	case errors.Is(x.Err, executions.ErrNotFound):
		return "its record is gone"
	}
	return "its record cannot be read, see: e3 verify"
}
