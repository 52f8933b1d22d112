package ui_test

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/ui"
)

// allocated is how many bytes a function makes.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// A question about one task of a large run reads the run's package once, and parses no events of other tasks.
func TestWhyOfOneTaskCostsLittle(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	b := newBench(t)
	b.large(n)
	b.serve(ui.Options{})
	var err error
	why := allocated(func() { _, err = b.stores.Explain().Why(t.Context(), "prod", "train7[3]", "") })
	if err != nil {
		t.Fatal(err)
	}
	b.page("/run?w=prod")
	path := "/task?w=prod&view=why&t=" + urlOf("train7[3]")
	page := allocated(func() { wantIn(t, b.page(path), "train7[3]") })
	t.Logf("of %d tasks: why makes %d MB, its page %d MB", n, why>>20, page>>20)
	// The package's tasks with their names and wiring are some 500 bytes each; reading all events made 4 KB for each task more.
	if most := int64(n) * 1000; why > most || page > 3*most {
		t.Errorf("of %d tasks, why makes %d MB and its page %d MB, want at most %d and %d", n, why>>20, page>>20, most>>20, 3*most>>20)
	}
}

// A question about one task of a run finds what the report of the whole run says of it.
func TestOneTaskIsAsInTheRun(t *testing.T) {
	for _, tt := range []struct {
		name string
		live bool
		more func(b *bench)
	}{
		{"live", true, nil},
		{"ended", false, nil},
		{"interrupted", true, func(b *bench) { b.desk.live = false }},
		{"ended, with a record", false, func(b *bench) {
			b.record(record.Run{RunID: runID, WorkspaceName: "prod", PackageRef: "demo@1.0.0", StartedAt: b.began, CompletedAt: now, State: record.RunFailed})
		}},
		{"retried, deferred and skipped", true, func(b *bench) {
			for _, e := range []events.Event{
				{Type: events.TaskRetryScheduled, Task: "broken", Data: &events.Data{Attempt: 2}},
				{Type: events.TaskDeferred, Task: "wait", Data: &events.Data{}},
				{Type: events.TaskSkipped, Task: "after", Data: &events.Data{Because: "broken"}},
				{Type: events.TaskMarkedReady, Task: "soon"},
			} {
				e.Time = b.began.Add(time.Minute)
				b.log.Emit(e)
			}
			if err := b.log.Flush(); err != nil {
				t.Fatal(err)
			}
		}},
		{"in bulk", true, func(b *bench) {
			b.log.Emit(events.Event{Time: b.began, Type: events.TaskCached, Data: &events.Data{Tasks: 3, As: "0194fdc0-fa2f-7cc0-81d3-ff12045b73c8"}})
			if err := b.log.Flush(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.run(tt.live, small()...)
			if tt.more != nil {
				tt.more(b)
			}
			whole, err := b.stores.Runs.Report(t.Context(), "prod", "")
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range []string{"clean", "train[1]", "train[2]", "broken", "wait", "after", "soon", "none"} {
				i := slices.IndexFunc(whole.Tasks, func(r runview.TaskReport) bool { return r.Task == task })
				te, err := b.stores.Runs.TaskExecutions(context.WithoutCancel(t.Context()), "prod", task)
				if i < 0 {
					if err != nil && !errors.Is(err, human.ErrNotFound) || err == nil && te.Task != nil {
						t.Errorf("%s: %+v, %v; it is not in the run", task, te, err)
					}
					continue
				}
				if err != nil || te.Task == nil {
					t.Errorf("%s: %v, %v", task, te, err)
					continue
				}
				got, want := *te.Task, whole.Tasks[i]
				want.Memory, want.Cores = 0, 0 // of its execution
				if want.Duration = cmp.Or(want.Duration, got.Duration); got != want {
					t.Errorf("%s\n got %+v\nwant %+v", task, got, want)
				}
			}
		})
	}
}
