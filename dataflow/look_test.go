package dataflow_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/format/record"
)

// gauge counts lookups that take a while.
type gauge struct {
	mu             sync.Mutex
	now, most, sum int
	takes          func(executions.Key) time.Duration
}

func (g *gauge) look(key executions.Key) {
	g.mu.Lock()
	g.now++
	g.sum++
	g.most = max(g.most, g.now)
	g.mu.Unlock()
	time.Sleep(g.takes(key))
	g.mu.Lock()
	g.now--
	g.mu.Unlock()
}

// Lookups overlap up to their bound, whatever commands may run at a time, and each task is looked up once.
func TestLookupsOverlap(t *testing.T) {
	var lines []string
	for i := range 400 {
		lines = append(lines, fmt.Sprintf("a%d:", i), fmt.Sprintf("b%d: a%d", i, i))
	}
	g := graphOf(t, flow(lines...))
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint("known ", known), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				if known {
					run(t.Context(), t, g, w, nil)
				}
				look := &gauge{takes: func(executions.Key) time.Duration { return 10 * time.Millisecond }}
				w.look, w.calls = look.look, nil
				began := time.Now()
				out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Lookups = 40 })
				// Two levels of 400 lookups of 10 ms, 40 at a time.
				if took := time.Since(began); took > 210*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				if look.most != 40 || look.sum != 800 {
					t.Errorf("%d lookups, %d at a time, want 800, 40", look.sum, look.most)
				}
				if want := map[bool]int{false: 800}[known]; len(w.calls) != want || out.Summary.Completed != 800 {
					t.Errorf("the executor was asked %d times, want %d; %+v", len(w.calls), want, out.Summary)
				}
			})
		})
	}
}

// Tasks that have to run start in the order of ready tasks, also where a better one's lookup takes longer.
func TestLookupsKeepOrder(t *testing.T) {
	var lines []string
	for i := range 30 {
		lines = append(lines, fmt.Sprint("t", i))
	}
	pkg := flow(lines...)
	for i := range lines {
		policy(pkg, lines[i], record.Policy{Priority: int64(-i)})
	}
	g := graphOf(t, pkg)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		look := &gauge{takes: func(key executions.Key) time.Duration { return time.Duration(key.Task[0]%16) * time.Millisecond }}
		w.look = look.look
		w.behave = func(string, int64) behaviour { return behaviour{takes: time.Second} }
		run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Lookups, o.Concurrency = 64, 1 })
		var order []string
		for _, s := range w.ran {
			order = append(order, s.task)
		}
		if !slices.Equal(order, lines) {
			t.Errorf("they ran as %v", order)
		}
	})
}
