package ui_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/jobs/approval"
	"e3/internal/ui"
	"e3/workspace"
)

// waitingAnswers are those of a workspace whose run waits for approval, or whose tasks are queued.
type waitingAnswers struct {
	answers
	queued bool
}

func (a waitingAnswers) Status(context.Context, string) (*workspace.Status, error) {
	st := status("prod")
	st.Run = &runview.Report{Run: &record.Run{RunID: runID, WorkspaceName: "prod", StartedAt: now.Add(-time.Hour), State: record.RunRunning}, Live: true}
	if a.queued {
		st.Run.Queued = []runview.Queued{{Task: "train[1]"}, {Task: "train[2]"}}
	} else {
		st.Deferred = []approval.Waiting{{Task: "sign", Since: moment.At(now.Add(-5 * time.Minute))}}
	}
	return st, nil
}

// A run in which no command is at work says on the first page and on its own what it waits for; with a command at work it runs. The time
// that it waits is among where the time went, and in the timeline.
func TestPagesTellWaits(t *testing.T) {
	card := regexp.MustCompile(`<span class="badge s-[a-z]+">.*?</span>\s*([^<]*)</span>`)
	for _, test := range []struct {
		name         string
		queued, busy bool
		want         string
	}{
		{"approval", false, false, "waits for approval"},
		{"worker", true, false, "waits for a worker"},
		{"busy", false, true, "running"},
	} {
		b := newBench(t)
		list := small()[:3]
		if test.busy {
			list = append(list, made{name: "long", state: runview.TaskRunning, file: "l"})
		}
		b.run(true, list...)
		if !test.queued {
			for _, is := range []events.Type{events.TaskStarted, events.TaskCompleted} { // by the run's process
				b.log.Emit(events.Event{Time: now.Add(-6 * time.Minute), Type: is, Task: "own", Execution: runID, Data: &events.Data{Attempt: 1}})
			}
			b.log.Emit(events.Event{Time: now.Add(-5 * time.Minute), Type: events.TaskDeferred, Task: "sign", Data: &events.Data{}})
			if err := b.log.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		b.stores.Answers = waitingAnswers{queued: test.queued}
		b.serve(ui.Options{})
		page := b.page("/")
		if m := card.FindStringSubmatch(page); m == nil || strings.TrimSpace(m[1]) != test.want {
			t.Errorf("%s: the card says %q, want %q", test.name, m, test.want)
		}
		if test.queued {
			wantIn(t, page, "2 tasks wait for a worker: ", `href="/queue"`)
			continue
		}
		page = b.page("/run?w=prod")
		wantIn(t, page, "What tasks waited for", "a person&#39;s approval", "deferred, waits for approval")
		wantIn(t, b.page("/run?w=prod&view=timeline"), ">Waits</text>", ">Commands</text>", "waited for a person&#39;s approval, 5m00s")
	}
}

// TestRunTellsApprovals: the page of a run says who approved a task, and when, beside what tasks waited for.
func TestRunTellsApprovals(t *testing.T) {
	b := newBench(t)
	b.run(true, small()[:3]...)
	b.log.Emit(events.Event{Time: now.Add(-5 * time.Minute), Type: events.TaskDeferred, Task: "sign", Data: &events.Data{}})
	b.log.Emit(events.Event{Time: now.Add(-2 * time.Minute), Type: events.TaskResumed, Task: "sign",
		Data: &events.Data{By: "ann@desk", Message: "<fine>", At: now.Add(-3 * time.Minute).Format(time.RFC3339)}})
	b.log.Emit(events.Event{Time: now.Add(-time.Minute), Type: events.TaskStarted, Task: "sign", Execution: "01950000-0000-7000-8000-000000000000", Data: &events.Data{Attempt: 1}})
	if err := b.log.Flush(); err != nil {
		t.Fatal(err)
	}
	b.serve(ui.Options{})
	page := b.page("/run?w=prod")
	spent := page[strings.Index(page, `id="path-h"`):]
	wantIn(t, spent[:strings.Index(spent, "</ul>")], "approved by ann@desk: &lt;fine&gt;", human.Stamp(now.Add(-3*time.Minute)), ">sign</a>")
}
