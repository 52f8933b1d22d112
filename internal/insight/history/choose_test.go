package history_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/history"
)

// Executions by their runs: of a run whose events are gone, too.
func TestChooseInRun(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		old, new := key("old", "x"), key("new", "x")
		a.execution(made{id: 89, key: old, ws: "prod", task: "t", run: 90, state: record.Success})
		a.execution(made{id: 9, key: new, ws: "prod", task: "t", run: 10, state: record.Success})
		a.log("prod", 10, began, started("t", new, 9, 1), completed("t", new, 9), ended)
		c := &history.Chooser{Stores: a.Stores, Workspace: "prod", Task: "t", Now: func() time.Time { return now }, Damaged: func([]error) {}}
		for run, want := range map[int]int{10: 9, 90: 89} {
			if e, err := c.InRun(t.Context(), id(run), 0); err != nil || e.ExecutionID != id(want) {
				t.Errorf("in run %s: got %v, %v, want execution %s", id(run), e, err, id(want))
			}
		}
		var absent *history.AbsentError
		if _, err := c.InRun(t.Context(), id(10), 2); !errors.As(err, &absent) || absent.Attempt != 2 || absent.Run != id(10) {
			t.Errorf("an attempt that was not made: got %v, want an AbsentError", err)
		}
		var unknown *human.UnknownError
		if _, err := c.InRun(t.Context(), "ffff", 0); !errors.As(err, &unknown) || len(unknown.Known) == 0 {
			t.Errorf("a run that was not: got %v, want an UnknownError with those that were", err)
		}
	})
}

// The executions of a task in a run that has ended are found by that run's events, however much else is on record.
func TestChooseInRunCost(t *testing.T) {
	r := newRepo(t)
	s := &counted{Records: r.Records}
	a := newArchive(t, s, r.Objects, r.Records)
	cost := func(from, runs int) int64 {
		for i := from; i < runs; i++ {
			k := key("t", fmt.Sprint(i))
			a.execution(made{id: 10*i + 9, key: k, ws: "prod", task: "t", run: 10*i + 10, state: record.Success})
			a.log("prod", 10*i+10, began, started("t", k, 10*i+9, 1), completed("t", k, 10*i+9), ended)
		}
		c := &history.Chooser{Stores: a.Stores, Workspace: "prod", Task: "t", Now: func() time.Time { return now }, Damaged: func([]error) {}}
		s.n.Store(0)
		if e, err := c.InRun(t.Context(), id(20), 0); err != nil || e.ExecutionID != id(19) {
			t.Errorf("got %v, %v, want execution %s", e, err, id(19))
		}
		return s.n.Load()
	}
	few, many := cost(0, 5), cost(5, 60)
	if t.Logf("%d reads with 5 runs on record, %d with 60", few, many); many > few {
		t.Errorf("%d reads with 5 runs on record, %d with 60", few, many)
	}
}
