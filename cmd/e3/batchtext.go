package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/human"
)

// batchFailures are the failures of batches in a transcript: one line tells of each, in place of two for every item.
type batchFailures struct {
	open  map[string]*openBatch // by the execution of the first item: batches that have begun to end
	alone map[string]bool       // tasks whose last failure was that of their batch; true: their next attempt was not scheduled yet
}

// openBatch counts the items of a batch that have come back.
type openBatch struct {
	family, message string
	ended, failed   int
}

// take counts an event, and reports whether the transcript needs no line for it. line prints one.
func (b *batchFailures) take(e *events.Event, d *events.Data, line func(family, note string)) (taken bool) {
	switch e.Type {
	case events.TaskCompleted, events.TaskFailed:
	case events.TaskRetryScheduled:
		if taken = b.alone[e.Task]; taken {
			b.alone[e.Task] = false
		} else {
			delete(b.alone, e.Task)
		}
		return taken
	default:
		return false
	}
	if d.Batch == "" {
		return false
	}
	if b.open == nil {
		b.open, b.alone = map[string]*openBatch{}, map[string]bool{}
	}
	o := b.open[d.Batch]
	if o == nil {
		o = &openBatch{}
		b.open[d.Batch] = o
	}
	if taken = e.Type == events.TaskFailed && d.Reason == string(executions.ReasonBatch); taken {
		if o.failed++; o.failed == 1 {
			o.family, _, _ = strings.Cut(e.Task, "[")
			o.message = d.Message
		}
		b.alone[e.Task] = true
	}
	if o.ended++; o.ended >= d.Items {
		delete(b.open, d.Batch)
		o.tell(line)
	}
	return taken
}

// rest tells of batches whose other items have not come back, the first one first.
func (b *batchFailures) rest(line func(family, note string)) {
	for _, id := range slices.Sorted(maps.Keys(b.open)) {
		b.open[id].tell(line)
	}
	b.open = nil
}

func (o *openBatch) tell(line func(family, note string)) {
	if o.failed > 0 {
		line(human.Count(o.failed, "item")+" of "+o.family, " ("+human.Line(o.message)+")")
	}
}

// startNote describes the start of a command.
func (b *batchFailures) startNote(e *events.Event, d *events.Data) string {
	_, alone := b.alone[e.Task]
	switch {
	case alone:
		return " (alone)"
	case d.Attempt > 1 && e.Worker != "":
		return fmt.Sprintf(" (attempt %d, by %s)", d.Attempt, human.Line(human.Worker(e.Worker)))
	case d.Attempt > 1:
		return fmt.Sprintf(" (attempt %d)", d.Attempt)
	case e.Worker != "":
		return fmt.Sprintf(" (by %s)", human.Line(human.Worker(e.Worker)))
	}
	return ""
}
