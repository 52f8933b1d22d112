//go:build linux

package e2e

import (
	"bytes"
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/refstore"
)

// A run is cut off, and another process finds it dead without taking its workspace: to collect garbage, or for the
// keys that it executes. When the store is back the run goes on: it has nothing begun twice, and ends well.
func machineFoundDead(taken bool) func(*testing.T) {
	return func(t *testing.T) {
		w, a, b := team(t)
		x := a.atWork()
		a.cut()
		if taken {
			b.let()
			if r := b.takeOver("start", "-f", "e3.yaml", "second", "--json").wait(); r.code != 0 {
				t.Fatalf("exit code %d\n%s", r.code, r.text())
			}
		} else {
			look := w.open(t)
			eventually(t, teamLease+slack, "the run is found dead", func() string {
				b.e3("gc") // it may not collect while requests of the dead run may still arrive
				for s, err := range look.Records.List(t.Context(), refstore.Query{Partition: "LEASE/sessions"}) {
					if err != nil {
						t.Fatal(err)
					}
					if bytes.Contains(s.Value, []byte(`"state":"dead"`)) {
						return ""
					}
				}
				return "no session is marked dead"
			})
		}
		a.plug()
		eventually(t, teamLease+slack, "the run says that the store is back", func() string {
			if text := x.result().stderr; !strings.Contains(text, "The store answers again") {
				return text
			}
			return ""
		})
		a.let()
		if r := x.wait(); r.code != 0 {
			t.Fatalf("exit code %d, want 0\n%s", r.code, r.text())
		}
		a.hasLast()
		ran := map[string]int{}
		for _, mark := range a.marks("ran") {
			if ran[mark]++; ran[mark] > 1 {
				t.Errorf("%s has begun twice", mark)
			}
		}
		successes := map[string]int{}
		for _, e := range a.all() {
			if e.State == record.Running {
				t.Errorf("the execution %s of %s seems to run", e.ExecutionID, e.Detail.Task)
			}
			if e.State == record.Success {
				successes[e.Detail.Task]++
			}
		}
		for task, n := range successes {
			if n > 1 {
				t.Errorf("task %s has %d successes", task, n)
			}
		}
		wantRan(t, a.start(0, "team"))
		w.freed(t)
		w.check(t, tolerated{fenced: taken})
	}
}
