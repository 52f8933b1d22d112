package runview_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// Each wait that events tell is told with what it was for: a person, a worker, the next attempt, a turn, the store; and how long no
// command ran meanwhile.
func TestWaits(t *testing.T) {
	began := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	type told struct {
		at int // seconds after the begin
		is events.Type
		of string
		d  events.Data
	}
	here, away := &events.Limits{Cores: 4}, &events.Limits{}
	tests := []struct {
		name   string
		limits *events.Limits
		told   []told
		want   string
		said   string
	}{
		{"approved", here, []told{
			{0, events.TaskMarkedReady, "a", events.Data{}}, {0, events.TaskDeferred, "a", events.Data{}}, {60, events.TaskResumed, "a", events.Data{}},
			{62, events.TaskStarted, "a", events.Data{}}, {70, events.TaskCompleted, "a", events.Data{Duration: 8_000}},
		}, "approval 1×60s, longest a, idle 60s; turn 1×2s, longest a, idle 2s", "For 1m00s no command ran, while 1 task waited for a person's approval."},
		{"rejected", here, []told{
			{0, events.TaskDeferred, "a", events.Data{}}, {30, events.TaskFailed, "a", events.Data{Block: "b"}},
		}, "approval 1×30s, longest a, idle 30s", "waited for a person's approval"},
		{"beside a command", here, []told{
			{0, events.TaskStarted, "b", events.Data{}}, {5, events.TaskDeferred, "a", events.Data{}}, {90, events.TaskCompleted, "b", events.Data{Duration: 90_000}},
		}, "approval 1×95s, longest a, idle 10s", "For 10.0s no command ran"},
		{"worker", away, []told{
			{0, events.TaskMarkedReady, "a", events.Data{}}, {0, events.TaskMarkedReady, "b", events.Data{}}, {20, events.TaskClaimed, "a", events.Data{}},
			{21, events.TaskStarted, "a", events.Data{}}, {40, events.TaskOrphaned, "a", events.Data{}}, {55, events.TaskAdopted, "a", events.Data{}},
			{100, events.TaskCompleted, "a", events.Data{Duration: 79_000}},
		}, "worker 2×135s, longest b, idle 21s", "2 tasks waited for a worker"},
		{"attempt", here, []told{
			{0, events.TaskStarted, "a", events.Data{}}, {10, events.TaskFailed, "a", events.Data{ExitCode: 1, Duration: 10_000}},
			{10, events.TaskRetryScheduled, "a", events.Data{DelayMs: 30_000}}, {45, events.TaskStarted, "a", events.Data{}}, {50, events.TaskCompleted, "a", events.Data{Duration: 5_000}},
		}, "attempt 1×30s, longest a, idle 30s; turn 1×5s, longest a, idle 5s", "1 task waited for the next attempt"},
		{"store", here, []told{
			{30, events.RunStalled, "", events.Data{Duration: 10_000}}, {80, events.RunResumed, "", events.Data{Duration: 60_000}},
		}, "store 1×60s, longest , idle 60s", "while the run waited for the repository"},
	}
	for _, test := range tests {
		r := &runview.Report{Run: &record.Run{StartedAt: began, CompletedAt: began.Add(100 * time.Second), State: record.RunCompleted}}
		var s runview.Spans
		f, seq, attempts := runview.NewFold(), int64(0), map[string]int{}
		list := append([]told{{0, events.RunStarted, "", events.Data{Limits: test.limits}}}, test.told...)
		for _, x := range append(list, told{100, events.RunCompleted, "", events.Data{}}) {
			seq++
			e := events.Event{Seq: seq, Time: began.Add(time.Duration(x.at) * time.Second), Type: x.is, Task: x.of, Data: &x.d}
			switch {
			case x.is == events.TaskStarted:
				attempts[x.of]++
				fallthrough
			case x.is == events.TaskCompleted, x.is == events.TaskFailed && x.d.Block == "":
				e.Execution = fmt.Sprintf("%s-%d", x.of, attempts[x.of])
			}
			f.Add(&e)
			s.Add(&e, f)
		}
		spent := runview.SpentOf(nil, &s, r, time.Time{})
		var got []string
		for _, w := range spent.Waits {
			got = append(got, fmt.Sprintf("%s %d×%.0fs, longest %s, idle %.0fs", w.For, w.Tasks, w.Took.Duration().Seconds(), w.Task, w.Idle.Duration().Seconds()))
		}
		if got := strings.Join(got, "; "); got != test.want {
			t.Errorf("%s: the waits are %q, want %q", test.name, got, test.want)
		}
		if got := spent.Text(); !strings.Contains(got, test.said) {
			t.Errorf("%s: it says %q, want %q", test.name, got, test.said)
		}
	}
}
