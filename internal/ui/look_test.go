package ui_test

import (
	"strings"
	"testing"

	"e3/dataflow"
	"e3/dataflow/plan"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/explain"
	"e3/internal/insight/runview"
	"e3/internal/ui"
)

// Each status has one mark and one colour, which terminals, pages and drawings share.
func TestEachStatusHasALook(t *testing.T) {
	var words []string
	for _, s := range []runview.TaskState{
		runview.TaskReady, runview.TaskCached, runview.TaskSuccess, runview.TaskFailed, runview.TaskError, runview.TaskSkipped, runview.TaskClaimed,
		runview.TaskRunning, runview.TaskDeferred, runview.TaskAbandoned, runview.TaskRetrying, runview.TaskInterrupted, runview.TaskUnfinished,
		runview.TaskUnknown, runview.TaskQueued,
	} {
		words = append(words, string(s))
	}
	for _, s := range []record.RunState{record.RunRunning, record.RunCompleted, record.RunFailed, record.RunCancelled} {
		words = append(words, s.String())
	}
	for _, s := range []dataflow.Freshness{dataflow.Absent, dataflow.Stale, dataflow.Current} {
		words = append(words, s.String())
	}
	for _, s := range []plan.Step{plan.StepHit, plan.StepRun, plan.StepWait, plan.StepStuck} {
		words = append(words, s.String())
	}
	for _, s := range []explain.State{
		explain.Current, explain.WouldRun, explain.Waits, explain.Ran, explain.Failed, explain.Skipped, explain.Running, explain.Queued, explain.Stuck,
	} {
		words = append(words, string(s))
	}
	b := newBench(t)
	b.serve(ui.Options{})
	sheet := b.page("/static/ui.css")
	for _, word := range words {
		if human.LookOf(word).Tone == human.Plain {
			t.Errorf("the status %q has no look", word)
		}
		if class := ".s-" + word; !strings.Contains(word, " ") && !strings.Contains(sheet, class) {
			t.Errorf("the style sheet has no rule for %s", class)
		}
	}
}
