package main

import (
	"testing"
	"time"

	"e3/internal/human"
	"e3/internal/jobs/queue"
)

// The note about a job that a start waits for tells a living worker from a dead one, and whether the start goes on by
// itself.
func TestWaitText(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	job := queue.Job{Status: queue.Running, Worker: "ann@lab (process 7)", MakerHost: "lab", Claimed: queue.TimeOf(began.Add(time.Hour)), Started: queue.TimeOf(began)}
	for _, test := range []struct {
		name   string
		host   string
		adopts bool
		over   bool
		want   string
	}{
		{"alive", "lab", true, false, "ann@lab, process 7 executes it, since " + human.Stamp(began) + "; waiting for its result"},
		{"dead, here", "lab", true, true, "its worker ann@lab, process 7 has died; going on with its command"},
		{"dead, elsewhere", "office", true, true, "its worker ann@lab, process 7 has died; a worker on that machine would go on with its command: " +
			"e3 worker . (without one it runs again in a minute)"},
		{"dead, and workers execute", "lab", false, true, "its worker ann@lab, process 7 has died; a worker on that machine would go on with its command: " +
			"e3 worker . (without one it runs again in a minute)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &waitWatch{location: ".", executes: test.adopts, here: func(j *queue.Job) bool { return j.MakerHost == test.host }}
			if got := w.text(&queue.Work{Job: job, Over: test.over}); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
