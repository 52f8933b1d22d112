package dataflow_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"e3/dataflow"
	"e3/executions"
	"e3/objectstore"
	"e3/objectstore/objectstoretest"
)

// A far store takes 0.4 s to fetch a copy: two of them, one after the other, are here before a task of a second ends.
type far struct {
	*objectstoretest.Mem
	mu      sync.Mutex
	copies  map[objectstore.Hash]bool
	busy    int
	busiest int
}

func (f *far) FetchCopy(ctx context.Context, h objectstore.Hash) error {
	f.mu.Lock()
	f.busy++
	f.busiest = max(f.busiest, f.busy)
	f.mu.Unlock()
	var err error
	select {
	case <-time.After(400 * time.Millisecond):
	case <-ctx.Done():
		err = ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy--
	f.copies[h] = err == nil
	return err
}

// A reader of a far store notes which tasks began before their inputs were here.
type farReader struct {
	*world
	far  *far
	late []string
}

func (r *farReader) Do(ctx context.Context, req *executions.Request) (executions.Result, error) {
	r.far.mu.Lock()
	for _, h := range req.Inputs {
		if !r.far.copies[h] {
			r.late = append(r.late, req.Name)
			break
		}
	}
	r.far.mu.Unlock()
	return r.world.Do(ctx, req)
}

// TestFetchAhead runs tasks of a second on objects that take 0.4 s to fetch: only the first ones find that
// their input is not here.
func TestFetchAhead(t *testing.T) {
	pkg := flow("p1", "p2", "p3", "p4", "c1: p1", "c2: p2", "c3: p3", "c4: p4", "all: c1 c2 c3 c4")
	play := func(t *testing.T, change func(*dataflow.Options, *farReader)) *farReader {
		w := newWorld()
		w.behave = func(string, int64) behaviour { return behaviour{takes: time.Second} }
		r := &farReader{world: w, far: &far{Mem: w.objects, copies: map[objectstore.Hash]bool{}}}
		opts := dataflow.Options{RunID: "r", Workspace: "ws", Inputs: oneInput, Concurrency: 1}
		change(&opts, r)
		if _, err := dataflow.Run(t.Context(), graphOf(t, pkg), r.far, r, opts); err != nil {
			t.Error(err)
		}
		if r.far.busy != 0 {
			t.Errorf("%d objects are still being fetched after the run", r.far.busy)
		}
		return r
	}
	synctest.Test(t, func(t *testing.T) {
		r := play(t, func(*dataflow.Options, *farReader) {})
		// Two tasks are launched at once, of which one waits for its admission. The last task's input was made when it
		// became ready, with nothing else to run meanwhile.
		slices.Sort(r.late)
		if !slices.Equal(r.late, []string{"all", "p1", "p2"}) {
			t.Errorf("inputs were fetched too late for %v, want p1, p2 and all", r.late)
		}
		if r.far.busiest == 0 || r.far.busiest > 2 {
			t.Errorf("%d objects were fetched at a time, want at most 2 for a task that runs", r.far.busiest)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := play(t, func(o *dataflow.Options, r *farReader) { o.Outstanding, r.workers = 4, true })
		if len(r.far.copies) > 0 {
			t.Errorf("%d objects were fetched for tasks that run elsewhere", len(r.far.copies))
		}
	})
}
