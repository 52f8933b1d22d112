package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"e3/cmd/e3/internal/render"
	"e3/cmd/e3/internal/term"
	"e3/dataflow/remaining"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/repo"
)

// Bounds of what is printed of a run at work; the answer in JSON has more.
const (
	saidRunning  = 5
	saidWaits    = 5
	saidFamilies = 20
	saidAttempts = 8
)

// answerOf is the answer about a run, with what it does now and where its time went.
func answerOf(ctx context.Context, r *repo.Repo, report *runview.Report) (runview.Run, error) {
	answer := report.Answer()
	var err error
	if answer.Now, err = remaining.Ask(ctx, r.Workspaces.Runs, report); err != nil {
		return answer, err
	}
	answer.Spent, err = r.Workspaces.Runs.Spent(ctx, report)
	return answer, err
}

// writeNow prints what a run at work does. Groups of tasks that wait for what said names are told elsewhere.
func writeNow(w *render.Sheet, n *runview.Now, now time.Time, said ...string) {
	if n == nil {
		return
	}
	w.Field("Left", "%s", n.Text)
	label := "Runs"
	for i := range n.Running[:min(len(n.Running), saidRunning)] {
		w.Field(label, "%s", workingText(&n.Running[i], now))
		label = ""
	}
	if more := len(n.Running) + n.Unlisted - saidRunning; more > 0 {
		w.Field(label, "and %s", human.Count(more, "more task"))
	}
	label = "Waiting"
	for i := range n.Waits[:min(len(n.Waits), saidWaits)] {
		g := &n.Waits[i]
		if slices.Contains(said, g.For) {
			continue
		}
		w.Field(label, "%s %s", human.Count(g.Tasks, "task"), g.Text()+": "+fewOf(g.First, g.Tasks))
		label = ""
	}
	if len(n.Waits) > saidWaits {
		w.Field(label, "and for %s", human.Count(len(n.Waits)-saidWaits, "more thing"))
	}
	names := make([]string, 0, saidRunning)
	for _, t := range n.Next[:min(len(n.Next), saidRunning)] {
		names = append(names, t.Task)
	}
	w.Field("Next", "%s", strings.Join(names, ", "))
}

// saidQueued is what the tasks that are queued wait for, if there are any: they have a line of their own.
func saidQueued(r *runview.Report) string {
	if len(r.Queued) > 0 {
		return runview.WaitsWorker
	}
	return ""
}

// fewOf names the first of many.
func fewOf(first []string, all int) string {
	const most = 3
	if all <= most {
		return strings.Join(first, ", ")
	}
	return fmt.Sprintf("%s and %s more", strings.Join(first[:most], ", "), human.Thousands(all-most))
}

// workingText is "fit[3] 12s, until about 12:00:45, asks for 2.0 GiB, on ann@mill".
func workingText(t *runview.Working, now time.Time) string {
	text := fmt.Sprintf("%s %s", t.Task, human.Seconds(now.Sub(t.Since.Time)))
	if t.State == runview.TaskClaimed {
		text += " (claimed)"
	}
	switch left := t.Ends.Sub(now); {
	case t.Ends.IsZero():
	case left < 0:
		text += fmt.Sprintf(", expected to end %s ago", human.Seconds(-left))
	default:
		text += fmt.Sprintf(", about %s more", human.Seconds(left))
	}
	if t.Memory > 0 {
		text += ", asks for " + human.Bytes(t.Memory)
	}
	if t.Worker != "" {
		text += ", on " + human.Worker(t.Worker)
	}
	return text
}

// writeFamilies prints what the families of a run at work have done, if any is more than a task.
func writeFamilies(w *render.Sheet, n *runview.Now) {
	if n == nil || !slices.ContainsFunc(n.Families, func(f runview.Family) bool { return f.Tasks > 1 }) {
		return
	}
	w.Line("")
	w.Line("  Families:")
	list := n.Families[:min(len(n.Families), saidFamilies)]
	names := 0
	for i := range list {
		names = max(names, term.Columns(human.Line(list[i].Name)))
	}
	for i := range list {
		f := &list[i]
		name := human.Line(f.Name)
		w.Line("    %s%s  %s", name, strings.Repeat(" ", names-term.Columns(name)), f.Text())
	}
	if more := len(n.Families) - len(list); more > 0 {
		w.Line("    and %d more", more)
	}
}

// writeSpent prints where the time of a run went. Of few commands the list of tasks says as much, unless the run stood still.
func writeSpent(w *render.Sheet, s *runview.Spent) {
	if s == nil || s.Attempts <= saidAttempts && !s.Stood() {
		return
	}
	w.Line("")
	w.Line("  Where the time went:")
	w.Line("    %s", s.Text())
	w.Line("    Cores in use: %s.", s.Cores.Text())
	list := s.Families[:min(len(s.Families), saidFamilies)]
	names, times := 0, 0
	for i := range list {
		names = max(names, term.Columns(human.Line(list[i].Name)))
		times = max(times, len(human.Duration(list[i].Took.Duration())))
	}
	for i := range list {
		f := &list[i]
		name := human.Line(f.Name)
		text := fmt.Sprintf("    %s%s  %*s", name, strings.Repeat(" ", names-term.Columns(name)), times, human.Duration(f.Took.Duration()))
		if f.Attempts > 1 {
			text += fmt.Sprintf("  in %d attempts, the longest %s", f.Attempts, human.Duration(f.Longest.Duration()))
		}
		w.Line("%s", text)
	}
	for i := range s.Waits {
		x := &s.Waits[i]
		text := fmt.Sprintf("    Waited for %s: %s", x.Text(), human.Duration(x.Took.Duration()))
		if x.Tasks > 1 {
			text += fmt.Sprintf(" together, %s, the longest %s", human.Count(x.Tasks, waitedUnit(x.For)), human.Duration(x.Longest.Duration()))
		}
		if x.Task != "" {
			text += ", " + x.Task
		}
		w.Line("%s", text)
	}
	if len(s.Path) > 1 {
		names := make([]string, len(s.Path))
		for i := range s.Path {
			names[i] = s.Path[i].Task + " " + human.Duration(s.Path[i].Took.Duration())
		}
		w.Line("    Critical path: %s", human.Few(names))
	}
}

// waitedUnit is what waits for a thing are counted in: the whole run waits for the store.
func waitedUnit(why string) string {
	if why == runview.WaitsStore {
		return "time"
	}
	return "task"
}
