package explain

import (
	"fmt"
	"strings"

	"e3/internal/human"
)

// clause is the cause as a clause that can follow "because".
func (c *Cause) clause() string {
	switch c.Kind {
	case Pruned:
		return "its result was " + c.Text
	}
	return c.Text
}

// because describes the root of the explanation, and names its task.
func (w *Explanation) because() string {
	if w.Root.Kind == NoCause {
		return ""
	}
	text := w.Root.clause()
	if w.Root.Kind == NeverRan {
		switch {
		case w.State == WouldRun || w.State == Waits || w.State == Running || w.State == Queued:
			text = "it has never run"
		case text == "never ran before":
			text = "it had never run before"
		}
	}
	upstream := w.Root.Task != "" && w.Root.Task != w.Task && !w.same(&w.Root)
	switch {
	case !upstream:
	case w.Root.Kind == Input:
	default:
		text = "upstream, in " + truncate(w.Root.Task, maxText) + ", " + text
	}
	if n := len(w.Roots) - 1; n > 0 {
		text += ", and " + human.Count(n, "more cause")
	}
	return text
}

// same reports whether a cause belongs to the explained task itself, under whatever name it ran.
func (w *Explanation) same(c *Cause) bool {
	r := w.Reason
	for r != nil && r.Before != nil {
		r = r.Before
	}
	return r != nil && r.Task == c.Task && r.Workspace == c.Workspace
}

// say composes the sentence of the explanation.
func (w *Explanation) say() {
	name := truncate(w.Workspace+"."+w.Task, 2*maxText)
	because := w.because()
	with := func(text, join string) string {
		if because == "" {
			return name + " " + text
		}
		return name + " " + text + join + because
	}
	switch w.State {
	case Current:
		w.Sentence = with("is current: its result is execution "+w.execution(), "; that ran because ")
	case WouldRun:
		w.Sentence = with("would run", " because ")
		if w.refused != "" {
			w.Sentence += "; in its latest run it was " + truncate(w.refused, maxText)
		}
	case Queued:
		w.Sentence = with(w.Waiting.text(), "; it is to run because ")
	case Ran:
		w.Sentence = with("ran", " because ")
	case Running:
		text := "is running now"
		if w.Execution != nil && w.Execution.Attempt > 1 {
			text += fmt.Sprintf(" (attempt %d)", w.Execution.Attempt)
		}
		w.Sentence = with(text, " because ")
		if w.Root.Kind == RunsNow {
			w.Sentence = name + " " + text
		}
	case Failed:
		w.Sentence = name + " " + w.Failure.Text + w.since()
	case Skipped:
		failed := w.Root.Task
		if w.Failure != nil {
			w.Sentence = name + " was skipped because " + truncate(failed, maxText) + " " + w.Failure.Text + w.since()
		} else {
			w.Sentence = with("was skipped", " because ")
		}
	case Stuck:
		w.Sentence = with("cannot run", ": ")
	case Waits:
		w.Sentence = name + " waits" + w.waitsFor(because)
	case Removed:
		w.Sentence = with("is in no package any more; its latest execution, "+w.execution()+", ran", " because ")
		if w.Failure != nil {
			w.Sentence = name + " is in no package any more; its latest execution, " + w.execution() + ", " + w.Failure.Text + w.since()
		}
	case Gone:
		w.Sentence = with("ran as execution "+w.execution()+", of which no record is left", "; it ran because ")
	}
}

// text describes what the run waits for.
func (w *Wait) text() string {
	since := " (since " + formatTime(w.Since) + ")"
	switch {
	case w.For == forTurn:
		return "waits for its turn in the run in progress" + since
	case w.Worker != "":
		return "was taken from queue " + w.Queue + " by " + truncate(w.Worker, maxText) + ", and is about to begin" + since
	}
	text := "waits in queue " + w.Queue + " for a worker"
	var needs []string
	if len(w.Labels) > 0 {
		needs = append(needs, "labels "+truncate(strings.Join(w.Labels, ", "), maxText))
	}
	if w.Memory > 0 {
		needs = append(needs, human.Bytes(w.Memory)+" of memory")
	}
	if len(needs) > 0 {
		text += " with " + strings.Join(needs, " and ")
	}
	return text + since
}

func (w *Explanation) execution() string {
	if w.Execution == nil {
		return "that is not known"
	}
	text := w.Execution.Execution
	if !w.Execution.At.IsZero() {
		text += " of " + w.Execution.At.Local().Format("2006-01-02 15:04")
	}
	return text
}

// since describes the changes since the task last succeeded.
func (w *Explanation) since() string {
	switch {
	case w.Failure.Succeeded != nil:
		return "; the same command on the same inputs had succeeded before"
	case len(w.Changed) == 0:
		return ""
	}
	c := &w.Changed[0]
	text := "; since it last worked "
	if c.Task != w.Failure.Task && c.Kind != Input && c.Task != "" {
		text += "in " + truncate(c.Task, maxText) + " "
	}
	text += c.clause()
	if n := len(w.Changed) - 1; n > 0 {
		text += ", and " + human.Count(n, "more cause")
	}
	return text
}

// waitsFor names the first task that blocks this one, and says why that task has no result.
func (w *Explanation) waitsFor(because string) string {
	r := w.Reason
	if r == nil {
		return ""
	}
	if r.Cause.Kind == Twin {
		return " for " + r.Cause.Text
	}
	if len(r.Upstream) == 0 {
		return " for what it reads"
	}
	up := r.Upstream[0]
	text := " for " + truncate(up.Task, maxText)
	if n := w.blockers - 1; n > 0 {
		text += " and " + human.Count(n, "other task")
	}
	switch {
	case up.Failed != nil:
		return text + ", which " + up.Failed.Text
	case because == "":
		return text
	}
	which := ", which would run because "
	if up.Cause.Kind == NoValue || up.Cause.Kind == Lacking || up.Cause.Kind == Fault {
		which = ", which cannot run: "
	}
	return text + which + strings.TrimPrefix(because, "upstream, in "+truncate(up.Task, maxText)+", ")
}
