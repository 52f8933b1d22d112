package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/term"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/notation"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/workspace"
)

type eventsOptions struct {
	run, task, worker, execution, since, until, after string
	types                                             []string
	failed, follow, ndjson                            bool
	last                                              int
	from                                              int64
	cursor                                            events.Cursor // after
}

func newEvents(a *app) *cobra.Command {
	var o eventsOptions
	cmd := &cobra.Command{
		Use:   "events [repo] [workspace[.task]]",
		Short: "Show what has happened, or what happens",
		Long: `Show the events of all runs, of the runs of a workspace (also of a removed one), or of a task. Runs of a workspace are shown in
the order in which they were recorded, those of several in that in which they began. Times are local.

A task is given by its name or by a pattern of * and ?. The exact name also finds events that cover many tasks proven to be
unchanged, unless the run has events of its own for the task.

-f shows events as they happen: of the latest run of each workspace, or of all since --since, and of each later run, until Ctrl-C; with
--run, until that run ends. Events beside the runs are shown too, as an approval, or that a person has queued a task again. With
--after it goes on behind an event that was printed: over all runs, in the order in which they were recorded, without loss or
repeats; each workspace has cursors of its own. With --json the output is one document {"events": […]}; with --ndjson or -f each
line is an event, as "e3 start --json" writes it.

Events are kept for as long as the setting events-retention says; "e3 events clean" removes them earlier.`,
		Example: `  e3 events . prod
  e3 events . prod.train --since 7d
  e3 events . --failed --since 1h
  e3 events . prod --run 018f3b4c-9a --type task.failed,task.skipped
  e3 events . prod -f`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeEvents(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			location, rest, err := a.positional(cmd, args, "[workspace.task]")
			if err != nil {
				return err
			}
			f, err := eventFilter(a, cmd, rest[0], &o)
			if err != nil {
				return err
			}
			return a.within(cmd.Context(), a.openToRead, location, func(r *repo.Repo) error {
				return runEvents(cmd.Context(), a, r, f, &o)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.run, "run", "", "of the run whose id begins so")
	f.StringVar(&o.task, "task", "", "of this task, or of those that fit a pattern of * and ?")
	f.StringSliceVar(&o.types, "type", nil, "of this type, as task.failed (repeatable, or with commas)")
	f.StringVar(&o.worker, "worker", "", "of what this user or machine ran: ann, ann@lab, @lab (* and ?)")
	f.StringVar(&o.execution, "execution", "", "of the execution whose id begins so")
	f.StringVar(&o.since, "since", "", "then or later: 1h, 7d, 2026-11-20, 2026-11-20T15:04, RFC 3339")
	f.StringVar(&o.until, "until", "", "before then")
	f.BoolVar(&o.failed, "failed", false, "only task.failed and run.failed")
	f.IntVarP(&o.last, "last", "n", 0, "only so many, the last ones; 0 is all")
	f.BoolVarP(&o.follow, "follow", "f", false, "show events as they happen")
	f.Int64Var(&o.from, "from", 0, "with --run or -f: from this number of the run on")
	f.StringVar(&o.after, "after", "", "what was recorded after the event with this cursor, which --json, --ndjson and e3 start --json print")
	f.BoolVar(&o.ndjson, "ndjson", false, "one JSON object a line")
	types := make([]string, 0, len(events.Types()))
	for _, t := range events.Types() {
		types = append(types, string(t))
	}
	completeRuns(a, cmd, "run")
	fixedValues(cmd, "type", types...)
	cmd.AddCommand(newEventsClean(a))
	return a.answers(cmd, eventList{}, lines{eventLine{}})
}

// completeEvents completes a workspace, or a task in one.
func completeEvents(a *app) cobra.CompletionFunc {
	tasks := completeTask(a)
	names := completeFirst(a, func(ctx context.Context, r *repo.Repo, _ string) ([]cobra.Completion, error) {
		return eventWorkspaces(ctx, r)
	})
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if strings.Contains(strings.TrimLeft(word, "./"), ".") {
			return tasks(cmd, args, word)
		}
		return names(cmd, args, word)
	}
}

// eventWorkspaces are the workspaces that are here, and those whose events are.
func eventWorkspaces(ctx context.Context, r *repo.Repo) ([]string, error) {
	gone, err := events.Workspaces(ctx, r.Records)
	if err != nil {
		return nil, err
	}
	names, err := r.Workspaces.List(ctx)
	if err != nil {
		return nil, err
	}
	names = append(names, gone...)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// eventFilter turns the arguments and flags into what they mean.
func eventFilter(a *app, cmd *cobra.Command, name string, o *eventsOptions) (f events.Filter, err error) {
	flags := cmd.Flags()
	if err := filled("--%s must not be empty", "run", "task", "worker", "execution", "since", "until", "after")(cmd, nil); err != nil {
		return f, err
	}
	ws, task, ofTask := strings.Cut(name, ".")
	f = events.Filter{
		Workspace: ws, Run: strings.ToLower(o.run), Task: o.task, Worker: o.worker, Execution: strings.ToLower(o.execution),
		Failed: o.failed, Last: o.last, FromSeq: o.from, Cursors: true,
	}
	if ofTask {
		if flags.Changed("task") {
			return f, usagef("the task is named twice: %q and --task %q", name, o.task)
		}
		if f.Task = task; !events.IsPattern(task) {
			if _, f.Task, err = splitTask(name); err != nil {
				return f, err
			}
		}
	}
	for _, t := range o.types {
		typ, err := eventType(t)
		if err != nil {
			return f, err
		}
		f.Types = append(f.Types, typ)
	}
	if f.Since, err = parseMoment(a, "since", o.since); err != nil {
		return f, err
	}
	if f.Until, err = parseMoment(a, "until", o.until); err != nil {
		return f, err
	}
	switch {
	case o.last < 0:
		return f, usagef("--last counts from 1; 0 is all")
	case flags.Changed("from") && o.from < 1:
		return f, usagef("--from counts from 1")
	case flags.Changed("from") && o.run == "" && !o.follow:
		return f, usagef("--from is a number in a run: it needs --run, or -f")
	}
	if o.after != "" {
		if ws == "" {
			return f, usagef("--after is a place in the events of one workspace: name it")
		}
		if o.cursor, err = events.ParseCursor(o.after); err != nil {
			return f, usagef("--after: %v", err)
		}
		for _, other := range []string{"run", "from", "last"} {
			if err := alternatives(cmd, "after", other); err != nil {
				return f, err
			}
		}
	}
	return f, alternatives(cmd, "follow", "until")
}

func eventType(name string) (events.Type, error) {
	t := events.Type(name)
	known := events.Types()
	if slices.Contains(known, t) {
		return t, nil
	}
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
		if _, short, _ := strings.Cut(words[i], "."); short == name {
			return "", usagef("--type: there is no event %q; did you mean %q?", name, words[i])
		}
	}
	if guess := didYouMean(name, words); guess != "" {
		return "", usagef("--type: there is no event %q%s", name, guess)
	}
	return "", usagef("--type: there is no event %q; there are %s", name, strings.Join(words, ", "))
}

func runEvents(ctx context.Context, a *app, r *repo.Repo, f events.Filter, o *eventsOptions) error {
	if err := knownWorkspace(ctx, r, f.Workspace); err != nil {
		return err
	}
	out := newEventOutput(a, f.Workspace == "", o)
	if f.Run != "" {
		run, err := findRun(ctx, r, f.Workspace, f.Run)
		if err != nil {
			return err
		}
		f.Workspace, f.Run = run.Workspace, run.Run
	}
	f.HasTask = r.Workspaces.Runs.HasTask(f.Task)
	if o.follow {
		return followEvents(ctx, a, r, f, o, out)
	}
	list := events.Query(ctx, r.Records, f)
	if o.after != "" {
		list = events.ReadRecorded(ctx, r.Records, f, events.RecordedOptions{After: o.cursor})
	}
	var fault error
	for e, err := range list {
		switch {
		case errors.As(err, new(*events.DamagedError)), errors.As(err, new(*events.JournalError)):
			out.damaged = append(out.damaged, err.Error())
		case err != nil:
			fault = errors.Join(fault, err)
		default:
			if err := out.event(&e); err != nil {
				return err
			}
		}
	}
	err := errors.Join(fault, out.close())
	for _, text := range out.damaged {
		a.Notef("e3: %s; what that line said is missing here", human.Line(text))
	}
	if err == nil && out.n == 0 && !out.json {
		a.Notef("Nothing of that kind is on record%s.", missingTask(ctx, r, &f))
	}
	return err
}

// knownWorkspace makes sure that there is a workspace of that name, or that there was.
func knownWorkspace(ctx context.Context, r *repo.Repo, ws string) error {
	if ws == "" {
		return nil
	}
	names, err := eventWorkspaces(ctx, r)
	if err != nil || slices.Contains(names, ws) {
		return err
	}
	return &workspace.UnknownError{What: "workspace", Name: ws, Known: names}
}

// findRun finds the run whose id begins so, of one workspace or with "" of all.
func findRun(ctx context.Context, r *repo.Repo, ws, prefix string) (events.RunRef, error) {
	runs, err := events.Runs(ctx, r.Records, ws)
	if err != nil {
		return events.RunRef{}, err
	}
	var known []string
	var fit []events.RunRef
	for _, run := range slices.Backward(runs) {
		if known = append(known, run.Run); strings.HasPrefix(run.Run, prefix) {
			fit = append(fit, run)
		}
	}
	switch len(fit) {
	case 0:
		return events.RunRef{}, &workspace.UnknownError{What: "run", Name: prefix, Known: known}
	case 1:
		return fit[0], nil
	}
	several := &executions.AmbiguousError{What: "run", Prefix: prefix}
	for _, run := range fit {
		several.Fits = append(several.Fits, run.Run)
	}
	return events.RunRef{}, several
}

// missingTask says so if a workspace has no task of that name, as far as is known.
func missingTask(ctx context.Context, r *repo.Repo, f *events.Filter) string {
	if f.Workspace == "" || f.Task == "" || events.IsPattern(f.Task) {
		return ""
	}
	rows, err := r.Workspaces.Datasets.Names(ctx, f.Workspace)
	if err != nil {
		return ""
	}
	var names []string
	for _, row := range rows {
		if row.Task == f.Task {
			return ""
		}
		names = append(names, row.Task)
	}
	text := fmt.Sprintf("; workspace %s has no task %q", f.Workspace, f.Task)
	if guess := notation.Nearest(f.Task, slices.Values(names)); guess != "" {
		text += fmt.Sprintf(", but %q", guess)
	}
	return human.Line(text)
}

// followEvents prints events as they come.
func followEvents(ctx context.Context, a *app, r *repo.Repo, f events.Filter, o *eventsOptions, out *eventOutput) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gone := make(chan struct{})
	if f.Run != "" {
		r.Workspaces.WatchRun(ctx, f.Workspace, f.Run, func() { close(gone) })
	}
	latest := f.Run == "" && f.Since.IsZero()
	list := events.FollowRun(ctx, r.Records, f, gone)
	if f.Run == "" {
		list = events.ReadRecorded(ctx, r.Records, f, events.RecordedOptions{After: o.cursor, Latest: latest && o.after == "", Follow: true})
	}
	var fault error
	for e, err := range list {
		var damage *events.DamagedError
		switch {
		case errors.As(err, &damage):
			rest := "what follows it comes once the next start of the workspace has cut it off"
			if ended, err := events.Ended(ctx, r.Records, damage.Workspace, damage.Run); err == nil && ended {
				rest = "the run has ended; what follows it in its events is shown without -f"
			}
			a.Notef("e3: %s; %s", human.Line(err.Error()), rest)
			continue
		case errors.As(err, new(*events.JournalError)):
			a.Notef("e3: %s; see: e3 verify", human.Line(err.Error()))
			continue
		case err == nil:
			err = out.event(&e)
		}
		if err == nil {
			err = out.flush()
		}
		if err != nil {
			fault = err
			break
		}
	}
	if err := errors.Join(fault, out.close()); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return &exitError{exitCancelled}
	}
	ended, err := events.Ended(ctx, r.Records, f.Workspace, f.Run)
	if err == nil && !ended {
		a.Notef("e3: the run was interrupted: its process is gone")
	}
	return err
}

// eventList is the events of a query.
type eventList struct {
	Events  []eventLine `json:"events"`
	Damaged []string    `json:"damaged,omitempty"` // damaged lines of logs
}

// eventLine is an event as events.Append prints it.
type eventLine struct {
	events.Event
	Cursor string `json:"cursor,omitempty"` // for --after
}

// eventOutput writes events in the form that is asked for.
type eventOutput struct {
	buf     *bufio.Writer
	safe    *term.SafeWriter // before a terminal; nil otherwise
	json    bool             // one document
	ndjson  bool
	text    eventTable
	style   term.Style
	n       int64
	damaged []string
	line    []byte
}

func newEventOutput(a *app, all bool, o *eventsOptions) *eventOutput {
	out := &eventOutput{ndjson: o.ndjson || a.JSON && o.follow, style: a.Style(), text: eventTable{workspaces: all}}
	out.json = a.JSON && !out.ndjson
	a.Introduced()
	var w io.Writer = a.Stdout
	if (out.json || out.ndjson) && a.ToTerminal() {
		out.safe = &term.SafeWriter{To: w} // JSON lets C1 control characters through
		w = out.safe
	}
	out.buf = bufio.NewWriterSize(w, 32<<10)
	return out
}

// event writes one event.
func (o *eventOutput) event(e *events.Event) error {
	o.n++
	if !o.json && !o.ndjson {
		return o.text.add(o.buf, e, o.style)
	}
	line, err := events.Append(o.line[:0], e)
	if err != nil {
		return err
	}
	o.line = line
	if o.json {
		line = line[:len(line)-1]
		lead := ","
		if o.n == 1 {
			lead = `{"events":[`
		}
		if _, err := o.buf.WriteString(lead); err != nil {
			return err
		}
	}
	_, err = o.buf.Write(line)
	return err
}

// flush writes what waits.
func (o *eventOutput) flush() error {
	if err := o.text.flush(o.buf, o.style); err != nil {
		return err
	}
	return o.buf.Flush()
}

// close ends the output.
func (o *eventOutput) close() error {
	if o.json {
		end := "]"
		if o.n == 0 {
			end = `{"events":[]`
		}
		if len(o.damaged) > 0 {
			list, err := json.Marshal(o.damaged)
			if err != nil {
				return err
			}
			end += `,"damaged":` + string(list)
		}
		if _, err := o.buf.WriteString(end + "}\n"); err != nil {
			return err
		}
	}
	err := o.flush()
	if o.safe != nil {
		err = errors.Join(err, o.safe.Close())
	}
	return err
}
