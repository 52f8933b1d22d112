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
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/explain"
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

The last column marks executions that were imported, or rejected since. Failures are explained below: how each ended, the last
lines of its log, and the commands that lead on.

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
		PreRunE: func(cmd *cobra.Command, args []string) error {
			return cmp.Or(filled("--%s needs the beginning of an id", "run")(cmd, args), filled("--%s needs the name of a file", "report")(cmd, args),
				filled("--%s needs the name of a file, or - for standard output", "trace")(cmd, args))
		},
		RunE: a.onOne(a.openToRead, func(ctx context.Context, r *repo.Repo, ws string) error {
			return showRun(ctx, a, r, ws, &o)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.run, "run", "", "any run that is on record or has events, own or imported, by the beginning of its id")
	completeRuns(a, cmd, "run")
	f.StringVar(&o.report, "report", "", "write the run as a page of HTML to this file as well")
	f.StringVar(&o.trace, "trace", "", "write the run's timeline to this file as well; - writes nothing else to standard output")
	f.BoolVar(&o.force, "force", false, "replace the file if it exists")
	return a.answers(cmd, runAnswer{})
}

// runAnswer is a run with an explanation of its first failures.
type runAnswer struct {
	runview.Run
	Failures []explain.FailureGroup `json:"failures,omitempty"`
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
	answer, err := answerOf(ctx, r, report)
	if err != nil {
		return err
	}
	f := failureReader(r).Read(ctx, report.WorkspaceName, report.Tasks, mostFailures)
	return a.Reply(runAnswer{answer, f.Groups}, func(w *render.Sheet) {
		writeRun(w, report, &answer, a.Now())
		writeFailures(ctx, a, r, w, report, f, o.run == "")
	})
}

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
func writeRun(w *render.Sheet, r *runview.Report, answer *runview.Run, now time.Time) {
	w.Line("Run %s", r.RunID)
	w.Field("Status", "%s%s", r.Status(), also(human.Unheard(r.Heard.At, r.Heard.Lease, now)))
	w.Field("Started", "%s", human.Stamp(r.StartedAt))
	switch {
	case r.Crashed():
		w.Field("Last seen", "%s", human.Stamp(r.CompletedAt))
	case r.State != record.RunRunning:
		w.Field("Completed", "%s", human.Stamp(r.CompletedAt))
	case r.Total > 0:
		w.Field("Progress", "%d of %d", r.Done, r.Total)
	}
	w.Field("Queued", "%s", queuedText(r.Queued, now))
	writeNow(w, answer.Now, now, saidQueued(r))
	if r.Provenance != nil {
		label := "Imported"
		for _, line := range runview.Whence(runview.Steps(r.Provenance), now) {
			w.Field(label, "%s", line)
			label = ""
		}
	}
	ended := "Cancelled"
	if r.Waits > 0 {
		ended = "Deferred"
	}
	w.Field(ended, "%s", r.Cancelled())
	w.Field("Commit", "%s", r.Git)
	w.Field("Filter", "%s", r.Filter)
	if r.From != "" {
		w.Field("Made", "from %s", r.From)
	}
	w.Field("Set", "%s", r.Set.String())
	for _, text := range r.Warnings {
		w.Field("Warning", "%s", text)
	}
	w.Field("Error", "%s", runError(r))
	w.Field("Damaged", "%s", damage(r))
	if len(r.Tasks) == 0 && r.Unnamed == 0 {
		return
	}
	writeFamilies(w, answer.Now)
	w.Line("")
	w.Line("  Tasks:")
	writeTasks(w, r)
	if r.Unnamed > 0 {
		w.Line("    and %s more, cached, whose names are gone with the events of earlier runs", human.Count(r.Unnamed, "task"))
	}
	writeSpent(w, answer.Spent)
}

// writeTasks prints a line for each task of a run.
func writeTasks(w *render.Sheet, r *runview.Report) {
	names, states := 0, 0
	for i := range r.Tasks {
		names = max(names, term.Columns(human.Line(r.Tasks[i].Task)))
		states = max(states, len(r.Tasks[i].Shown()))
	}
	st := w.Style
	for i := range r.Tasks {
		t := &r.Tasks[i]
		name := human.Line(t.Task)
		state := t.Shown()
		color := st.Tone(state)
		line := fmt.Sprintf("    %s%s  %s%s%s%s  %s", name, strings.Repeat(" ", names-term.Columns(name)),
			color, state, st.EndOf(color), strings.Repeat(" ", states-len(state)), executionTime(t))
		if note := strings.Join(t.Notes(), ", "); note != "" {
			line += "  " + human.Line(note)
		}
		if origin := taskOrigin(r, t); origin != "" {
			line += "  " + st.Dim + human.Line(origin) + st.EndOf(st.Dim)
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
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

// executionTime is the duration of a task's execution, "" if there is none or it is unknown.
func executionTime(t *runview.TaskReport) string {
	if !t.Took() {
		return ""
	}
	return human.Duration(t.Duration.Duration())
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
	if m := t.Rejected; m != nil {
		notes = append(notes, "rejected by "+m.By)
	}
	return strings.Join(notes, ", ")
}

// cameWith reports whether a run was imported from the same exporter as an execution, which then need not be named
// again.
func cameWith(r *runview.Report, s *runview.Step) bool {
	if r.Provenance == nil || len(r.Provenance.Steps) == 0 {
		return false
	}
	return r.Provenance.Steps[len(r.Provenance.Steps)-1].By == s.By
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
