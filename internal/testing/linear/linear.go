// Package linear runs random schedules of concurrent operations and checks that each history could have been that of
// operations done one after the other.
//
// $E3_TEST_SCHEDULES is how many schedules a test runs, $E3_TEST_SEED the first one's seed; each has a subtest named by its seed. To
// run one again: E3_TEST_SEED=17 E3_TEST_SCHEDULES=1. Seeds give the same faults to the same requests, but not the
// order in which processes run.
package linear

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// schedules is the default number of runs.
const schedules = 50

// beside is how many run at a time: they mostly wait.
const beside = 4

// checkLimit is how long the check of one history may take. That takes longer the more operations may have happened late, or never: of few
// histories there are too many orders to try all.
const checkLimit = 15 * time.Second

// unchecked counts the histories that were given up.
var unchecked atomic.Int64

// Schedules runs one in every so many of the random schedules, a few at a time, each with its own source of chance and
// history. One that takes longer than limit fails and says what it waits for, also where its operations ignore their
// context. That one history in five could not be checked is a failure, too.
func Schedules(t *testing.T, every uint64, limit time.Duration, run func(t *testing.T, ctx context.Context, random *rand.Rand, h *History)) {
	t.Helper()
	count, first := setting(t, "E3_TEST_SCHEDULES", schedules), setting(t, "E3_TEST_SEED", 1)
	if testing.Short() {
		count = min(count, 5)
	}
	before := unchecked.Load()
	seeds := make(chan uint64)
	var all sync.WaitGroup
	for range beside {
		all.Go(func() {
			for seed := range seeds {
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { schedule(t, seed, limit, run) })
			}
		})
	}
	for seed := first; seed < first+count; seed += every {
		seeds <- seed
	}
	close(seeds)
	all.Wait()
	if n := unchecked.Load() - before; n > max(1, int64(count/every)/5) {
		t.Errorf("%d histories of %d schedules could not be checked within %v", n, count/every, checkLimit)
	}
}

func schedule(t *testing.T, seed uint64, limit time.Duration, run func(t *testing.T, ctx context.Context, random *rand.Rand, h *History)) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	h := NewHistory()
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(t, ctx, rand.New(rand.NewPCG(seed, 0)), h)
	}()
	select {
	case <-done:
		if ctx.Err() != nil {
			t.Errorf("not done within %v", limit)
		}
	case <-time.After(limit + limit/2):
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		t.Fatalf("hangs: not done within %v, and ignores its context. It waits for:\n%s\n%s", limit, h.waiting(), stacks)
	}
}

func setting(t *testing.T, name string, value uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return value
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("%s=%q: want a number", name, text)
	}
	return n
}

// A History is what clients did, and when. It is safe for concurrent use. Create it with [NewHistory].
type History struct {
	begun time.Time

	mu      sync.Mutex
	done    []porcupine.Operation
	pending map[int]porcupine.Operation
}

// NewHistory begins a history.
func NewHistory() *History {
	return &History{begun: time.Now(), pending: map[int]porcupine.Operation{}}
}

// Do records an operation of a client, which does one at a time. open says that it may take effect at any time from its
// beginning on, or never.
func (h *History) Do(client int, input any, operation func() (output any, open bool)) {
	op := porcupine.Operation{ClientId: client, Input: input, Call: int64(time.Since(h.begun))}
	h.mu.Lock()
	h.pending[client] = op
	h.mu.Unlock()
	output, open := operation()
	op.Output, op.Return = output, int64(time.Since(h.begun))
	if open {
		op.Return = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pending, client)
	h.done = append(h.done, op)
}

func (h *History) waiting() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for client, op := range h.pending {
		lines = append(lines, fmt.Sprintf("client %d since %v: %+v", client, time.Duration(op.Call), op.Input))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Operations returns what was done, in the order in which it began.
func (h *History) Operations() []porcupine.Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	ops := slices.Clone(h.done)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	return ops
}

// Check reports operations that no order explains, and gives up what has too many orders (see Schedules). part says which of the
// objects, that have nothing to do with each other, one is about.
func Check(t *testing.T, ops []porcupine.Operation, model porcupine.Model, part func(input any) string) {
	t.Helper()
	parts := map[string][]porcupine.Operation{}
	for _, op := range ops {
		name := part(op.Input)
		parts[name] = append(parts[name], op)
	}
	for name, ops := range parts {
		switch porcupine.CheckOperationsTimeout(model, ops, checkLimit) {
		case porcupine.Illegal:
			t.Errorf("%s: the history is not linearizable:\n%s", name, describe(ops))
		case porcupine.Unknown:
			unchecked.Add(1)
			t.Logf("%s: not checked within %v: %d operations", name, checkLimit, len(ops))
		}
	}
}

func describe(ops []porcupine.Operation) string {
	var text strings.Builder
	for _, op := range ops {
		until := "open"
		if op.Return != math.MaxInt64 {
			until = time.Duration(op.Return).Round(time.Microsecond).String()
		}
		fmt.Fprintf(&text, "%12v to %-12s client %d: %+v: %+v\n", time.Duration(op.Call).Round(time.Microsecond), until, op.ClientId, op.Input, op.Output)
	}
	return text.String()
}
