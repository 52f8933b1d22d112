package remaining_test

import (
	"fmt"
	"testing"
	"time"

	"e3/dataflow/graph/graphtest"
	"e3/internal/insight/remaining"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func history(took map[string]time.Duration) func(string) time.Duration {
	return func(task string) time.Duration { return took[task] }
}

func wants(t *testing.T, r *remaining.Run, at time.Duration, want remaining.Estimate) {
	t.Helper()
	if got := r.Left(noon.Add(at)); got != want {
		t.Errorf("after %v: got %+v, want %+v", at, got, want)
	}
}

// A run takes as long as its longest path, and at least its work divided by the cores.
func TestLeft(t *testing.T) {
	took := map[string]time.Duration{"a": 10 * time.Second, "b": 20 * time.Second, "c": 30 * time.Second, "d": 60 * time.Second}
	r := remaining.Of(graphtest.Flow("a:", "b: a", "c: b", "d:"), history(took), 1)
	r.Announce(4)
	wants(t, r, 0, remaining.Estimate{Left: 120 * time.Second, Known: true})
	r = remaining.Of(graphtest.Flow("a:", "b: a", "c: b", "d:"), history(took), 4)
	r.Announce(4)
	wants(t, r, 0, remaining.Estimate{Left: 60 * time.Second, Known: true})
	r.Start("a", noon)
	r.Start("d", noon)
	wants(t, r, 5*time.Second, remaining.Estimate{Left: 55 * time.Second, Known: true})
	r.End("a", 10*time.Second)
	r.Start("b", noon.Add(10*time.Second))
	r.End("d", 15*time.Second)
	wants(t, r, 15*time.Second, remaining.Estimate{Left: 45 * time.Second, Known: true})
	wants(t, r, 15*time.Second+500*time.Millisecond, remaining.Estimate{Left: 44*time.Second + 500*time.Millisecond, Known: true})
	r.End("b", 20*time.Second)
	r.End("c", 0) // cached
	wants(t, r, 40*time.Second, remaining.Estimate{})
}

// A command that takes longer than the last time leaves what comes after it.
func TestLeftOverdue(t *testing.T) {
	r := remaining.Of(graphtest.Flow("a:", "b: a"), history(map[string]time.Duration{"a": time.Second, "b": 7 * time.Second}), 1)
	r.Announce(2)
	r.Start("a", noon)
	wants(t, r, time.Minute, remaining.Estimate{Left: 7 * time.Second, Known: true})
}

// A task without history makes the estimate a lower bound; with none at all there is no estimate.
func TestLeftUnknown(t *testing.T) {
	r := remaining.Of(graphtest.Flow("a:", "b:"), history(nil), 1)
	r.Announce(2)
	wants(t, r, 0, remaining.Estimate{AtLeast: true})
	r = remaining.Of(graphtest.Flow("a:", "b:"), history(map[string]time.Duration{"a": 10 * time.Second}), 1)
	r.Announce(2)
	wants(t, r, 0, remaining.Estimate{Left: 10 * time.Second, Known: true, AtLeast: true})
	r.Start("b", noon)
	wants(t, r, 2*time.Second, remaining.Estimate{Left: 10 * time.Second, Known: true, AtLeast: true})
}

// Items of a matrix are expected to take as long as those that have ended in this run.
func TestLeftItems(t *testing.T) {
	r := remaining.Of(graphtest.Flow("fit[1]:", "fit[2]:", "fit[3]:"), history(nil), 1)
	r.Announce(3)
	r.Start("fit[1]", noon)
	r.End("fit[1]", 4*time.Second)
	wants(t, r, 4*time.Second, remaining.Estimate{Left: 8 * time.Second, Known: true})
	r.Again("fit[1]")
	wants(t, r, 6*time.Second, remaining.Estimate{Left: 12 * time.Second, Known: true})
}

// Proven tasks that an event has counted without their names leave the average of the others.
func TestLeftUnnamed(t *testing.T) {
	took := map[string]time.Duration{}
	var lines []string
	for i := range 10 {
		lines = append(lines, fmt.Sprintf("t%d:", i))
		took[fmt.Sprintf("t%d", i)] = 2 * time.Second
	}
	r := remaining.Of(graphtest.Flow(lines...), history(took), 2)
	r.Announce(3) // seven are proven
	wants(t, r, 0, remaining.Estimate{Left: 3 * time.Second, Known: true, AtLeast: true})
}

// An estimate of 10,000 tasks is quick enough to be shown each second.
func BenchmarkLeft(b *testing.B) {
	var lines []string
	took := map[string]time.Duration{}
	for i := range 10_000 {
		lines = append(lines, fmt.Sprintf("t[%d]:", i))
		took[fmt.Sprintf("t[%d]", i)] = time.Second
	}
	r := remaining.Of(graphtest.Flow(lines...), history(took), 2)
	r.Announce(10_000)
	at := noon
	for b.Loop() {
		at = at.Add(time.Second)
		r.Left(at)
	}
}
