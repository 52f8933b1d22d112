package executions_test

import (
	"path/filepath"
	"sync"
	"testing"

	"e3/executions"
	"e3/internal/format/record"
	"e3/refstore"
	reffs "e3/refstore/fs"
	"e3/refstore/mem"
)

type generationStore interface {
	refstore.Store
	refstore.Locker
}

// overStores runs a test on the memory store and on the file store.
func overStores(t *testing.T, test func(t *testing.T, s generationStore)) {
	t.Run("mem", func(t *testing.T) { test(t, mem.New()) })
	t.Run("fs", func(t *testing.T) {
		s, err := reffs.Open(t.TempDir(), reffs.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		test(t, s)
	})
}

func wantGeneration(t *testing.T, g *executions.Generation, quiet bool) string {
	t.Helper()
	value, got, err := g.Read(t.Context())
	if err != nil || got != quiet {
		t.Fatalf("Read is %q, quiet %v, %v, want quiet %v", value, got, err, quiet)
	}
	peeked, got, err := g.Peek(t.Context())
	if err != nil || got != quiet || quiet && peeked != value {
		t.Fatalf("Peek is %q, quiet %v, %v, want %q, %v", peeked, got, err, value, quiet)
	}
	return value
}

func begin(t *testing.T, g *executions.Generation) (end func()) {
	t.Helper()
	end, err := g.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return end
}

func TestGeneration(t *testing.T) {
	overStores(t, func(t *testing.T, s generationStore) {
		g := executions.NewGeneration(s, s)
		first := wantGeneration(t, g, true)
		if again := wantGeneration(t, g, true); again != first {
			t.Errorf("it changed by being read: %q, %q", first, again)
		}
		end := begin(t, g)
		wantGeneration(t, g, false)
		second := begin(t, g) // batches do not wait for each other
		wantGeneration(t, g, false)
		end()
		end() // further calls do nothing
		wantGeneration(t, g, false)
		second()
		after := wantGeneration(t, g, true)
		if after == first {
			t.Errorf("two batches left it at %q", after)
		}
		begin(t, g)()
		if next := wantGeneration(t, g, true); next == after || next == first {
			t.Errorf("a batch took it from %q to %q, after %q", after, next, first)
		}
	})
}

// Concurrent batches are not starved by readers, and lose no change.
func TestGenerationConcurrently(t *testing.T) {
	overStores(t, func(t *testing.T, s generationStore) {
		g := executions.NewGeneration(s, s)
		before := wantGeneration(t, g, true)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					end, err := g.Begin(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if _, quiet, err := g.Read(t.Context()); quiet || err != nil {
						t.Errorf("quiet in the middle of a batch: %v, %v", quiet, err)
					}
					end()
				}
			})
		}
		wg.Wait()
		if after := wantGeneration(t, g, true); after == before {
			t.Error("it did not change")
		}
	})
}

// A first success leaves the generation alone, even after failures. A success beside another one changes it.
func TestGenerationAndDo(t *testing.T) {
	l := newLab(t)
	g := executions.NewGeneration(l.records, l.records)
	flag := filepath.Join(t.TempDir(), "flag")
	req := l.request(script("test -e " + flag + " || exit 1; date +%N > out"))
	for _, step := range []struct {
		name    string
		do      func() executions.Result
		changes bool
	}{
		{"failure", func() executions.Result { return l.do(t, req) }, false},
		{"failure again", func() executions.Result { return l.do(t, req) }, false},
		{"first success", func() executions.Result { touch(t, flag); return l.do(t, req) }, false},
		{"hit", func() executions.Result { return l.do(t, req) }, false},
		{"forced", func() executions.Result { r := *req; r.Force = true; return l.do(t, &r) }, true},
		{"output gone", func() executions.Result {
			for _, e := range l.all(t, keyOf(req)) {
				if e.State == record.Success {
					if err := l.objects.Delete(t.Context(), hashes(t, e.OutputHash)[0]); err != nil {
						t.Fatal(err)
					}
				}
			}
			return l.do(t, req)
		}, true},
		{"hit again", func() executions.Result { return l.do(t, req) }, false},
	} {
		before := wantGeneration(t, g, true)
		res := step.do()
		after := wantGeneration(t, g, true)
		if (before != after) != step.changes {
			t.Errorf("%s (%v): the generation went from %q to %q", step.name, res.State, before, after)
		}
	}
}
