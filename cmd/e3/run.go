package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/cmd/e3/internal/term"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
	"e3/internal/repo"
)

type runOptions struct {
	run    string // the beginning of its id
	report string // a file to write
	trace  string // likewise; - for standard output
	force  bool
}

func newRun(a *app) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [repo] <workspace>",
		Short: "Show the latest run of a workspace",
		Long: `Show the latest run of a workspace, finished or not, with its tasks. The time of a cached task is that of the
execution whose result it uses.

The last column marks executions that were imported, or rejected since.

An imported run is shown with its origin. It is the workspace's latest run until the workspace has a run of its own, and is
shown even if there is no workspace of that name.

--run shows any run whose events are kept, also of a removed workspace. "e3 history" lists the ids.

--report also writes the run as an HTML page: graph, timeline, tasks, the ends of their logs, and the outputs that the package
file marks with "kind: metrics", "plot" or "report". The page is a single file and needs neither e3 nor a network.

--trace also writes the timeline as JSON for ui.perfetto.dev or chrome://tracing: each attempt in a lane of its worker, its
waiting time, and tasks that took no time.`,
		Example: `  e3 run . prod
  e3 run . prod --run 018f3b4c-9a
  e3 run . prod --report prod.html
  e3 run . prod --trace out.json`,
		ValidArgsFunction: completeWorkspace(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("run") && o.run == "" {
				return usagef("--run needs the beginning of an id")
			}
			if cmd.Flags().Changed("report") && o.report == "" {
				return usagef("--report needs the name of a file")
			}
			if cmd.Flags().Changed("trace") && o.trace == "" {
				return usagef("--trace needs the name of a file, or - for standard output")
			}
			return onWorkspaceToRead(a, func(ctx context.Context, r *repo.Repo, ws string) error {
				return showRun(ctx, a, r, ws, &o)
			})(cmd, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.run, "run", "", "any run that is on record or has events, own or imported, by the beginning of its id")
	completeRuns(a, cmd, "run")
	f.StringVar(&o.report, "report", "", "write the run as a page of HTML to this file as well")
	f.StringVar(&o.trace, "trace", "", "write the run's timeline to this file as well; - writes nothing else to standard output")
	f.BoolVar(&o.force, "force", false, "replace the file if it exists")
	return cmd
}

// runJSON is a run for programs.
type runJSON struct {
	Run            string          `json:"run"`
	Workspace      string          `json:"workspace"`
	Package        string          `json:"package"`
	Status         string          `json:"status"`
	Heard          *string         `json:"heard,omitempty"` // last sign of life from another host, by its clock
	StartedAt      *string         `json:"startedAt"`
	CompletedAt    *string         `json:"completedAt"`
	FailedTask     string          `json:"failedTask,omitempty"`
	Error          string          `json:"error,omitempty"`
	InputSnapshot  string          `json:"inputSnapshot"`
	OutputSnapshot string          `json:"outputSnapshot,omitempty"`
	Summary        events.Summary  `json:"summary"`
	Queued         int             `json:"queued,omitempty"` // tasks that wait for a worker
	User           string          `json:"user,omitempty"`
	Host           string          `json:"host,omitempty"`
	Filter         string          `json:"filter,omitempty"`
	Set            events.Settings `json:"set,omitempty"`
	CancelledBy    string          `json:"cancelledBy,omitempty"`
	CancelReason   string          `json:"cancelReason,omitempty"`
	ImportedFrom   []runview.Step  `json:"importedFrom,omitempty"`
	Unnamed        int64           `json:"unnamed,omitempty"` // cached tasks whose names are no longer known
	Damaged        string          `json:"damaged,omitempty"` // what is wrong with the events
	Tasks          []taskJSON      `json:"tasks,omitempty"`
}

// taskJSON is a task in a run.
type taskJSON struct {
	Task       string  `json:"task"`
	State      string  `json:"state"`
	Cached     bool    `json:"cached"`
	Execution  string  `json:"execution,omitempty"`
	Key        string  `json:"key,omitempty"`
	StartedAt  *string `json:"startedAt,omitempty"`
	Duration   int64   `json:"ms"`
	Attempt    int64   `json:"attempt,omitempty"`
	Worker     string  `json:"worker,omitempty"`
	WaitsSince *string `json:"waitsSince,omitempty"` // of a deferred or queued task
	ExitCode   int64   `json:"exitCode,omitempty"`
	Reason     string  `json:"reason,omitempty"`
	Message    string  `json:"message,omitempty"`
	Because    string  `json:"because,omitempty"`
	MayFail    bool    `json:"mayFail,omitempty"` // its failure does not fail the run
	LeftOut    string  `json:"leftOut,omitempty"` // its failure does not fail the run, since this task does without it

	Gathered *events.Gathered `json:"gathered,omitempty"` // what its fan-ins lack
	Batch    *runview.Batch   `json:"batch,omitempty"`

	ImportedFrom *runview.Step      `json:"importedFrom,omitempty"` // the last step by which the execution came here
	Rejected     *runview.Rejection `json:"rejected,omitempty"`
}

func showRun(ctx context.Context, a *app, r *repo.Repo, ws string, o *runOptions) error {
	report, err := r.Workspaces.Runs.Report(ctx, ws, o.run)
	if err != nil {
		return err
	}
	if o.report != "" {
		if err := writeReport(ctx, a, r, report, o); err != nil {
			return err
		}
	}
	if o.trace != "" {
		if err := writeTrace(ctx, a, r, ws, report, o); err != nil || o.trace == "-" {
			return err
		}
	}
	return a.Reply(runOf(report), func(w *render.Sheet) { writeRun(w, report, a.Now(), a.Style()) })
}

func runOf(r *runview.Report) runJSON {
	s := r.Summary
	doc := runJSON{
		Run: r.RunID, Workspace: r.WorkspaceName, Package: r.PackageRef, Status: r.Status(), Heard: render.JSONTime(r.Heard.At),
		StartedAt: render.JSONTime(r.StartedAt), CompletedAt: render.JSONTime(r.CompletedAt), FailedTask: r.FailedTask, Error: r.Error,
		InputSnapshot: r.InputSnapshot, OutputSnapshot: r.OutputSnapshot,
		Summary: events.Summary{Total: s.Total, Completed: s.Completed, Cached: s.Cached, Failed: s.Failed, Skipped: s.Skipped},
		Tasks:   make([]taskJSON, len(r.Tasks)), ImportedFrom: runview.Steps(r.Provenance), Queued: len(r.Queued),
		Filter: r.Filter, Set: r.Set, CancelledBy: r.By, CancelReason: r.Why, Unnamed: r.Unnamed,
	}
	if r.Process != nil {
		doc.User, doc.Host = r.Process.User, r.Process.Host
	}
	if r.Damage != nil {
		doc.Damaged = r.Damage.Error()
	}
	for i := range r.Tasks {
		t := &r.Tasks[i]
		doc.Tasks[i] = taskJSON{
			Task: t.Task, State: string(t.State), Cached: t.State == runview.TaskCached, Execution: t.ExecutionID, Key: t.Key,
			StartedAt: render.JSONTime(t.StartedAt), Duration: t.Duration.Milliseconds(), Attempt: t.Attempt, Worker: t.Worker,
			ExitCode: t.ExitCode, Reason: t.Reason, Message: t.Message, Because: t.Because, MayFail: t.MayFail, LeftOut: t.LeftOut, Gathered: t.Gathered,
			Rejected: runview.RejectionOf(t.Rejection), Batch: runview.BatchOf(t.Batch),
		}
		if t.State == runview.TaskDeferred {
			doc.Tasks[i].WaitsSince = render.JSONTime(t.Since)
		}
		if t.ImportedFrom != nil {
			doc.Tasks[i].ImportedFrom = &runview.Steps(&record.Provenance{Steps: []record.Step{*t.ImportedFrom}})[0]
		}
	}
	for _, q := range r.Queued {
		if q.Lost { // its command goes on
			continue
		}
		i := slices.IndexFunc(doc.Tasks, func(t taskJSON) bool { return t.Task == q.Task })
		if i < 0 {
			i = len(doc.Tasks)
			doc.Tasks = append(doc.Tasks, taskJSON{Task: q.Task})
		}
		doc.Tasks[i].State, doc.Tasks[i].WaitsSince = stateQueued, render.JSONTime(q.Since)
	}
	return doc
}

// stateQueued is the state of a task that waits for a worker.
const stateQueued = "queued"

// queuedText says how many tasks wait for a worker, for how long and which; "" for none.
func queuedText(list []runview.Queued, now time.Time) string {
	if len(list) == 0 {
		return ""
	}
	since, lost := list[0].Since, 0
	names := make([]string, len(list))
	for i, q := range list {
		names[i] = q.Task
		if q.Since.Before(since) {
			since = q.Since
		}
		if q.Lost {
			lost++
		}
	}
	wait := "wait"
	if len(list) == 1 {
		wait = "waits"
	}
	text := fmt.Sprintf("%s %s for a worker, for up to %s", human.Count(len(list), "task"), wait, human.Duration(max(now.Sub(since), 0)))
	if lost > 0 {
		text += fmt.Sprintf(", %d of them since their worker was lost", lost)
	}
	return text + ": " + human.Few(names)
}

// writeRun prints a run as seed 003 shows it.
func writeRun(w io.Writer, r *runview.Report, now time.Time, st term.Style) {
	fmt.Fprintf(w, "Run %s\n", r.RunID)
	fmt.Fprintf(w, "  Status:    %s%s\n", r.Status(), also(unheard(r.Heard, now)))
	fmt.Fprintf(w, "  Started:   %s\n", human.Stamp(r.StartedAt))
	switch {
	case r.Crashed():
		fmt.Fprintf(w, "  Last seen: %s\n", human.Stamp(r.CompletedAt))
	case r.State != record.RunRunning:
		fmt.Fprintf(w, "  Completed: %s\n", human.Stamp(r.CompletedAt))
	}
	if r.State == record.RunRunning && r.Total > 0 {
		fmt.Fprintf(w, "  Progress:  %d of %d\n", r.Done, r.Total)
	}
	if text := queuedText(r.Queued, now); text != "" {
		fmt.Fprintf(w, "  Queued:    %s\n", human.Line(text))
	}
	if r.Provenance != nil {
		label := "Imported:"
		for _, line := range runview.Whence(runview.Steps(r.Provenance), now) {
			fmt.Fprintf(w, "  %-10s %s\n", label, human.Line(line))
			label = ""
		}
	}
	ended := map[bool]string{true: "Waits", false: "Cancelled"}[r.Waits > 0]
	for _, line := range []struct{ label, text string }{{ended, cancelledBy(r)}, {"Filter", r.Filter}, {"Set", r.Set.String()}, {"Error", runError(r)}, {"Damaged", damage(r)}} {
		if line.text != "" {
			fmt.Fprintf(w, "  %-10s %s\n", line.label+":", human.Line(line.text))
		}
	}
	if len(r.Tasks) == 0 && r.Unnamed == 0 {
		return
	}
	fmt.Fprintf(w, "\n  Tasks:\n")
	names, states := 0, 0
	for i := range r.Tasks {
		names = max(names, term.Columns(human.Line(r.Tasks[i].Task)))
		states = max(states, len(r.Tasks[i].State))
	}
	for i := range r.Tasks {
		t := &r.Tasks[i]
		name := human.Line(t.Task)
		color := stateColor(st, t.State)
		line := fmt.Sprintf("    %s%s  %s%s%s%s  %s", name, strings.Repeat(" ", names-term.Columns(name)),
			color, t.State, st.EndOf(color), strings.Repeat(" ", states-len(t.State)), executionTime(t))
		if note := taskNote(t); note != "" {
			line += "  " + human.Line(note)
		}
		if origin := taskOrigin(r, t); origin != "" {
			line += "  " + st.Dim + human.Line(origin) + st.EndOf(st.Dim)
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	if r.Unnamed > 0 {
		fmt.Fprintf(w, "    and %s more, cached, whose names are gone with the events of earlier runs\n", human.Count(r.Unnamed, "task"))
	}
}

// cancelledBy names the user who cancelled a run, and the reason, if they are known.
func cancelledBy(r *runview.Report) string {
	switch {
	case r.By == "":
		return r.Why
	case r.Why == "":
		return "by " + r.By
	}
	return "by " + r.By + ": " + r.Why
}

// runError is the reason why a run failed, if no task failed.
func runError(r *runview.Report) string {
	if r.State != record.RunFailed || r.FailedTask != "" || r.Crashed() {
		return ""
	}
	return r.Error
}

func damage(r *runview.Report) string {
	if r.Damage == nil {
		return ""
	}
	return r.Damage.Error() + "; what follows is missing here"
}

func stateColor(st term.Style, s runview.TaskState) string {
	switch s {
	case runview.TaskCached, runview.TaskSkipped, runview.TaskAbandoned:
		return st.Dim
	case runview.TaskSuccess:
		return st.Green
	case runview.TaskFailed, runview.TaskError, runview.TaskInterrupted:
		return st.Red
	case runview.TaskRunning, runview.TaskClaimed, runview.TaskRetrying, runview.TaskDeferred:
		return st.Yellow
	}
	return ""
}

// executionTime is the duration of a task's execution, "" if there is none or it is unknown.
func executionTime(t *runview.TaskReport) string {
	if !t.Took() {
		return ""
	}
	return human.Duration(t.Duration)
}

// taskOrigin names the origin of a task's execution, unless it is that of the run, and says whether the execution was
// rejected.
func taskOrigin(r *runview.Report, t *runview.TaskReport) string {
	var notes []string
	if s := t.ImportedFrom; s != nil && !cameWith(r, s) {
		from := s.By
		if from == "" {
			from = "a place that is not on record"
		}
		notes = append(notes, "imported from "+from)
	}
	if m := t.Rejection; m != nil && m.Rejected {
		notes = append(notes, "rejected by "+m.By)
	}
	return strings.Join(notes, ", ")
}

// cameWith reports whether a run was imported from the same exporter as an execution, which then need not be named
// again.
func cameWith(r *runview.Report, s *record.Step) bool {
	if r.Provenance == nil || len(r.Provenance.Steps) == 0 {
		return false
	}
	return r.Provenance.Steps[len(r.Provenance.Steps)-1].By == s.By
}

// allowed is added to the failure of a task that does not fail the run.
func allowed(t *runview.TaskReport) string {
	switch {
	case t.MayFail:
		return ", allowed to fail"
	case t.LeftOut != "":
		return ", left out of " + t.LeftOut
	}
	return ""
}

// mayFail is added to the failure of a task that may not fail the run.
func mayFail(d *events.Data) string {
	switch {
	case d.MayFail:
		return ", allowed to fail"
	case d.Tolerable:
		return ", may be left out"
	}
	return ""
}

// lacking is added to what a task does with less than all.
func lacking(g *events.Gathered) string {
	if g == nil {
		return ""
	}
	return ", " + g.LeftOut()
}

// whySkipped says why a task was skipped.
func whySkipped(because string, g *events.Gathered) string {
	if g != nil {
		return because + " failed; " + g.TooFew()
	}
	return because + " failed"
}

// taskNote adds details to the state of a task.
func taskNote(t *runview.TaskReport) string {
	switch t.State {
	case runview.TaskFailed:
		return fmt.Sprintf("exit code %d", t.ExitCode) + allowed(t)
	case runview.TaskError:
		return t.Message + allowed(t)
	case runview.TaskSkipped:
		return whySkipped(t.Because, t.Gathered)
	case runview.TaskRetrying:
		return fmt.Sprintf("attempt %d follows", t.Attempt)
	case runview.TaskDeferred:
		return "waits for approval since " + human.Stamp(t.Since)
	case runview.TaskAbandoned:
		return report.WhyAbandoned(t)
	case runview.TaskClaimed, runview.TaskRunning, runview.TaskSuccess, runview.TaskCached:
		var parts []string
		if t.Attempt > 1 {
			parts = append(parts, fmt.Sprintf("attempt %d", t.Attempt))
		}
		if t.Worker != "" && t.State != runview.TaskSuccess {
			parts = append(parts, "by "+workerName(t.Worker))
		}
		if t.Gathered != nil {
			parts = append(parts, t.Gathered.LeftOut())
		}
		return strings.Join(parts, ", ")
	}
	return ""
}
