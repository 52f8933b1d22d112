package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"e3/executions"
	"e3/internal/record"
	"e3/internal/repo"
	"e3/workspace"
)

type logsOptions struct {
	stdout, stderr, follow, list bool
	attempt                      int64
	execution                    string
}

func newLogs(a *app) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs [repo] <workspace>.<task>",
		Short: "Print what a task printed",
		Long: `Print what a task wrote to its standard output, in the execution that stands for it in the latest run, or in any
other. The bytes are printed as they are; on a terminal control sequences other than colours are left out.

Of an execution that was imported the first lines on standard error say where it comes from, and of one that was rejected by whom
and why. With --json each line is an object, after one that describes the execution.`,
		Example: `  e3 logs . prod.train
  e3 logs . 'prod.train[4]' --stderr
  e3 logs . prod.train -f
  e3 logs . prod.train --list
  e3 logs . prod.train --execution 018f3b4c-9a`,
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			location, rest, err := a.positional(cmd, args, 0, "<workspace>.<task>")
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("attempt") && o.attempt < 1 {
				return usagef("--attempt counts from 1")
			}
			if err := alternatives(cmd, "attempt", "execution", "list", "follow"); err != nil {
				return err
			}
			return a.logs(cmd.Context(), location, rest[0], &o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.stdout, "stdout", false, "standard output (the default)")
	f.BoolVar(&o.stderr, "stderr", false, "standard error; with --stdout both, one after the other")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on as the task prints, until it ends; later attempts follow")
	f.Int64Var(&o.attempt, "attempt", 0, "this attempt of the task in its run, from 1")
	f.StringVar(&o.execution, "execution", "", "any execution of the task, by a prefix of its id")
	f.BoolVar(&o.list, "list", false, "list the executions instead")
	return cmd
}

// streams are the logs that are asked for, in order.
func (o *logsOptions) streams() []executions.Stream {
	switch {
	case !o.stderr:
		return []executions.Stream{executions.Stdout}
	case !o.stdout:
		return []executions.Stream{executions.Stderr}
	}
	return []executions.Stream{executions.Stdout, executions.Stderr}
}

func (a *app) logs(ctx context.Context, location, name string, o *logsOptions) error {
	ws, path, err := dataset(name)
	if err != nil {
		return err
	}
	if path.Entry != "" {
		return usagef("%q is not <workspace>.<task>", name)
	}
	r, err := a.open(location)
	if err != nil {
		return err
	}
	defer r.Close()
	task := path.Task()
	te, err := r.Workspaces.TaskExecutions(ctx, ws, task)
	if err != nil {
		return err
	}
	l := &logs{a: a, r: r, ws: ws, task: task, streams: o.streams()}
	switch {
	case o.list:
		return a.listExecutions(te)
	case o.follow && te.Run != nil && te.Run.Live:
		return l.follow(ctx, te)
	}
	e, err := l.choose(ctx, te, o)
	if err != nil {
		return err
	}
	return l.print(ctx, e)
}

// logs prints logs of one task.
type logs struct {
	a       *app
	r       *repo.Repo
	ws      string
	task    string
	streams []executions.Stream
}

// choose finds the execution that is asked for.
func (l *logs) choose(ctx context.Context, te *workspace.TaskExecutions, o *logsOptions) (*executions.Execution, error) {
	if o.execution != "" {
		return l.r.Workspaces.FindExecution(ctx, te, o.execution)
	}
	var current *executions.Execution
	for _, e := range te.Known {
		if te.Task != nil && e.ExecutionID == te.Task.ExecutionID {
			current = e
		}
	}
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
	return nil, fmt.Errorf("task %s has no attempt %d in that run; see: e3 logs <repo> %s --list", l.task, o.attempt, quoted(l.ws+"."+l.task))
}

// none says why there is no execution to show.
func (l *logs) none(te *workspace.TaskExecutions) error {
	why := "has not run yet"
	switch t := te.Task; {
	case te.Run == nil:
		why = "has not run: workspace " + l.ws + " was never started"
	case t == nil:
		why = "has no part in the latest run, " + short(te.Run.RunID)
	case t.State == workspace.TaskSkipped:
		why = "was skipped: " + t.Because + " failed"
	case t.State == workspace.TaskRunning:
		why = "has only just begun"
	case t.Message != "":
		why = "was not executed: " + t.Message
	}
	if len(te.Known) > 0 {
		why += "; for earlier executions see: e3 logs <repo> " + quoted(l.ws+"."+l.task) + " --list"
	}
	return fmt.Errorf("task %s %s", l.task, why)
}

// print writes the logs of an execution as they are now.
func (l *logs) print(ctx context.Context, e *executions.Execution) error {
	out := l.a.newLogOutput(e)
	for _, s := range l.streams {
		if err := l.copy(ctx, out, e, s, 0); err != nil {
			return err
		}
	}
	if err := out.close(); err != nil || len(l.streams) > 1 || out.written > 0 {
		return err
	}
	other := executions.Stderr
	if l.streams[0] == executions.Stderr {
		other = executions.Stdout
	}
	if n, err := l.r.Executions.LogSize(ctx, e.Key, e.ExecutionID, other); err == nil && n > 0 {
		l.a.notef("(nothing there; --%s has %s)", streamName(other), size(n))
	}
	return nil
}

// copy writes a log from an offset on.
func (l *logs) copy(ctx context.Context, out *logOutput, e *executions.Execution, s executions.Stream, offset int64) error {
	in, err := l.r.Executions.OpenLog(ctx, e.Key, e.ExecutionID, s, offset)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(out.stream(s), in)
	return errors.Join(err, context.Cause(ctx))
}

// executionJSON is an execution for programs.
type executionJSON struct {
	Type        string  `json:"type,omitempty"`
	Execution   string  `json:"execution"`
	Key         string  `json:"key"`
	State       string  `json:"state"`
	StartedAt   *string `json:"startedAt"`
	CompletedAt *string `json:"completedAt"`
	ExitCode    int64   `json:"exitCode,omitempty"`
	Message     string  `json:"message,omitempty"`
	Output      string  `json:"output,omitempty"`
	Attempt     int64   `json:"attempt,omitempty"`
	Run         string  `json:"run,omitempty"`
	Worker      string  `json:"worker,omitempty"`
	Current     bool    `json:"current,omitempty"`

	Rejected     *rejectionJSON `json:"rejected,omitempty"`
	ImportedFrom []stepJSON     `json:"importedFrom,omitempty"`
}

func executionOf(e *executions.Execution) executionJSON {
	doc := executionJSON{
		Execution: e.ExecutionID, Key: e.Key.String(), State: e.State.String(), StartedAt: moment(e.StartedAt), CompletedAt: moment(e.CompletedAt),
		ExitCode: e.ExitCode, Message: e.Message, Output: e.OutputHash,
		Rejected: rejectionOf(e.Rejection), ImportedFrom: stepsOf(e.Provenance),
	}
	if d := e.Detail; d != nil {
		doc.Attempt, doc.Run, doc.Worker = d.Attempt, d.RunID, d.Worker
	}
	return doc
}

// listExecutions lists what there is to choose from, latest first.
func (a *app) listExecutions(te *workspace.TaskExecutions) error {
	doc := struct {
		Executions []executionJSON `json:"executions"`
	}{[]executionJSON{}}
	t := &table{right: map[int]bool{3: true}}
	for _, e := range te.Known {
		item := executionOf(e)
		item.Current = te.Task != nil && te.Task.ExecutionID == e.ExecutionID
		doc.Executions = append(doc.Executions, item)
		took, note := "", ""
		if !e.CompletedAt.IsZero() {
			took = elapsed(e.CompletedAt.Sub(e.StartedAt))
		}
		switch e.State {
		case record.Failed:
			note = fmt.Sprintf("exit code %d", e.ExitCode)
		case record.Error:
			note = e.Message
		}
		if item.Attempt > 1 {
			note = strings.TrimRight(fmt.Sprintf("attempt %d  %s", item.Attempt, note), " ")
		}
		if e.Rejected() {
			note = strings.TrimLeft(note+"  "+rejectionText(e.Rejection, a.now()), " ")
		}
		if e.Provenance != nil {
			note = strings.TrimLeft(note+"  imported "+whence(e.Provenance, a.now())[0], " ")
		}
		mark := map[bool]string{true: "*"}[item.Current]
		t.row(e.ExecutionID+mark, item.State, stamp(e.StartedAt), took, note)
	}
	return a.reply(doc, func(w io.Writer) { t.write(w, "") })
}
