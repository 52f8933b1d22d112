package main

import (
	"bufio"
	"fmt"
	"strings"

	"e3/cmd/e3/internal/term"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/jobs/approval"
)

// An eventTable writes events in columns, one a line. It gathers a few lines to find the widths; columns only grow.
type eventTable struct {
	workspaces bool // with a column for the workspace
	rows       []eventRow
	widths     [3]int // of run, workspace, task
}

type eventRow struct {
	time  string
	cells [3]string // run, workspace, task
	color string
	words string
}

// gather is the number of lines that are held back to measure columns.
const gather = 200

func (t *eventTable) add(w *bufio.Writer, e *events.Event, st term.Style) error {
	run := e.Run
	if run == "" && e.Execution != "" && e.Data != nil { // what a dead run's task became is in the journal
		run = e.Data.Run
	}
	row := eventRow{
		time:  e.Time.Local().Format("2006-01-02 15:04:05.000"),
		cells: [3]string{human.Line(human.Short(run)), "", human.Line(e.Task)},
		color: eventColor(st, e.Type), words: human.Line(eventWords(e)),
	}
	if t.workspaces {
		row.cells[1] = human.Line(e.Workspace)
	}
	if t.rows = append(t.rows, row); len(t.rows) < gather {
		return nil
	}
	return t.flush(w, st)
}

// widest is the limit to which names widen a column.
const widest = 40

func (t *eventTable) flush(w *bufio.Writer, st term.Style) error {
	for _, row := range t.rows {
		for i, c := range row.cells {
			if n := term.Columns(c); n <= widest {
				t.widths[i] = max(t.widths[i], n)
			}
		}
	}
	for _, row := range t.rows {
		line := row.time
		for i, c := range row.cells {
			if t.widths[i] > 0 || c != "" {
				line += "  " + c + strings.Repeat(" ", max(0, t.widths[i]-term.Columns(c)))
			}
		}
		if _, err := fmt.Fprintf(w, "%s  %s%s%s\n", line, row.color, row.words, st.EndOf(row.color)); err != nil {
			return err
		}
	}
	t.rows = t.rows[:0]
	return nil
}

func eventColor(st term.Style, t events.Type) string {
	switch t {
	case events.TaskFailed, events.RunFailed, events.EventLost:
		return st.Red
	case events.TaskCompleted, events.RunCompleted:
		return st.Green
	case events.TaskRetryScheduled, events.TaskReopened, events.TaskDeferred, events.RunCancelled, events.RunStalled, events.TaskOrphaned:
		return st.Yellow
	case events.TaskClaimed, events.TaskReleased, events.TaskResumed, events.TaskCached, events.TaskCreated, events.TaskMarkedReady, events.TaskSkipped, events.TaskAbandoned:
		return st.Dim
	}
	return ""
}

// eventWords describes an event. Names in it are not made safe for a terminal.
func eventWords(e *events.Event) string {
	d := e.Facts()
	took := ""
	if d.Duration > 0 {
		took = ", " + human.Duration(events.Milliseconds(d.Duration))
	}
	attempt := ""
	if d.Attempt > 1 {
		attempt = fmt.Sprintf("attempt %d ", d.Attempt)
	}
	switch e.Type {
	case events.EventLost:
		return "was damaged, and is lost"
	case events.RunStarted:
		return startWords(d)
	case events.RunCompleted, events.RunFailed, events.RunCancelled:
		return endWords(e.Type, d) + took
	case events.RunStalled:
		text := "no answer from the store for " + human.Duration(events.Milliseconds(d.Duration)) + ": the run waits, tasks go on"
		if why, _, _ := strings.Cut(d.Message, "\n"); why != "" { // further lines repeat it
			text += ": " + why
		}
		return text
	case events.RunResumed:
		return "the store answers again" + took
	case events.GraphGrown:
		if d.Reason != "" {
			return "no items of " + d.Source
		}
		return human.Count(d.Items, "item") + " of " + d.Source
	case events.TaskCreated:
		return human.Count(max(d.Tasks, 1), "task") + " to do"
	case events.TaskAbandoned:
		return human.Count(max(d.Tasks, 1), "task") + " abandoned"
	case events.TaskMarkedReady:
		return "ready" + lacking(d.Gathered)
	case events.TaskClaimed:
		return attempt + "claimed" + byWorker(e)
	case events.TaskReleased:
		return attempt + "given back before it began" + byWorker(e)
	case events.TaskStarted:
		return attempt + "started" + byWorker(e)
	case events.TaskOrphaned:
		return attempt + "lost its worker" + strings.TrimPrefix(byWorker(e), " by")
	case events.TaskAdopted:
		return attempt + "adopted" + byWorker(e)
	case events.RunRecorded:
		return strings.TrimSpace("run recorded: " + d.Run + " " + d.Reason)
	case events.JournalMended:
		return "the journal was damaged; what is lost is replaced"
	case events.TaskDeferred:
		if d.BlockType == string(approval.Suspend) {
			return attempt + "suspended itself: waits for approval" + took
		}
		return "waits for approval"
	case events.TaskResumed:
		text := "approved"
		if d.By != "" {
			text += " by " + d.By
		}
		if d.Message != "" {
			text += ": " + d.Message
		}
		return text
	case events.BlockApproved, events.BlockRejected, events.BlockWithdrawn, events.BlockClosed,
		events.JobRetried, events.JobCancelled, events.JobReprioritised:
		return decisionWords(e.Type, d)
	case events.TaskCompleted:
		if d.Shared {
			return "succeeded in another run" + took
		}
		return attempt + "succeeded" + took
	case events.TaskFailed:
		why := d.Message
		if why == "" {
			why = fmt.Sprintf("exit code %d", d.ExitCode)
		}
		return attempt + "failed: " + why + took + mayFail(d)
	case events.TaskRetryScheduled:
		text := followingAttempt(d)
		if d.Memory > 0 {
			text += " with " + human.Bytes(d.Memory) + " of memory"
		}
		return text
	case events.TaskReopened:
		return "decided again for " + d.Because + ": " + d.Message
	case events.TaskSkipped:
		return "skipped: " + events.WhySkipped(d.Because, d.Gathered)
	case events.TaskLeftOut:
		return "left out of " + d.Because + ", so its failure does not fail the run"
	case events.TaskCached:
		text := "cached"
		if e.Task == "" {
			text = human.Count(d.Tasks, "task") + " cached"
		}
		if d.As != "" {
			text += ", as in run " + human.Short(d.As)
		}
		return text
	}
	return string(e.Type)
}

// byWorker names the worker of an execution, if it is not the run's process.
func byWorker(e *events.Event) string {
	if e.Worker == "" {
		return ""
	}
	return " by " + human.Worker(e.Worker)
}

func startWords(d *events.Data) string {
	text := "run started"
	if d.Package != "" {
		text += ": " + d.Package
	}
	if g := d.Git.Sound(); g != nil {
		text += ", commit " + g.Short()
	}
	if d.Filter != "" {
		text += ", only " + d.Filter
	}
	if d.From != "" {
		text += ", in a workspace made from " + d.From
	}
	if len(d.Set) > 0 {
		text += ", with " + d.Set.String()
	}
	if p := d.Process; p != nil {
		text += fmt.Sprintf(", by %s@%s, process %d", p.User, p.Host, p.PID)
	}
	return text
}

// endState is the state of a run that ends with an event.
func endState(t events.Type) record.RunState {
	switch t {
	case events.RunCompleted:
		return record.RunCompleted
	case events.RunCancelled:
		return record.RunCancelled
	}
	return record.RunFailed
}

func endWords(t events.Type, d *events.Data) string {
	text := "run " + strings.TrimPrefix(string(t), "run.")
	if t == events.RunCancelled && d.By != "" {
		text += " by " + d.By
	}
	if d.Message != "" && t == events.RunCancelled {
		text += ": " + d.Message
	}
	switch s := d.Summary; {
	case t == events.RunFailed && d.Reason != "": // the process died
		text += ": " + d.Message
	case s != nil:
		text += ": " + counts(endState(t), record.Summary{Total: s.Total, Completed: s.Completed, Cached: s.Cached, Failed: s.Failed, Skipped: s.Skipped})
	}
	return text
}

// followingAttempt tells the number of a scheduled retry, and its delay.
func followingAttempt(d *events.Data) string {
	if d.DelayMs == 0 {
		return fmt.Sprintf("attempt %d at once", d.Attempt)
	}
	return fmt.Sprintf("attempt %d in %s", d.Attempt, human.Duration(events.Milliseconds(d.DelayMs)))
}

// decisionWords says what a person has decided about a task.
func decisionWords(typ events.Type, d *events.Data) string {
	text := map[events.Type]string{
		events.BlockApproved: "approved", events.BlockRejected: "rejected", events.BlockWithdrawn: "decision withdrawn", events.BlockClosed: "waits no more",
		events.JobRetried: "queued again", events.JobCancelled: "cancelled in its queue", events.JobReprioritised: "priority changed",
	}[typ]
	if d.Priority != nil {
		text = fmt.Sprintf("priority %d", *d.Priority)
	}
	if d.By != "" {
		text += " by " + d.By
	}
	if d.Message != "" {
		text += ": " + d.Message
	}
	return text
}
