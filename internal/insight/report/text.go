package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
)

// visible makes text a single line of visible characters.
func visible(s string) string { return human.Line(s) }

// Few joins the first few of a set of words.
func Few(set map[string]bool) string {
	const most = 4
	words := slices.Sorted(maps.Keys(set))
	words = slices.DeleteFunc(words, func(s string) bool { return s == "" })
	if len(words) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
	}
	return strings.Join(words, ", ")
}

// Whence describes the steps by which an imported run came here, the last step first.
func Whence(p *record.Provenance) string {
	if len(p.Steps) == 0 {
		return "from a place that is not on record"
	}
	s := &p.Steps[len(p.Steps)-1]
	text := fmt.Sprintf("from %s on %s", s.Source(), s.ImportedAt.UTC().Format(time.DateOnly))
	if s.ImportedBy != "" {
		text += " by " + s.ImportedBy
	}
	if n := len(p.Steps) - 1; n > 0 {
		text += fmt.Sprintf(", after %d earlier steps", n)
	}
	return text
}

// RunClass is the status by which a run is coloured.
func RunClass(r *runview.Report) string {
	switch s := r.Status(); s {
	case "completed":
		return "success"
	case "failed", "running", "interrupted":
		return s
	case "waits":
		return "deferred" // as its tasks that wait for approval
	}
	return "interrupted"
}

// Note adds details to the state of a task.
func Note(t *runview.TaskReport) string {
	notes := t.Notes()
	if t.Reason != "" && !strings.Contains(t.Message, t.Reason) {
		notes = append(notes, t.Reason)
	}
	if s := t.ImportedFrom; s != nil {
		notes = append(notes, "imported from "+s.By)
	}
	if m := t.Rejected; m != nil {
		notes = append(notes, "rejected by "+m.By)
	}
	for i, text := range notes {
		notes[i] = visible(human.Truncate(text, 400))
	}
	return strings.Join(notes, ", ")
}

// Lead describes the outcome of a run in a sentence.
func Lead(r *runview.Report) string {
	if r.Crashed() {
		return "The process that ran it died."
	}
	if r.State == record.RunFailed && r.FailedTask != "" {
		what := "the first was " + visible(r.FailedTask)
		if r.Error != "" {
			what += " (" + cause(r.Error) + ")"
		}
		text := fmt.Sprintf("%s failed; %s.", human.Count(r.Summary.Failed-allowed(r), "task"), what)
		if n := allowed(r); n > 0 {
			text += fmt.Sprintf(" %d more failed, as they may.", n)
		}
		return text
	}
	if r.State == record.RunRunning {
		if r.Total == 0 {
			return "No task is done yet."
		}
		return fmt.Sprintf("%d of %s done.", r.Done, human.Count(r.Total, "task"))
	}
	if r.State == record.RunCompleted {
		cached, all := r.Summary.Cached, r.Summary.Total
		if n := r.Summary.Failed; n > 0 {
			return fmt.Sprintf("%d of %s ended with a result; %d failed, as they may.", r.Summary.Completed, human.Count(all, "task"), n)
		}
		switch {
		case all == 0:
			return "There was nothing to do."
		case cached == all:
			return fmt.Sprintf("Nothing had to run: all of %s were cached.", human.Count(all, "task"))
		case cached == 0:
			return fmt.Sprintf("%s ran.", human.Count(all, "task"))
		}
		return fmt.Sprintf("%s ran, %d were cached.", human.Count(all-cached, "task"), cached)
	}
	if r.Waits > 0 {
		return "What is left waits for approval; the next start goes on."
	}
	return "The run ended before all tasks had their turn."
}

// allowed counts the tasks that have failed, as they may; 0 for a report without its tasks.
func allowed(r *runview.Report) (n int64) {
	for t := range r.Each() {
		if t.HasFailed() && t.Allowance() != "" {
			n++
		}
	}
	return n
}

// cause is the error of a run: a text, or the exit code as text.
func cause(err string) string {
	if strings.Trim(err, "0123456789") == "" {
		return "exit code " + err
	}
	return visible(human.Truncate(err, 200))
}
