package history_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/refstore"
	"e3/workspace"
)

func all(*history.Attempt) bool { return true }

// latest returns the latest attempts of a task, and whether there are more.
func (a *archive) latest(task string, n int, want func(*history.Attempt) bool) ([]history.Attempt, bool) {
	a.Helper()
	found, err := history.Latest(a.Context(), a.Stores, history.Query{Workspace: "prod", Tasks: []string{task}, NotStarted: true}, n, want)
	a.must(err)
	return found.Tasks[0].Attempts, found.Partial
}

// TestLatest reads the latest attempts of a task: those of runs with events, one that no event names, and failures.
func TestLatest(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		const runs = 100
		for i := range runs {
			minutes := 10 * (runs - i)
			k := key("train", fmt.Sprint(i))
			state, end := record.Success, completed("train", k, minutes-1)
			if i%20 == 0 {
				state, end = record.Failed, failed("train", k, minutes-1, "")
			}
			a.execution(made{id: minutes - 1, key: k, ws: "prod", task: "train", run: minutes, state: state})
			a.log("prod", minutes, began, started("train", k, minutes-1, 1), end, ended)
		}
		a.execution(made{id: 15, key: key("train", "imported"), ws: "prod", task: "train", state: record.Success}) // without events

		got, more := a.latest("train", 2, all)
		if !more || len(got) < 3 || len(got) > 10 {
			t.Errorf("of the latest 2 it read %d; more %v", len(got), more)
		}
		a.want(got[:3], "9 success by 10 in 10", "15 success by  in ", "19 success by 20 in 20")

		bad := func(x *history.Attempt) bool { return x.Status == runview.TaskFailed }
		got, more = a.latest("train", 2, bad)
		got = slices.DeleteFunc(got, func(x history.Attempt) bool { return !bad(&x) })
		if !more || len(got) < 3 {
			t.Errorf("of the latest 2 failures it read %d; more %v", len(got), more)
		}
		a.want(got[:2], "199 failed by 200 in 200", "399 failed by 400 in 400")

		if got, more = a.latest("train", runs, all); more && len(got) != runs+1 || len(got) < runs+1 {
			t.Errorf("of the latest %d it read %d; more %v", runs, len(got), more)
		}
		if got, more = a.latest("train", runs+1, all); more || len(got) != runs+1 {
			t.Errorf("of all it read %d; more %v", len(got), more)
		}
		if got, more = a.latest("nothing", 1, all); more || len(got) > 0 {
			t.Errorf("of a task that never ran it read %d; more %v", len(got), more)
		}
	})
}

// counted counts the records and streams that are read.
type counted struct {
	workspace.Records
	n atomic.Int64
}

func (c *counted) Get(ctx context.Context, k refstore.Key, fields ...string) (refstore.Record, error) {
	c.n.Add(1)
	return c.Records.Get(ctx, k, fields...)
}

func (c *counted) Open(ctx context.Context, k refstore.Key, offset int64) (io.ReadCloser, error) {
	c.n.Add(1)
	return c.Records.Open(ctx, k, offset)
}

func (c *counted) Size(ctx context.Context, k refstore.Key) (refstore.StreamInfo, error) {
	c.n.Add(1)
	return c.Records.Size(ctx, k)
}

func (c *counted) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	c.n.Add(1)
	return func(yield func(refstore.Record, error) bool) {
		for rec, err := range c.Records.List(ctx, q) {
			if !q.KeysOnly {
				c.n.Add(1)
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

func (c *counted) ExecutionsAfter(ctx context.Context, task, id string) iter.Seq2[refstore.Key, error] {
	return func(yield func(refstore.Key, error) bool) {
		for key, err := range c.Records.(interface {
			ExecutionsAfter(ctx context.Context, task, id string) iter.Seq2[refstore.Key, error]
		}).ExecutionsAfter(ctx, task, id) {
			c.n.Add(1) // its folder was opened
			if !yield(key, err) {
				return
			}
		}
	}
}

// TestLatestCost shows that what is read for the latest attempts does not grow with the number of earlier ones.
func TestLatestCost(t *testing.T) {
	cost := func(runs int) int64 {
		r := newRepo(t)
		c := &counted{Records: r.Records}
		a := newArchive(t, c, r.Objects, r.Records)
		for i := range runs {
			minutes := 10 * (runs - i)
			k := key("train", fmt.Sprint(i))
			a.execution(made{id: minutes - 1, key: k, ws: "prod", task: "train", run: minutes, state: record.Success})
			a.log("prod", minutes, began, started("train", k, minutes-1, 1), completed("train", k, minutes-1), ended)
			a.must(os.Chtimes(filepath.Join(r.Root, "executions", k.Task.String(), k.Inputs.String()), at(minutes-1), at(minutes-1)))
		}
		c.n.Store(0)
		got, more := a.latest("train", 5, all)
		if len(got) < 6 || !more {
			t.Errorf("%d runs: it read %d; more %v", runs, len(got), more)
		}
		return c.n.Load()
	}
	few, many := cost(20), cost(500)
	if t.Logf("reads with 20 and 500 runs: %d and %d", few, many); many > few {
		t.Errorf("with 500 runs it reads %d times, with 20 runs %d times", many, few)
	}
}

var _ executions.Records = (*counted)(nil)
