package executions_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/host/runner"
	"golang.org/x/sync/semaphore"
)

// A command whose inputs are staged starts before the end of the one before is recorded, also where e3 uses one core.
func TestStartsBeforeRecords(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const n = 20
	var mu sync.Mutex
	var l *lab
	var last string // the marker of the latest command
	keys := map[string]executions.Key{}
	early := 0
	l = newLabWith(t, commands(func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
		mu.Lock()
		before, known := keys[last]
		last = spec.Marker
		mu.Unlock()
		if known && len(l.all(t, before)) == 0 {
			mu.Lock()
			early++
			mu.Unlock()
		}
		return writes("x")(ctx, spec)
	}))
	core := semaphore.NewWeighted(1)
	var all sync.WaitGroup
	for i := range n {
		req := l.request(script(fmt.Sprintf("echo %d > out", i)))
		req.Admit = func(ctx context.Context) (func(bool), error) {
			return func(bool) { core.Release(1) }, core.Acquire(ctx, 1)
		}
		req.Started = func(id string, _ time.Time) {
			mu.Lock()
			defer mu.Unlock()
			keys["E3_EXECUTION="+id] = keyOf(req)
		}
		all.Go(func() {
			if _, err := l.Do(t.Context(), req); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if early < n/2 {
		t.Errorf("%d of %d commands started before the end of the one before was on record, want most", early, n-1)
	}
}
