package approval_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"e3/internal/jobs/approval"
	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/dynamo"
	"e3/refstore/fs"
	"e3/refstore/mem"
)

// stores are those in which blocks are kept.
var stores = map[string]func(t *testing.T) refstore.Store{
	"mem": func(*testing.T) refstore.Store { return mem.New() },
	"fs": func(t *testing.T) refstore.Store {
		s, err := fs.Open(t.TempDir(), fs.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	},
	"dynamo": openDynamo,
}

func openDynamo(t *testing.T) refstore.Store {
	o := dynamo.Options{
		Config: testserver.Config(), Endpoint: testserver.Minidyn(t), Table: testserver.Name(), Repository: "repository", Blobs: noBlobs{},
		Watch: 20 * time.Millisecond,
	}
	if _, err := dynamo.CreateTable(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s, err := dynamo.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// noBlobs is for stores whose records are small.
type noBlobs struct{}

func (noBlobs) PutBlob(context.Context, string, []byte) error { return errors.ErrUnsupported }

func (noBlobs) OpenBlob(context.Context, string, int64) (io.ReadCloser, error) {
	return nil, refstore.ErrNotFound
}

func (noBlobs) DeleteBlob(context.Context, string) error { return nil }

func (noBlobs) ListBlobs(context.Context, string) iter.Seq2[dynamo.Blob, error] {
	return func(func(dynamo.Blob, error) bool) {}
}

// onStores runs a test over each kind of store.
func onStores(t *testing.T, test func(t *testing.T, s refstore.Store)) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// blocks are those of a store, with a clock that moves on by a second with each look.
func blocks(s refstore.Store) *approval.Blocks {
	var mu sync.Mutex
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return approval.New(s, approval.Options{Pace: 5 * time.Millisecond, Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}})
}

const run1, run2 = "0197f3c1-0000-7000-8000-000000000001", "0197f3c1-0000-7000-8000-000000000002"

func create(t *testing.T, b *approval.Blocks, run, task, step string) approval.Block {
	t.Helper()
	made, err := b.Create(t.Context(), approval.Block{Workspace: "prod", Run: run, Task: task, Step: step, Type: approval.Review})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// A block is made once for a step, and decided once.
func TestLife(t *testing.T) {
	onStores(t, func(t *testing.T, s refstore.Store) {
		b, ctx := blocks(s), t.Context()
		made := create(t, b, run1, "train[a/b é]", "")
		if again := create(t, b, run1, "train[a/b é]", ""); again != made {
			t.Errorf("made again it is %+v, was %+v", again, made)
		}
		if got, err := b.Get(ctx, "prod", run1, "train[a/b é]"); err != nil || got != made {
			t.Errorf("it reads as %+v, %v, and is %+v", got, err, made)
		}
		if _, err := b.Create(ctx, approval.Block{Workspace: "prod", Run: run1, Task: made.Task, Step: "other", Type: approval.Suspend}); !errors.Is(err, refstore.ErrConflict) {
			t.Errorf("a second step is stopped beside it: %v", err)
		}
		yes, no := approval.Resolution{Approve: true, By: "ann@desk", Note: "fine"}, approval.Resolution{By: "bob@desk"}
		got, changed, err := b.Resolve(ctx, "prod", run1, made.Task, made.ID, yes)
		if err != nil || !changed || got.Status != approval.Approved || got.By != "ann@desk" || got.Note != "fine" || !got.At.After(made.Created) {
			t.Errorf("approved it is %+v, %v, %v", got, changed, err)
		}
		again, changed, err := b.Resolve(ctx, "prod", run1, made.Task, "", approval.Resolution{Approve: true, By: "carl@desk"})
		if err != nil || changed || again != got {
			t.Errorf("approved again it is %+v, %v, %v", again, changed, err)
		}
		var decided *approval.ResolvedError
		if _, _, err := b.Resolve(ctx, "prod", run1, made.Task, "", no); !errors.As(err, &decided) || decided.Block != got {
			t.Errorf("rejected after that: %v", err)
		}
		if want := "task train[a/b é] was approved already by ann@desk: fine"; decided.Error() != want {
			t.Errorf("it says %q, want %q", decided, want)
		}
		if again := create(t, b, run1, made.Task, ""); again != got {
			t.Errorf("made again it is %+v, was %+v", again, got)
		}
		next := create(t, b, run1, made.Task, made.Resume())
		if next.ID == made.ID || next.Status != approval.Pending {
			t.Errorf("the next step is stopped by %+v", next)
		}
		if _, _, err := b.Resolve(ctx, "prod", run1, made.Task, made.ID, yes); !errors.Is(err, approval.ErrNotFound) {
			t.Errorf("the block before it is approved: %v", err)
		}
		if err := b.Close(ctx, "prod", run1); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Resolve(ctx, "prod", run1, made.Task, "", yes); !errors.As(err, &decided) || decided.Block.Status != approval.Closed {
			t.Errorf("approved after the end of the run: %v", err)
		}
		if _, err := b.Get(ctx, "prod", run2, made.Task); !errors.Is(err, approval.ErrNotFound) {
			t.Errorf("a block of another run: %v", err)
		}
	})
}

// Of concurrent decisions one counts, and the others learn what was decided.
func TestDecidedOnce(t *testing.T) {
	onStores(t, func(t *testing.T, s refstore.Store) {
		b := blocks(s)
		create(t, b, run1, "train", "")
		var mu sync.Mutex
		var work sync.WaitGroup
		heard, seen := 0, map[approval.Status]bool{}
		for i := range 16 {
			work.Go(func() {
				got, changed, err := b.Resolve(t.Context(), "prod", run1, "train", "", approval.Resolution{Approve: i%2 == 0, By: fmt.Sprint(i)})
				var decided *approval.ResolvedError
				if errors.As(err, &decided) {
					got, err = decided.Block, nil
				}
				mu.Lock()
				defer mu.Unlock()
				if seen[got.Status] = true; err != nil {
					t.Error(err)
				}
				if changed {
					heard++
				}
			})
		}
		work.Wait()
		if heard != 1 || len(seen) != 1 {
			t.Errorf("%d decided, and it was %v", heard, seen)
		}
	})
}

// Concurrent creations of a block all get the same one.
func TestMadeOnce(t *testing.T) {
	onStores(t, func(t *testing.T, s refstore.Store) {
		b := blocks(s)
		ids := make([]string, 16)
		var work sync.WaitGroup
		for i := range ids {
			work.Go(func() { ids[i] = create(t, b, run1, "train", "").ID })
		}
		work.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Errorf("they are %q", ids)
				break
			}
		}
	})
}

// A watcher gets each decision once, also earlier ones, and nothing of other runs.
func TestWatch(t *testing.T) {
	onStores(t, func(t *testing.T, s refstore.Store) {
		b := blocks(s)
		for _, task := range []string{"a", "b", "c"} {
			create(t, b, run1, task, "")
		}
		create(t, b, run2, "a", "")
		resolve := func(run, task string) {
			if _, _, err := b.Resolve(t.Context(), "prod", run, task, "", approval.Resolution{Approve: true}); err != nil {
				t.Error(err)
			}
		}
		resolve(run1, "b")
		resolve(run2, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var got []string
		for d, err := range b.Watch(ctx, "prod", run1) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, d.Task+d.Step)
			switch len(got) {
			case 1:
				resolve(run1, "a")
			case 2:
				create(t, b, run1, "a", "2")
				resolve(run1, "a")
			case 3:
				if err := b.Close(ctx, "prod", run1); err != nil {
					t.Fatal(err)
				}
			}
			if len(got) == 4 {
				break
			}
		}
		if want := "b a a2 c"; strings.Join(got, " ") != want {
			t.Errorf("told of %q, want %q", got, want)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		for _, err := range b.Watch(ctx, "prod", run1) {
			t.Errorf("told after the end: %v", err)
		}
	})
}

// A block that cannot be read stops only the task that waits for it.
func TestMalformed(t *testing.T) {
	s := mem.New()
	b := blocks(s)
	create(t, b, run1, "a", "")
	if _, err := s.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: "BLOCK/prod", Sort: run1 + "/b"}, Value: []byte(`{"id":7}`)}); err != nil {
		t.Fatal(err)
	}
	good, bad := 0, 0
	for _, err := range b.List(t.Context(), "prod", "") {
		if errors.Is(err, approval.ErrMalformed) {
			bad++
		} else if err == nil {
			good++
		}
	}
	if good != 1 || bad != 1 {
		t.Errorf("%d are listed and %d are malformed, want one of each", good, bad)
	}
	if _, _, err := b.Resolve(t.Context(), "prod", run1, "a", "", approval.Resolution{Approve: true}); err != nil {
		t.Fatal(err)
	}
	var told []string
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for d, err := range b.Watch(ctx, "prod", run1) {
		told = append(told, fmt.Sprint(d.Run == run1, " ", d.Task, " ", errors.Is(err, approval.ErrMalformed)))
		if len(told) == 2 {
			create(t, b, run1, "c", "")
			if _, _, err := b.Resolve(t.Context(), "prod", run1, "c", "", approval.Resolution{}); err != nil {
				t.Fatal(err)
			}
		}
		if len(told) == 3 {
			break
		}
	}
	if want := []string{"true b true", "true a false", "true c false"}; !slices.Equal(told, want) {
		t.Errorf("the watcher got %q, want %q", told, want)
	}
	if _, _, err := b.Resolve(t.Context(), "prod", run1, "b", "", approval.Resolution{}); !errors.Is(err, approval.ErrMalformed) {
		t.Errorf("it is decided: %v", err)
	}
	if err := b.Close(t.Context(), "prod", run1); err != nil {
		t.Error(err)
	}
	if err := b.Remove(t.Context(), "prod", ""); err != nil {
		t.Error(err)
	}
	for _, err := range b.List(t.Context(), "prod", "") {
		t.Errorf("something is left: %v", err)
	}
}

// outages is a store of which no list can be had at times.
type outages struct {
	refstore.Store
	mu    sync.Mutex
	away  bool
	looks []time.Time
}

var errAway = errors.New("the store is away")

func (o *outages) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.looks = append(o.looks, time.Now()); o.away {
		return func(yield func(refstore.Record, error) bool) { yield(refstore.Record{}, errAway) }
	}
	return o.Store.List(ctx, q)
}

// is changes whether it is away, and returns how often it was asked before.
func (o *outages) is(away bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.looks)
	o.away, o.looks = away, nil
	return n
}

// A watcher that waits for days meets a store that is away at times: it polls less and less often, and reports that once each time.
func TestWatchOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &outages{Store: mem.New()}
		var faults []error
		b := approval.New(s, approval.Options{Now: time.Now, Fault: func(err error) { faults = append(faults, err) }})
		create(t, b, run1, "a", "")
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for d, err := range b.Watch(ctx, "prod", run1) {
				got = append(got, fmt.Sprint(d.Task, err))
			}
		}()
		for range 2 {
			time.Sleep(time.Minute)
			s.is(true)
			time.Sleep(time.Hour)
			if n := s.is(false); n < 60 || n > 150 {
				t.Errorf("in an hour of outage it has looked %d times", n)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(got) != 0 || len(faults) != 2 || !errors.Is(faults[0], errAway) {
			t.Errorf("of two outages it was told %q, and the faults were %q", got, faults)
		}
		if _, _, err := b.Resolve(t.Context(), "prod", run1, "a", "", approval.Resolution{Approve: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		cancel()
		<-done
		if want := []string{"a<nil>"}; !slices.Equal(got, want) {
			t.Errorf("after the outages it was told %q, want %q", got, want)
		}
	})
}

// What is too long or no block is not written.
func TestRefused(t *testing.T) {
	b := blocks(mem.New())
	for name, want := range map[string]approval.Block{
		"no task":      {Workspace: "prod", Run: run1, Type: approval.Review},
		"no type":      {Workspace: "prod", Run: run1, Task: "a"},
		"a long step":  {Workspace: "prod", Run: run1, Task: "a", Type: approval.Review, Step: strings.Repeat("x", 201)},
		"no text":      {Workspace: "prod", Run: run1, Task: "a", Type: approval.Review, Execution: "\xff"},
		"a long task":  {Workspace: "prod", Run: run1, Task: strings.Repeat("x", 2000), Type: approval.Review},
		"no workspace": {Run: run1, Task: "a", Type: approval.Review},
	} {
		if made, err := b.Create(t.Context(), want); err == nil {
			t.Errorf("%s: it was made: %+v", name, made)
		}
	}
	create(t, b, run1, "a", "")
	got, _, err := b.Resolve(t.Context(), "prod", run1, "a", "", approval.Resolution{By: strings.Repeat("é", 1000), Note: strings.Repeat("é", 9000) + "\xff"})
	if err != nil || len(got.By) > 300 || len(got.Note) > 4096 || !strings.HasSuffix(got.Note, "é…") {
		t.Errorf("resolved with %d and %d bytes, %v", len(got.By), len(got.Note), err)
	}
	if again, err := b.Get(t.Context(), "prod", run1, "a"); err != nil || again != got {
		t.Errorf("it reads as %+v, %v", again, err)
	}
}

// Whatever is asked in whatever order, blocks are what a model of them is, and a watcher is told of each decision.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := blocks(mem.New())
		model := map[string]approval.Block{} // by run and task
		ctx := context.Background()
		name := func() (run, task string) {
			return rapid.SampledFrom([]string{run1, run2}).Draw(t, "run"), rapid.SampledFrom([]string{"a", "a/b", "b"}).Draw(t, "task")
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				run, task := name()
				step := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "step")
				got, err := b.Create(ctx, approval.Block{Workspace: "prod", Run: run, Task: task, Step: step, Type: approval.Suspend, Execution: "e"})
				was, there := model[run+task]
				switch {
				case there && was.Step == step:
					if err != nil || got != was {
						t.Fatalf("made again: %+v, %v, was %+v", got, err, was)
					}
				case there && was.Status == approval.Pending:
					if !errors.Is(err, refstore.ErrConflict) {
						t.Fatalf("made beside another: %v", err)
					}
				case err != nil || got.Status != approval.Pending || got.ID == was.ID:
					t.Fatalf("made: %+v, %v", got, err)
				default:
					model[run+task] = got
				}
			},
			"resolve": func(t *rapid.T) {
				run, task := name()
				yes := rapid.Bool().Draw(t, "yes")
				want := map[bool]approval.Status{true: approval.Approved, false: approval.Rejected}[yes]
				got, changed, err := b.Resolve(ctx, "prod", run, task, "", approval.Resolution{Approve: yes, By: "ann"})
				was, there := model[run+task]
				switch {
				case !there:
					if !errors.Is(err, approval.ErrNotFound) {
						t.Fatalf("of nothing: %v", err)
					}
				case was.Status == approval.Pending:
					if err != nil || !changed || got.Status != want || got.ID != was.ID {
						t.Fatalf("resolved: %+v, %v, %v", got, changed, err)
					}
					model[run+task] = got
				case was.Status == want:
					if err != nil || changed || got != was {
						t.Fatalf("resolved again: %+v, %v, %v", got, changed, err)
					}
				case !errors.As(err, new(*approval.ResolvedError)):
					t.Fatalf("resolved otherwise: %v", err)
				}
			},
			"close": func(t *rapid.T) {
				run, _ := name()
				if err := b.Close(ctx, "prod", run); err != nil {
					t.Fatal(err)
				}
				for key, m := range model {
					if m.Run == run && m.Status == approval.Pending {
						m.Status = approval.Closed
						m.At = mustGet(t, b, m).At
						model[key] = m
					}
				}
			},
			"remove": func(t *rapid.T) {
				before, _ := name()
				if rapid.IntRange(0, 3).Draw(t, "all") == 0 {
					before = ""
				}
				if err := b.Remove(ctx, "prod", before); err != nil {
					t.Fatal(err)
				}
				maps.DeleteFunc(model, func(_ string, m approval.Block) bool { return before == "" || m.Run < before })
			},
			"": func(t *rapid.T) {
				n := 0
				for got, err := range b.List(ctx, "prod", "") {
					if n++; err != nil || got != model[got.Run+got.Task] {
						t.Fatalf("listed is %+v, %v, want %+v", got, err, model[got.Run+got.Task])
					}
				}
				if n != len(model) {
					t.Fatalf("%d are listed, want %d", n, len(model))
				}
			},
		})
	})
}

func mustGet(t *rapid.T, b *approval.Blocks, want approval.Block) approval.Block {
	got, err := b.Get(context.Background(), want.Workspace, want.Run, want.Task)
	if err != nil || got.Status != approval.Closed || got.At.IsZero() {
		t.Fatalf("closed it is %+v, %v", got, err)
	}
	return got
}
