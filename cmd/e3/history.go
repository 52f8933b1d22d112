package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/human"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/internal/repo"
	"e3/workspace"
)

// screenful is the number of entries that a terminal shows without --last.
const screenful = 20

type historyOptions struct {
	since, until string
	failed       bool
	status       []string
	exit         []int64
	by           string
	run          string
	last         int
	deep, plot   bool

	from, to time.Time // the parsed since and until
	plotSet  bool      // --plot was given
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
		RunE: func(cmd *cobra.Command, args []string) error {
			location, rest, err := a.positional(cmd, args, 1, "<workspace>[.<task>]")
			if err != nil {
				return err
			}
			if err := parseHistory(a, cmd, &o); err != nil {
				return err
			}
			if rest[0] == "" {
				if rest[0], err = a.only(cmd.Context(), location); err != nil {
					return err
				}
			}
			return a.inOnly(cmd.Context(), location, rest[0], func(name string) error {
				return showHistory(cmd.Context(), a, location, name, &o)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.since, "since", "", "only what began then or later: 2h, 7d, 2026-11-20, 2026-11-20T15:04")
	f.StringVar(&o.until, "until", "", "only what began before then")
	f.BoolVar(&o.failed, "failed", false, "only what failed, was cancelled or interrupted")
	f.StringSliceVar(&o.status, "status", nil, "only with this status (repeatable)")
	f.Int64SliceVar(&o.exit, "exit", nil, "only attempts with this exit code (repeatable); 128 + a signal's number also means commands that it ended")
	f.StringVar(&o.by, "by", "", "only what this user or machine ran: ann, ann@lab, @lab (* and ?)")
	f.StringVar(&o.by, "worker", "", "the same as --by")
	f.StringVar(&o.run, "run", "", "only of the run whose id begins so")
	f.IntVarP(&o.last, "last", "n", 0, "this many, of each task; 0 is all")
	f.BoolVar(&o.deep, "deep", false, "also search all executions of the repository")
	f.BoolVar(&o.plot, "plot", false, "draw how long they took")
	completeRuns(a, cmd, "run")
	fixedValues(cmd, "status", allStatuses()...)
	return cmd
}

// parseHistory reads the flags.
func parseHistory(a *app, cmd *cobra.Command, o *historyOptions) error {
	f := cmd.Flags()
	if err := alternatives(cmd, "by", "worker"); err != nil {
		return err
	}
	for _, name := range []string{"run", "by", "worker"} {
		if f.Changed(name) && f.Lookup(name).Value.String() == "" {
			return usagef("--%s must not be empty", name)
		}
	}
	if o.last < 0 {
		return usagef("--last counts from 1; 0 is all")
	}
	if !f.Changed("last") && !a.JSON && a.ToTerminal() {
		o.last = screenful
	}
	o.plotSet = f.Changed("plot")
	var err error
	if o.from, err = parseMoment(a, "since", o.since); err != nil {
		return err
	}
	o.to, err = parseMoment(a, "until", o.until)
	return err
}

func showHistory(ctx context.Context, a *app, location, name string, o *historyOptions) error {
	ws, task, ofTask := strings.Cut(name, ".")
	words := runStatuses
	if ofTask {
		words = nil
		for _, s := range history.Statuses() {
			words = append(words, string(s))
		}
	}
	for _, s := range o.status {
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
	if len(o.exit) > 0 && !ofTask {
		return usagef("--exit is for the attempts of tasks, as: e3 history %s %s --exit %d", human.Quoted(location), human.Quoted(ws+".*"), o.exit[0])
	}
	if ofTask && !events.IsPattern(task) {
		var err error
		if _, task, err = splitTask(name); err != nil {
			return err
		}
	}
	r, err := a.openToRead(ctx, location)
	if err != nil {
		return err
	}
	defer r.Close()
	if ofTask {
		return taskHistory(ctx, a, r, ws, task, o)
	}
	return runHistory(ctx, a, r, ws, o)
}

// matches reports whether an entry passes the filters.
func (o *historyOptions) matches(status string, bad bool, at time.Time, by string) bool {
	return (o.from.IsZero() || !at.Before(o.from)) && (o.to.IsZero() || at.Before(o.to)) &&
		(!o.failed || bad) && (len(o.status) == 0 || slices.Contains(o.status, status)) &&
		(o.by == "" || events.MatchWorker(o.by, by))
}

// limit returns the latest entries, as many as --last asks for, and the number of those left out.
func limit[T any](list []T, last int) ([]T, int) {
	if last == 0 || len(list) <= last {
		return list, 0
	}
	return list[:last], len(list) - last
}

// few is the number of the latest entries that have to be read; 0 is all. A plot that was asked for shows all of them.
func (o *historyOptions) few() int {
	if o.plot {
		return 0
	}
	return o.last
}

// earlier says that entries are left out: how many, or that there are some if their number is not known.
func earlier(left int, partial bool) string {
	if partial {
		return "… and earlier ones"
	}
	return "… and " + human.Count(left, "earlier one")
}

// draw reports whether durations are to be drawn.
func (o *historyOptions) draw(a *app, points []render.Point, single bool) bool {
	if o.plotSet {
		return o.plot && len(points) > 0
	}
	return single && len(points) >= render.Fewest && a.ToTerminal()
}

// sayDamaged warns about event logs with damaged lines.
func sayDamaged(a *app, faults []error) {
	for _, err := range faults {
		a.Notef("e3: %s; what that line said is missing here", human.Line(err.Error()))
	}
}

// taskHistoryJSON is the history of a task for programs.
type taskHistoryJSON struct {
	Task      string          `json:"task"`
	Total     *int            `json:"total,omitempty"` // that match; absent if earlier ones were not read
	More      bool            `json:"more,omitempty"`  // there are earlier ones that --last left out
	Attempts  []executionJSON `json:"attempts"`
	Created   *createdJSON    `json:"created,omitempty"` // absent if unknown, or if earlier runs were not read
	Durations []durationJSON  `json:"durations"`         // of all that were read and match, the oldest first
}

// createdJSON is the first run whose package has a task.
type createdJSON struct {
	Run      string  `json:"run"`
	At       *string `json:"at"`
	Earliest bool    `json:"earliest,omitempty"` // no earlier run is on record
}

func createdOf(c *history.Appearance) *createdJSON {
	if c == nil {
		return nil
	}
	return &createdJSON{Run: c.Run, At: render.JSONTime(c.At), Earliest: c.Earliest}
}

func taskHistory(ctx context.Context, a *app, r *repo.Repo, ws, task string, o *historyOptions) error {
	single := !events.IsPattern(task)
	q := history.Query{Workspace: ws, Deep: o.deep, NotStarted: true}
	if single {
		q.Tasks = []string{task}
	} else {
		q.Pattern = task
	}
	found, err := findAttempts(ctx, r, q, o)
	if err != nil {
		return err
	}
	sayDamaged(a, found.Damaged)
	doc := struct {
		Workspace string            `json:"workspace"`
		Tasks     []taskHistoryJSON `json:"tasks"`
		Damaged   []string          `json:"damaged,omitempty"`
	}{Workspace: ws, Tasks: []taskHistoryJSON{}}
	for _, err := range found.Damaged {
		doc.Damaged = append(doc.Damaged, err.Error())
	}
	var parts []taskPart
	for _, t := range found.Tasks {
		p := taskPart{name: t.Name, partial: found.Partial, created: t.Appeared}
		p.all = slices.DeleteFunc(t.Attempts, func(x history.Attempt) bool { return !o.wants(&x) })
		if len(p.all) == 0 && !single {
			continue
		}
		shown, left := limit(p.all, o.last)
		if p.points = attemptPoints(p.all); p.partial {
			p.points = attemptPoints(shown)
		}
		item := taskHistoryJSON{Task: t.Name, More: left > 0, Created: createdOf(t.Appeared), Attempts: []executionJSON{}, Durations: durationsOf(p.points)}
		if total := len(p.all); !p.partial {
			item.Total = &total
		}
		for i := range shown {
			item.Attempts = append(item.Attempts, attemptOf(&shown[i]))
		}
		doc.Tasks = append(doc.Tasks, item)
		parts = append(parts, p)
	}
	return a.Reply(doc, func(w *render.Sheet) {
		for i := range parts {
			if i > 0 {
				fmt.Fprintln(w)
			}
			writeAttempts(a, w, ws, &parts[i], single, o)
		}
		if len(parts) == 0 {
			fmt.Fprintln(w, "None")
		}
	})
}

// wants reports whether an attempt passes the filters.
func (o *historyOptions) wants(x *history.Attempt) bool {
	if o.run != "" {
		of := func(run string) bool { return strings.HasPrefix(run, strings.ToLower(o.run)) }
		if !of(x.MadeBy) && !slices.ContainsFunc(x.Runs, of) {
			return false
		}
	}
	if code, known := exitCodeOf(x); len(o.exit) > 0 && (!known || !slices.Contains(o.exit, code)) {
		return false
	}
	return o.matches(string(x.Status), badAttempt(x.Status), x.At(), x.Worker)
}

// exitCodeOf is the exit code of an attempt's command as a shell tells it: 128 and the number of the signal that ended it.
func exitCodeOf(x *history.Attempt) (code int64, known bool) {
	switch x.Status {
	case runview.TaskSuccess, runview.TaskFailed:
		return x.ExitCode, true
	case runview.TaskError:
		if e := x.Execution; e != nil && e.Detail != nil {
			number, _, _ := strings.Cut(e.Detail.Signal, " ")
			n, err := strconv.ParseInt(number, 10, 64)
			return 128 + n, err == nil
		}
	}
	return 0, false
}

func badAttempt(s runview.TaskState) bool {
	return s == runview.TaskFailed || s == runview.TaskError || s == runview.TaskInterrupted
}

// findAttempts finds the attempts of tasks; an unknown name, or a pattern that matches no task, is an error.
func findAttempts(ctx context.Context, r *repo.Repo, q history.Query, o *historyOptions) (*history.Found, error) {
	stores := history.Stores{Records: r.Records, Executions: r.Executions, Runs: r.Workspaces.Runs}
	found, err := history.Latest(ctx, stores, q, o.few(), o.wants)
	if err != nil {
		return nil, err
	}
	some := func() bool {
		return slices.ContainsFunc(found.Tasks, func(t history.Task) bool { return len(t.Attempts) > 0 })
	}
	if some() {
		return found, nil
	}
	// The name is unknown, unless a package has the task and it was never executed.
	packaged, err := r.Workspaces.Runs.AllTaskHashes(ctx, q.Workspace)
	if err != nil {
		return nil, err
	}
	asked := cmp.Or(q.Pattern, strings.Join(q.Tasks, ", "))
	for name := range packaged {
		if slices.Contains(q.Tasks, name) || q.Pattern != "" && events.Match(q.Pattern, name) {
			return found, nil
		}
	}
	if !q.Deep {
		q.Deep = true
		if found, err = history.Find(ctx, stores, q); err != nil || some() {
			return found, err
		}
	}
	every, err := history.Find(ctx, stores, history.Query{Workspace: q.Workspace, Pattern: "*"})
	if err != nil {
		return nil, err
	}
	unknown := &workspace.UnknownError{What: "task", Name: asked}
	for _, t := range every.Tasks {
		unknown.Known = append(unknown.Known, t.Name)
	}
	if len(unknown.Known) == 0 {
		if _, err := r.Workspaces.State(ctx, q.Workspace); err != nil {
			return nil, err
		}
	}
	return nil, unknown
}

// taskPart is the part of a task's history that is shown.
type taskPart struct {
	name    string
	all     []history.Attempt // that match
	partial bool              // and there are earlier ones
	created *history.Appearance
	points  []render.Point
}

// attemptPoints are the durations of attempts, the oldest first.
func attemptPoints(list []history.Attempt) []render.Point {
	var points []render.Point
	for i := range slices.Backward(list) {
		if x := &list[i]; x.Timed {
			points = append(points, render.Point{At: x.At(), Took: x.Duration, Status: string(x.Status), Bad: x.Status != runview.TaskSuccess})
		}
	}
	return points
}

func writeAttempts(a *app, w io.Writer, ws string, p *taskPart, single bool, o *historyOptions) {
	shown, left := limit(p.all, o.last)
	indent := ""
	if !single {
		fmt.Fprintf(w, "%s\n", human.Line(ws+"."+p.name))
		indent = "  "
	}
	if len(shown) == 0 {
		fmt.Fprintf(w, "%sNone\n", indent)
		return
	}
	workers := map[string]bool{}
	for i := range p.all {
		workers[p.all[i].Worker] = true
	}
	t := a.Headed(map[int]bool{3: true, 4: true}, "EXECUTION", "STATUS", "STARTED", "TOOK", "MEMORY", "RUN")
	for i := range shown {
		x := &shown[i]
		note := attemptNotes(a, x)
		if len(workers) > 1 && x.Worker != "" {
			note = append(note, "by "+x.Worker)
		}
		t.Row(cmp.Or(human.Short(x.ExecutionID), "-"), string(x.Status), human.Stamp(x.At()), attemptTook(x), attemptMemory(x), cmp.Or(human.Short(x.MadeBy), "-"), strings.Join(note, ", "))
	}
	t.Write(w, indent)
	if left > 0 {
		fmt.Fprintf(w, "%s%s; --last 0 shows all\n", indent, earlier(left, p.partial))
	} else if c := p.created; c != nil && a.ToTerminal() { // elsewhere each line is an attempt
		which := "the first run with it"
		if c.Earliest {
			which = "the earliest run on record"
		}
		fmt.Fprintf(w, "%sIn the workspace since run %s of %s, %s\n", indent, human.Short(c.Run), human.Stamp(c.At), which)
	}
	if o.draw(a, p.points, single) {
		fmt.Fprintln(w)
		a.Plot("execution", p.points).Write(w)
	}
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
	if x.Execution == nil || x.Execution.Detail == nil || x.Execution.Detail.PeakRSS <= 0 {
		return ""
	}
	return human.Bytes(x.Execution.Detail.PeakRSS)
}

// attemptNotes are details of an attempt beyond its status.
func attemptNotes(a *app, x *history.Attempt) []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if x.Number > 1 {
		add("attempt %d", x.Number)
	}
	switch x.Status {
	case runview.TaskFailed:
		add("exit code %d", x.ExitCode)
	case runview.TaskError:
		add("%s", cmp.Or(x.Message, x.Reason, "it ended without an exit code"))
	}
	if e := x.Execution; e != nil && e.Detail != nil && e.Detail.Batch.Items > 0 && x.Reason != string(executions.ReasonBatch) {
		add("in a batch of %d", e.Detail.Batch.Items)
	}
	if n := len(x.Answered()); n > 0 && x.Status != runview.TaskError { // a run that waits for an error has no answer of it
		add("cached in %s", human.Count(n, "run"))
	}
	if e := x.Execution; e != nil {
		if e.Rejected() {
			add("%s", runview.RejectionOf(e.Rejection).Text(a.Now()))
		}
		if e.Provenance != nil {
			add("imported %s", runview.Whence(runview.Steps(e.Provenance), a.Now())[0])
		}
	}
	if fault := attemptFault(a, x); fault != "" {
		add("%s", fault)
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

// attemptOf converts an attempt for programs.
func attemptOf(x *history.Attempt) executionJSON {
	doc := executionJSON{
		Execution: x.ExecutionID, Key: x.Key.String(), State: string(x.Status), StartedAt: render.JSONTime(x.At()), ExitCode: x.ExitCode,
		Message: x.Message, Output: x.Output,
	}
	if x.Timed {
		doc.CompletedAt = render.JSONTime(x.At().Add(x.Duration))
	}
	if x.Execution != nil {
		doc = executionOf(x.Execution)
	}
	if x.Key.Task.IsZero() {
		doc.Key = ""
	}
	doc.State, doc.Attempt, doc.Run, doc.Worker, doc.Reason = string(x.Status), x.Number, x.MadeBy, x.Worker, x.Reason
	doc.Runs, doc.Answered = x.Runs, len(x.Answered())
	if x.Timed || x.Status == runview.TaskRunning {
		ms := x.Duration.Milliseconds()
		doc.Duration = &ms
	}
	if e := x.Execution; e != nil && e.Detail != nil {
		doc.PeakRSS = e.Detail.PeakRSS
	}
	if gone := x.Pruned(); gone != nil {
		doc.Pruned = &runview.Rejection{By: gone.By, At: moment.At(gone.PrunedAt), Reason: gone.Reason}
	}
	if x.Execution == nil && x.Err != nil {
		doc.Fault = x.Err.Error()
	}
	return doc
}

// durationJSON is a point for programs.
type durationJSON struct {
	At       *string `json:"at"`
	Duration int64   `json:"ms"`
	Status   string  `json:"status"`
}

func durationsOf(points []render.Point) []durationJSON {
	list := make([]durationJSON, len(points))
	for i, p := range points {
		list[i] = durationJSON{render.JSONTime(p.At), p.Took.Milliseconds(), p.Status}
	}
	return list
}
