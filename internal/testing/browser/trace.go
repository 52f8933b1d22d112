package browser

import (
	"encoding/json"
	"slices"
	"time"
)

// A Work is something that the main thread of a page was busy with, and could not be interrupted in.
type Work struct {
	Took time.Duration // of the processor: what other programs do at the same time is not in it
	Did  string        // the longest part that has a name, as "Layout"
}

// traced is an event of a trace, as Chromium writes it.
type traced struct {
	Name   string  `json:"name"`
	Phase  string  `json:"ph"`
	PID    int     `json:"pid"`
	TID    int     `json:"tid"`
	Start  float64 `json:"ts"`   // µs
	Wall   float64 `json:"dur"`  // µs
	Thread float64 `json:"tdur"` // µs of the processor
	Args   struct {
		Name string `json:"name"`
	} `json:"args"`
}

// Trace returns what the main threads of the tab's pages were busy with during a step, the longest first.
func (b *Tab) Trace(step func()) []Work {
	b.t.Helper()
	b.mu.Lock()
	b.traced = []json.RawMessage{}
	before := b.events["Tracing.tracingComplete"]
	b.mu.Unlock()
	b.call("Tracing.start", map[string]any{"transferMode": "ReportEvents", "traceConfig": map[string]any{
		"includedCategories": []string{"toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"}, "excludedCategories": []string{"*"},
	}}, nil)
	step()
	b.waits("Tracing.tracingComplete", before, "the trace has no end", func() { b.call("Tracing.end", map[string]any{}, nil) })
	b.mu.Lock()
	batches := b.traced
	b.traced = nil
	b.mu.Unlock()
	var all []traced
	for _, text := range batches {
		var batch struct{ Value []traced }
		if err := json.Unmarshal(text, &batch); err != nil {
			b.t.Fatal(err)
		}
		all = append(all, batch.Value...)
	}
	return worksOf(all)
}

// worksOf are the tasks of main threads among the events of a trace.
func worksOf(all []traced) []Work {
	type thread struct{ pid, tid int }
	main := map[thread]bool{}
	for i := range all {
		if e := &all[i]; e.Name == "thread_name" && e.Args.Name == "CrRendererMain" {
			main[thread{e.PID, e.TID}] = true
		}
	}
	type task struct {
		traced
		part *traced // the longest, by the processor
	}
	isTask := func(e *traced) bool { return e.Phase == "X" && e.Name == "RunTask" }
	tasks := map[thread][]task{}
	for i := range all {
		if e := &all[i]; isTask(e) && main[thread{e.PID, e.TID}] {
			tasks[thread{e.PID, e.TID}] = append(tasks[thread{e.PID, e.TID}], task{traced: *e})
		}
	}
	for _, list := range tasks {
		slices.SortFunc(list, func(a, b task) int { return int(a.Start - b.Start) })
	}
	for i := range all {
		e := &all[i]
		list := tasks[thread{e.PID, e.TID}]
		if e.Phase != "X" || len(list) == 0 || isTask(e) || e.Name == "ThreadControllerImpl::RunTask" { // the latter is a part of each
			continue
		}
		k, found := slices.BinarySearchFunc(list, e.Start, func(t task, at float64) int { return int(t.Start - at) })
		if !found {
			k--
		}
		if k >= 0 && e.Start < list[k].Start+list[k].Wall && (list[k].part == nil || e.Thread > list[k].part.Thread) {
			list[k].part = e
		}
	}
	var works []Work
	for _, list := range tasks {
		for _, t := range list {
			w := Work{Took: time.Duration(t.Thread * float64(time.Microsecond))}
			if t.part != nil {
				w.Did = t.part.Name
			}
			works = append(works, w)
		}
	}
	slices.SortFunc(works, func(a, b Work) int { return int(b.Took - a.Took) })
	return works
}
