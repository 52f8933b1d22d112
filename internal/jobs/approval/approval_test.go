package approval_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/jobs/approval"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/dynamo"
	"e3/refstore/fs"
	"e3/refstore/mem"
)

// stores are the kinds of stores that keep blocks.
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

// blocks are the blocks of a store. Their clock advances by a second with each reading.
func blocks(s refstore.Store) *approval.Blocks { return told(s, nil) }

func told(s refstore.Store, j approval.Journal) *approval.Blocks {
	return approval.New(s, approval.Options{Pace: 5 * time.Millisecond, Journal: j, Now: clock()})
}

// clock advances by a second with each reading.
func clock() func() time.Time {
	var mu sync.Mutex
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}
}

const run1, run2, run3 = "0197f3c1-0000-7000-8000-000000000001", "0197f3c1-0000-7000-8000-000000000002", "0197f3c1-0000-7000-8000-000000000003"

// content is the key of a content.
func content(name string) string { return strings.Repeat(name, 64) + "/" + strings.Repeat("0", 64) }

func review(run, task string) approval.Question {
	return approval.Question{Workspace: "prod", Run: run, Task: task, Key: content("a"), Review: true}
}

func ask(t *testing.T, b *approval.Blocks, q approval.Question) approval.Block {
	t.Helper()
	got, err := b.Ask(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func decide(t *testing.T, b *approval.Blocks, block approval.Block, approve bool) approval.Block {
	t.Helper()
	got, _, err := b.Resolve(t.Context(), &block, approval.Resolution{Approve: approve, By: "ann@desk", Note: "fine"})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// lines is a journal in memory.
type lines struct {
	mu   sync.Mutex
	list []string
	fail error
}

func (l *lines) Next(context.Context, string) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.list)) + 1, nil
}

func (l *lines) Tell(_ context.Context, b *approval.Block, from int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return l.fail
	}
	line := fmt.Sprintf("%s %s %s %s %s", b.Task, b.ID, b.Status, b.By, b.At.Format(time.RFC3339))
	if !slices.Contains(l.list[from-1:], line) {
		l.list = append(l.list, line)
	}
	return nil
}

// said returns the journal's lines about a block, as "approved by ann@desk, pending by …".
func (l *lines) said(b approval.Block) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var said []string
	for _, line := range l.list {
		if w := strings.Split(line, " "); w[len(w)-4] == b.ID {
			said = append(said, strings.TrimSuffix(w[len(w)-3]+" by "+w[len(w)-2], " by "))
		}
	}
	return strings.Join(said, ", ")
}

// A block outlives its run: the next run waits for it, or continues with the decision that was made meanwhile. A
// decision that a run has acted on is final.
func TestLife(t *testing.T) {
	onStores(t, func(t *testing.T, s refstore.Store) {
		j := &lines{}
		b, ctx := told(s, j), t.Context()
		const task = "train[a/b é]"
		block := ask(t, b, review(run1, task))
		if block.Type != approval.Review || block.Status != approval.Pending || block.Key != content("a") || block.Run != run1 {
			t.Errorf("it is %+v", block)
		}
		if again := ask(t, b, review(run1, task)); again != block {
			t.Errorf("asked again it is %+v, was %+v", again, block)
		}
		later := ask(t, b, review(run2, task))
		if later.ID != block.ID || later.Run != run2 || later.Status != approval.Pending {
			t.Errorf("the next run waits for %+v, want %+v", later, block)
		}
		if got, err := b.Find(ctx, "prod", task, block.Key); err != nil || got != later {
			t.Errorf("it reads as %+v, %v, and is %+v", got, err, later)
		}
		yes, no := approval.Resolution{Approve: true, By: "ann@desk", Note: "fine"}, approval.Resolution{By: "bob@desk"}
		got, changed, err := b.Resolve(ctx, &block, yes)
		if err != nil || !changed || got.Status != approval.Approved || got.By != "ann@desk" || got.Note != "fine" || !got.At.After(block.Created) {
			t.Errorf("approved it is %+v, %v, %v", got, changed, err)
		}
		again, changed, err := b.Resolve(ctx, &block, approval.Resolution{Approve: true, By: "carl@desk"})
		if err != nil || changed || again.By != "ann@desk" {
			t.Errorf("approved again it is %+v, %v, %v", again, changed, err)
		}
		var decided *approval.ResolvedError
		if _, _, err := b.Resolve(ctx, &block, no); !errors.As(err, &decided) || decided.Block.By != "ann@desk" {
			t.Fatalf("rejected after that: %v", err)
		}
		if want := "task train[a/b é] was approved already by ann@desk: fine"; decided.Error() != want {
			t.Errorf("it says %q, want %q", decided, want)
		}
		if got, changed, err := b.Withdraw(ctx, &block, approval.Resolution{Approve: true, By: "ann@desk", Note: "too soon"}); err != nil || !changed || got.Status != approval.Pending || got.ID != block.ID {
			t.Errorf("withdrawn it is %+v, %v, %v", got, changed, err)
		}
		if _, changed, err := b.Withdraw(ctx, &block, yes); err != nil || changed {
			t.Errorf("withdrawn again: %v, %v", changed, err)
		}
		decide(t, b, block, false)
		if got := ask(t, b, review(run2, task)); got.Status != approval.Rejected || got.Acted.IsZero() {
			t.Errorf("the run goes on with %+v, want the rejection", got)
		}
		if _, _, err := b.Resolve(ctx, &block, yes); !errors.As(err, &decided) {
			t.Errorf("approved after the rejection: %v", err)
		}
		if _, _, err := b.Withdraw(ctx, &block, yes); !errors.As(err, &decided) {
			t.Errorf("an approval was withdrawn that did not exist: %v", err)
		}
		if _, changed, err := b.Withdraw(ctx, &block, approval.Resolution{By: "ann@desk"}); err != nil || !changed {
			t.Errorf("the rejection is withdrawn: %v, %v", changed, err)
		}
		decide(t, b, block, true)
		acted := ask(t, b, review(run3, task))
		if acted.ID != block.ID || acted.Status != approval.Approved || acted.Acted.IsZero() || acted.Run != run3 {
			t.Errorf("the run goes on with %+v", acted)
		}
		if _, _, err := b.Withdraw(ctx, &block, yes); !errors.As(err, &decided) || !strings.Contains(err.Error(), "has acted on it") {
			t.Errorf("withdrawn after that: %v", err)
		}
		want := "approved by ann@desk, pending by ann@desk, rejected by ann@desk, pending by ann@desk, approved by ann@desk"
		if got := j.said(block); got != want {
			t.Errorf("the journal says %q, want %q", got, want)
		}
		if again := ask(t, b, review(run3, task)); again != acted {
			t.Errorf("asked again it is %+v, was %+v", again, acted)
		}
	})
}

// A command that suspends itself leads to one block, whichever run asks next; after its approval the next step may
// suspend itself as well.
func TestSuspended(t *testing.T) {
	b := blocks(mem.New())
	q := approval.Question{Workspace: "prod", Run: run1, Task: "train", Key: content("a")}
	if got := ask(t, b, q); got.ID != "" {
		t.Errorf("its first step is stopped by %+v", got)
	}
	first := q
	first.Suspended, first.Latest = "e1", "e1"
	block := ask(t, b, first)
	if block.Type != approval.Suspend || block.Execution != "e1" || block.Step != "" {
		t.Errorf("it is %+v", block)
	}
	first.Run = run2
	if got := ask(t, b, first); got.ID != block.ID {
		t.Errorf("the next run makes %+v", got)
	}
	decide(t, b, block, true)
	if got := ask(t, b, first); got.ID != block.ID || got.Status != approval.Approved {
		t.Errorf("approved, it goes on with %+v", got)
	}
	second := first
	second.Suspended, second.Latest = "e2", "e2"
	next := ask(t, b, second)
	if next.ID == block.ID || next.Step != block.Resume() || next.Execution != "e2" || next.Status != approval.Pending {
		t.Errorf("the next step is stopped by %+v", next)
	}
	if _, _, err := b.Resolve(t.Context(), &block, approval.Resolution{Approve: true}); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("the block before it is approved: %v", err)
	}

	// With --force a review is requested, and an earlier suspension does not count.
	q = review(run1, "release")
	q.Fresh, q.Latest = true, "e5"
	block = ask(t, b, q)
	decide(t, b, block, true)
	q.Fresh, q.Suspended = false, "e5"
	if got := ask(t, b, q); got.ID != block.ID || got.Status != approval.Approved || block.Type != approval.Review {
		t.Errorf("approved, it goes on with %+v", got)
	}
	q.Suspended, q.Latest = "e6", "e6"
	if got := ask(t, b, q); got.Type != approval.Suspend || got.Step != block.Resume() {
		t.Errorf("suspended, it is %+v", got)
	}
}

// A forced run asks again, and closes the earlier block.
func TestFresh(t *testing.T) {
	for _, before := range []approval.Status{approval.Pending, approval.Approved, approval.Rejected} {
		j := &lines{}
		b := told(mem.New(), j)
		block, want := ask(t, b, review(run1, "a")), "closed"
		if before != approval.Pending {
			decide(t, b, block, before == approval.Approved)
			want = string(before) + " by ann@desk, closed"
		}
		q := review(run2, "a")
		q.Fresh = true
		fresh := ask(t, b, q)
		if fresh.ID == block.ID || fresh.Status != approval.Pending {
			t.Errorf("after %s it is %+v", before, fresh)
		}
		if got := j.said(block); got != want {
			t.Errorf("the journal says %q, want %q", got, want)
		}
		if got := ask(t, b, review(run3, "a")); got.ID != fresh.ID {
			t.Errorf("the next run waits for %+v, want %+v", got, fresh)
		}
	}
}

// A block on other content is void once a run asks about the present content; decisions that no run has acted on are
// kept.
func TestOtherContent(t *testing.T) {
	j := &lines{}
	b := told(mem.New(), j)
	other := review(run1, "a")
	other.Key = content("b")
	void := ask(t, b, other)
	decide(t, b, ask(t, b, review(run1, "a/b")), true) // another task
	present := ask(t, b, review(run2, "a"))
	if got := j.said(void); got != "closed" {
		t.Errorf("the journal says %q of the void block", got)
	}
	if _, _, err := b.Resolve(t.Context(), &void, approval.Resolution{Approve: true}); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("the void block is approved: %v", err)
	}
	decide(t, b, present, true)
	other.Run = run3
	if got := ask(t, b, other); got.ID == void.ID || got.Status != approval.Pending {
		t.Errorf("back on the other content it is %+v", got)
	}
	if got := ask(t, b, review(run3, "a")); got.ID != present.ID || got.Status != approval.Approved {
		t.Errorf("the earlier approval is %+v", got)
	}
	stale := review(run1, "a")
	stale.Key = content("c")
	ask(t, b, stale) // of a run that does not know that it has lost the workspace
	if got, err := b.Find(t.Context(), "prod", "a", present.Key); err != nil || got.Status != approval.Approved {
		t.Errorf("a stale run has left %+v, %v", got, err)
	}
	for i := range 12 { // each is acted on
		q := review(fmt.Sprintf("0197f3c1-0000-7000-8000-0000000001%02d", i), "a")
		q.Key = fmt.Sprint("task/", i)
		decide(t, b, ask(t, b, q), true)
		ask(t, b, q)
	}
	n := 0
	for got, err := range b.List(t.Context(), "prod", "a") {
		if n++; err != nil || got.Task != "a" {
			t.Errorf("listed is %+v, %v", got, err)
		}
	}
	if n > 10 {
		t.Errorf("%d blocks of the task are left, want the latest", n)
	}
}

// A task that a run has settled waits for no decision, unless it waits for a later run.
func TestSettle(t *testing.T) {
	j := &lines{}
	b := told(mem.New(), j)
	gone, kept, later := ask(t, b, review(run1, "gone")), ask(t, b, review(run1, "kept")), ask(t, b, review(run3, "later"))
	if err := b.Settle(t.Context(), "prod", run2, func(task string) bool { return task != "kept" }); err != nil {
		t.Fatal(err)
	}
	if got := j.said(gone) + j.said(kept) + j.said(later); got != "closed" {
		t.Errorf("the journal says %q", got)
	}
	for _, block := range []approval.Block{gone, kept, later} {
		if _, err := b.Find(t.Context(), "prod", block.Task, block.Key); errors.Is(err, approval.ErrNotFound) != (block.Task == "gone") {
			t.Errorf("%s: %v", block.Task, err)
		}
	}
}

// A decision that cannot be recorded in the journal has no effect until it is.
func TestUntold(t *testing.T) {
	j := &lines{}
	b := told(mem.New(), j)
	block := ask(t, b, review(run1, "a"))
	j.fail = errors.New("no journal")
	if _, _, err := b.Resolve(t.Context(), &block, approval.Resolution{Approve: true, By: "ann@desk"}); !errors.Is(err, j.fail) {
		t.Errorf("decided: %v", err)
	}
	if got, err := b.Ask(t.Context(), review(run2, "a")); !errors.Is(err, j.fail) {
		t.Errorf("acted on: %+v, %v", got, err)
	}
	j.fail = nil
	if got := ask(t, b, review(run2, "a")); got.Status != approval.Approved || j.said(block) != "approved by ann@desk" {
		t.Errorf("it goes on with %+v, and the journal says %q", got, j.said(block))
	}
}

// Of concurrent decisions one counts, and the others learn what was decided.
func TestDecidedOnce(t *testing.T) {
	onStores(t, func(t *testing.T, s refstore.Store) {
		b := blocks(s)
		block := ask(t, b, review(run1, "train"))
		var mu sync.Mutex
		var work sync.WaitGroup
		heard, seen := 0, map[approval.Status]bool{}
		for i := range 16 {
			work.Go(func() {
				got, changed, err := b.Resolve(t.Context(), &block, approval.Resolution{Approve: i%2 == 0, By: fmt.Sprint(i)})
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

// Concurrent questions all lead to the same block.
func TestMadeOnce(t *testing.T) {
	onStores(t, func(t *testing.T, s refstore.Store) {
		b := blocks(s)
		ids := make([]string, 16)
		var work sync.WaitGroup
		for i := range ids {
			work.Go(func() { ids[i] = ask(t, b, review(run1, "train")).ID })
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

// A watcher gets each decision once, including earlier ones, and none of other runs.
func TestWatch(t *testing.T) {
	onStores(t, func(t *testing.T, s refstore.Store) {
		b := blocks(s)
		blocks := map[string]approval.Block{}
		for _, task := range []string{"a", "b", "c"} {
			blocks[task] = ask(t, b, review(run1, task))
		}
		elsewhere := ask(t, b, review(run2, "d"))
		decide(t, b, blocks["b"], true)
		decide(t, b, elsewhere, true)
		ctx, cancel := context.WithTimeout(t.Context(), suite.Stuck)
		defer cancel()
		var got []string
		for d, err := range b.Watch(ctx, "prod", run1) {
			if err != nil || d.Acted.IsZero() {
				t.Fatalf("%+v, %v", d, err)
			}
			got = append(got, d.Task+string(d.Type))
			switch len(got) {
			case 1:
				decide(t, b, blocks["a"], true)
			case 2:
				q := review(run1, "a")
				q.Suspended = "e1"
				decide(t, b, ask(t, b, q), true)
			case 3:
				decide(t, b, blocks["c"], false)
			}
			if len(got) == 4 {
				break
			}
		}
		if want := "breview areview asuspend creview"; strings.Join(got, " ") != want {
			t.Errorf("told of %q, want %q", got, want)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		for _, err := range b.Watch(ctx, "prod", run1) {
			t.Errorf("told after the end: %v", err)
		}
	})
}

// An unreadable block stops only the task that waits for it.
func TestMalformed(t *testing.T) {
	s := mem.New()
	b := blocks(s)
	a, bad := ask(t, b, review(run1, "a")), ask(t, b, review(run1, "b"))
	spoil(t, s, "b")
	found, malformed := 0, 0
	for _, err := range b.List(t.Context(), "prod", "") {
		if errors.Is(err, approval.ErrMalformed) {
			malformed++
		} else if err == nil {
			found++
		}
	}
	if found != 1 || malformed != 1 {
		t.Errorf("%d are listed and %d are malformed, want one of each", found, malformed)
	}
	decide(t, b, a, true)
	var told []string
	ctx, cancel := context.WithTimeout(t.Context(), suite.Stuck)
	defer cancel()
	for d, err := range b.Watch(ctx, "prod", run1) {
		told = append(told, fmt.Sprint(d.Workspace, " ", d.Task, " ", errors.Is(err, approval.ErrMalformed)))
		if len(told) == 2 {
			decide(t, b, ask(t, b, review(run1, "c")), false)
		}
		if len(told) == 3 {
			break
		}
	}
	if want := []string{"prod b true", "prod a false", "prod c false"}; !slices.Equal(told, want) {
		t.Errorf("the watcher got %q, want %q", told, want)
	}
	if _, _, err := b.Resolve(t.Context(), &bad, approval.Resolution{}); !errors.Is(err, approval.ErrMalformed) {
		t.Errorf("it is decided: %v", err)
	}
	if _, err := b.Ask(t.Context(), review(run2, "b")); !errors.Is(err, approval.ErrMalformed) {
		t.Errorf("it is asked: %v", err)
	}
	if err := b.Settle(t.Context(), "prod", run2, func(string) bool { return true }); err != nil {
		t.Error(err)
	}
	if err := b.Remove(t.Context(), "prod"); err != nil {
		t.Error(err)
	}
	for _, err := range b.List(t.Context(), "prod", "") {
		t.Errorf("something is left: %v", err)
	}
}

// spoil damages the block of a task.
func spoil(t *testing.T, s refstore.Store, task string) {
	t.Helper()
	for rec, err := range s.List(t.Context(), refstore.Query{Partition: approval.Partition("prod"), Prefix: task + "/"}) {
		if rec.Value = []byte(`{"id":7}`); err == nil {
			_, err = s.Put(t.Context(), rec)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// outages is a store whose lists sometimes fail.
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

// is changes whether the store is away, and returns the number of calls before.
func (o *outages) is(away bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.looks)
	o.away, o.looks = away, nil
	return n
}

// A watcher that waits for days meets outages of the store: it polls less and less often, and reports each outage once.
func TestWatchOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &outages{Store: mem.New()}
		var faults []error
		b := approval.New(s, approval.Options{Now: time.Now, Fault: func(err error) { faults = append(faults, err) }})
		block := ask(t, b, review(run1, "a"))
		s.is(false)
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
			t.Errorf("of two outages it got %q, and the faults were %q", got, faults)
		}
		decide(t, b, block, true)
		time.Sleep(time.Minute)
		cancel()
		<-done
		if want := []string{"a<nil>"}; !slices.Equal(got, want) {
			t.Errorf("after the outages it got %q, want %q", got, want)
		}
	})
}

// A block that is invalid or too long is not written.
func TestRefused(t *testing.T) {
	b := blocks(mem.New())
	for name, change := range map[string]func(*approval.Question){
		"no task":      func(q *approval.Question) { q.Task = "" },
		"no run":       func(q *approval.Question) { q.Run = "" },
		"a long key":   func(q *approval.Question) { q.Key = strings.Repeat("x", 201) },
		"no text":      func(q *approval.Question) { q.Latest = "\xff" },
		"a long task":  func(q *approval.Question) { q.Task = strings.Repeat("x", 2000) },
		"no workspace": func(q *approval.Question) { q.Workspace = "" },
	} {
		q := review(run1, "a")
		change(&q)
		if block, err := b.Ask(t.Context(), q); err == nil {
			t.Errorf("%s: it was made: %+v", name, block)
		}
	}
	block := ask(t, b, review(run1, "a"))
	got, _, err := b.Resolve(t.Context(), &block, approval.Resolution{By: strings.Repeat("é", 1000), Note: strings.Repeat("é", 9000) + "\xff"})
	if err != nil || len(got.By) > 300 || len(got.Note) > 4096 || !strings.HasSuffix(got.Note, "é…") {
		t.Errorf("resolved with %d and %d bytes, %v", len(got.By), len(got.Note), err)
	}
	if again, err := b.Find(t.Context(), "prod", "a", block.Key); err != nil || again != got {
		t.Errorf("it reads as %+v, %v", again, err)
	}
}
