package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/internal/repo"
	"e3/workspace"
)

type logsOptions struct {
	stdout, stderr, follow, list bool
	attempt                      int64
	execution, run               string
}

func newLogs(a *app) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs [repo] <workspace>.<task>",
		Short: "Print what a task printed",
		Long: `Print the standard output of a task: of its execution in the latest run, or of any other execution in e3 history, also with
earlier commands, on other inputs, in earlier runs, or imported. The bytes are printed unchanged; on a terminal, control
sequences other than colours are left out.

One item of a matrix is named in brackets: prod.fit[3], or prod.qc[s1] for the sample s1 of an input {files: "raw/{sample}.txt"}.

Of a task that has failed, the last line on standard error says how it ended and what --stderr has.

For an imported execution, the first lines on standard error tell its origin; for a rejected one, the user and the reason. With
--json each line is an object, after one that describes the execution.`,
		Example: `  e3 logs . prod.train
  e3 logs . 'prod.train[4]' --stderr
  e3 logs . prod.train -f
  e3 logs . prod.train --list
  e3 logs . prod.train --execution 018f3b4c-9a
  e3 logs . prod.train --run 018f3b4c-17 --attempt 1`,
		ValidArgsFunction: completeTask(a),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("attempt") && o.attempt < 1 {
				return usagef("--attempt counts from 1")
			}
			if err := filled("--%s needs the beginning of an id", "execution", "run")(cmd, nil); err != nil {
				return err
			}
			return cmp.Or(alternatives(cmd, "attempt", "execution", "list", "follow"), alternatives(cmd, "run", "execution", "list", "follow"))
		},
		RunE: a.on(a.openToRead, func(ctx context.Context, r *repo.Repo, args []string) error {
			return a.inOnly(ctx, r, args[0], func(name string) error { return runLogs(ctx, a, r, name, &o) })
		}, "<workspace>.<task>"),
	}
	f := cmd.Flags()
	f.BoolVar(&o.stdout, "stdout", false, "standard output (the default)")
	f.BoolVar(&o.stderr, "stderr", false, "standard error; with --stdout both, one after the other")
	f.BoolVarP(&o.follow, "follow", "f", false, "print as the task prints, until it ends; later attempts follow")
	f.Int64Var(&o.attempt, "attempt", 0, "this attempt of the task in its run, from 1")
	f.StringVar(&o.run, "run", "", "in this run, by the beginning of its id, instead of the latest")
	f.StringVar(&o.execution, "execution", "", "any execution of the task, by the beginning of its id")
	completeRuns(a, cmd, "run")
	f.BoolVar(&o.list, "list", false, "list the executions instead")
	return a.answers(cmd, lines{history.Entry{}}, lines{logLine{}}, executionList{})
}

// streams are the requested logs, in order.
func (o *logsOptions) streams() []executions.Stream {
	switch {
	case !o.stderr:
		return []executions.Stream{executions.Stdout}
	case !o.stdout:
		return []executions.Stream{executions.Stderr}
	}
	return []executions.Stream{executions.Stdout, executions.Stderr}
}

func runLogs(ctx context.Context, a *app, r *repo.Repo, name string, o *logsOptions) error {
	ws, task, err := splitTask(name)
	if err != nil {
		return err
	}
	l := &logs{a: a, r: r, ws: ws, task: task, streams: o.streams()}
	te, err := l.known(ctx)
	if err != nil {
		return err
	}
	switch {
	case o.list:
		return l.list(ctx, te)
	case o.follow && te.Run != nil && te.Run.Live:
		return l.follow(ctx, te)
	}
	e, err := l.choose(ctx, te, o)
	if err != nil {
		return err
	}
	return l.print(ctx, e)
}

// pastExecution finds the execution of a task that the flags name.
func pastExecution(ctx context.Context, a *app, r *repo.Repo, ws, task string, o *logsOptions) (*executions.Execution, error) {
	l := &logs{a: a, r: r, ws: ws, task: task}
	te, err := l.known(ctx)
	if err != nil {
		return nil, err
	}
	return l.choose(ctx, te, o)
}

// known are the executions of the task, also of one that no package here has any more.
func (l *logs) known(ctx context.Context) (*runview.TaskExecutions, error) {
	te, err := l.r.Workspaces.Runs.TaskExecutions(ctx, l.ws, l.task)
	var unknown *workspace.UnknownError
	if errors.As(err, &unknown) || errors.Is(err, workspace.ErrNotFound) || errors.Is(err, executions.ErrNotFound) {
		known, found, fault := l.chooser().Past(ctx)
		switch {
		case fault != nil:
			return nil, fault
		case found:
			l.gone, te, err = true, &runview.TaskExecutions{Known: known}, nil
		}
	}
	return te, err
}

// logs prints logs of one task.
type logs struct {
	a       *app
	r       *repo.Repo
	ws      string
	task    string
	streams []executions.Stream
	gone    bool // no package here has the task
}

// chooser finds executions of the task.
func (l *logs) chooser() *history.Chooser {
	return &history.Chooser{
		Stores:    historyOf(l.r),
		Workspace: l.ws, Task: l.task, Now: l.a.Now, Damaged: func(faults []error) { sayDamaged(l.a, human.Faults(faults)) },
	}
}

// choose finds the execution that the flags name.
func (l *logs) choose(ctx context.Context, te *runview.TaskExecutions, o *logsOptions) (*executions.Execution, error) {
	switch {
	case o.execution != "":
		e, err := l.chooser().Execution(ctx, te, o.execution)
		return e, l.advised(err)
	case o.run != "":
		e, err := l.chooser().InRun(ctx, o.run, o.attempt)
		return e, l.advised(err)
	}
	current := te.Current()
	if current == nil {
		return nil, l.none(te)
	}
	if o.attempt == 0 {
		return current, nil
	}
	for _, e := range te.Known {
		if e.Detail != nil && current.Detail != nil && e.Detail.RunID == current.Detail.RunID && e.Detail.Attempt == o.attempt {
			return e, nil
		}
	}
	return nil, fmt.Errorf("task %s has no attempt %d in that run; see: e3 logs <repo> %s --list", l.task, o.attempt, human.Quoted(l.ws+"."+l.task))
}

// advised adds to an error the command that lists what exists.
func (l *logs) advised(err error) error {
	var absent *history.AbsentError
	switch name := human.Quoted(l.ws + "." + l.task); {
	case !errors.As(err, &absent):
		return err
	case absent.Execution != "":
		return fmt.Errorf("%w; see: e3 history <repo> %s", err, name)
	case absent.Attempt > 0:
		return fmt.Errorf("%w; see: e3 history <repo> %s --run %s", err, name, human.Short(absent.Run))
	}
	return fmt.Errorf("%w; see: e3 run <repo> %s --run %s", err, l.ws, human.Short(absent.Run))
}

// none is the error that says why the task has no execution to show.
func (l *logs) none(te *runview.TaskExecutions) error {
	why := "has not run yet"
	switch t := te.Task; {
	case l.gone:
		why = "is not in any package here any more"
	case te.Run == nil:
		why = "has not run: workspace " + l.ws + " was never started"
	case t == nil && te.Run.Live:
		why = "has not begun in the run in progress, " + human.Short(te.Run.RunID)
	case t == nil:
		why = "is not part of the latest run, " + human.Short(te.Run.RunID)
	case te.Lost != nil && t.State != runview.TaskRunning && t.State != runview.TaskClaimed:
		why = "has nothing to show: the record of its execution " + t.ExecutionID + " is gone; e3 verify <repo> says what needs it"
		if !errors.Is(te.Lost, executions.ErrNotFound) {
			why = "has nothing to show: the record of its execution " + t.ExecutionID + " cannot be read; e3 verify <repo> says what is wrong"
		}
		if pruned := (*executions.PrunedError)(nil); errors.As(te.Lost, &pruned) {
			pruned.Now = l.a.Now()
			why = "has nothing to show: " + pruned.Error()
		}
	case t.State == runview.TaskSkipped:
		why = "was skipped: " + t.Because + " failed"
	case t.State == runview.TaskRunning, t.State == runview.TaskClaimed:
		why = "has only just begun"
	case t.State == runview.TaskDeferred:
		why = "waits for approval: e3 approve <repo> " + human.Quoted(l.ws+"."+l.task)
	case t.State == runview.TaskAbandoned:
		why = "was never approved in the latest run, " + human.Short(te.Run.RunID)
	case t.Message != "":
		why = "was not executed: " + t.Message
	}
	if len(te.Known) > 0 {
		why += "; for earlier executions see: e3 logs <repo> " + human.Quoted(l.ws+"."+l.task) + " --list"
	}
	return fmt.Errorf("task %s %s", l.task, why)
}

// executionList is the executions of a task to choose from.
type executionList struct {
	Executions []history.Entry `json:"executions"` // latest first
}

// list lists the executions to choose from, the latest first.
func (l *logs) list(ctx context.Context, te *runview.TaskExecutions) error {
	list, err := l.chooser().All(ctx, te)
	if err != nil {
		return err
	}
	doc := executionList{[]history.Entry{}}
	t := &render.Table{Right: map[int]bool{3: true}}
	for i := range list {
		x := &list[i]
		item, mark := x.Entry(), ""
		if x.Execution != nil {
			item.State = x.Execution.State.String()
		}
		if te.Task != nil && te.Task.ExecutionID == x.ExecutionID {
			item.Current, mark = true, "*"
		}
		doc.Executions = append(doc.Executions, item)
		t.Row(x.ExecutionID+mark, cmp.Or(item.State, "-"), human.Stamp(x.At()), attemptTook(x), strings.Join(attemptNotes(l.a, x), "  "))
	}
	return l.a.Reply(doc, func(w *render.Sheet) { w.Table(t, "") })
}

// print writes the present logs of an execution.
func (l *logs) print(ctx context.Context, e *executions.Execution) error {
	out := newLogOutput(l.a, e)
	for _, s := range l.streams {
		if err := l.copy(ctx, out, e, s, 0); err != nil {
			return errors.Join(out.close(), err)
		}
	}
	failed := e.State == record.Failed || e.State == record.Error
	other, why := executions.Stderr, "nothing there"
	if out.written > 0 {
		why = human.Line(endOf(e))
	}
	if l.streams[0] == executions.Stderr {
		other, failed = executions.Stdout, false // the reason is rarely there
	}
	if err := out.close(); err != nil || len(l.streams) > 1 || out.written > 0 && !failed {
		return err
	}
	in, err := l.r.Executions.CheckedLog(ctx, e, other)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, in)
	if n > 0 {
		l.a.Notef("(%s; --%s has %s)", why, streamName(other), human.Bytes(n))
	}
	return errors.Join(err, in.Close())
}

// copy writes a log from an offset on.
func (l *logs) copy(ctx context.Context, out *logOutput, e *executions.Execution, s executions.Stream, offset int64) error {
	open := func() (io.ReadCloser, error) { return l.r.Executions.OpenLog(ctx, e.Key, e.ExecutionID, s, offset) }
	if offset == 0 {
		open = func() (io.ReadCloser, error) { return l.r.Executions.CheckedLog(ctx, e, s) }
	}
	in, err := open()
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(out.stream(s), in)
	return errors.Join(err, context.Cause(ctx))
}
