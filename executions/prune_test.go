package executions_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/mem"
)

// ended puts executions on record, oldest first, and returns their ids.
func (l *library) ended(t *testing.T, states ...record.State) []string {
	t.Helper()
	ids := make([]string, len(states))
	for i, state := range states {
		ids[i] = newID(t)
		ended(state)(t, l, ids[i])
	}
	return ids
}

func (l *library) victims(t *testing.T, ids ...string) []executions.Victim {
	t.Helper()
	var list []executions.Victim
	for _, id := range ids {
		e, err := l.Get(t.Context(), importKey, id)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e.Victim())
	}
	return list
}

// left returns the ids that are on record, earliest first.
func (l *library) left(t *testing.T) []string {
	t.Helper()
	var ids []string
	for e, err := range l.Statuses(t.Context(), importKey) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ExecutionID)
	}
	return ids
}

func (l *library) tombstones(t *testing.T) record.Tombstones {
	t.Helper()
	var list record.Tombstones
	for p, err := range l.Tombstones(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if p.Key.Task != importKey.Task || p.Key.Inputs.String() != p.InputsHash {
			t.Errorf("a tombstone of %v says inputs %s", p.Key, p.InputsHash)
		}
		list = append(list, p.Tombstone)
	}
	return list
}

func prunedIDs(list record.Tombstones) []string {
	var ids []string
	for _, t := range list {
		ids = append(ids, t.ExecutionID)
	}
	return ids
}

func TestPrune(t *testing.T) {
	overLibraries(t, func(t *testing.T, l *library) {
		ids := l.ended(t, record.Failed, record.Success, record.Success, record.Failed, record.Success, record.Success)
		victims := l.victims(t, ids[:5]...)
		// These stay: pinned, changed since, running.
		if _, err := l.Pin(t.Context(), importKey, ids[1], "ann", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Reject(t.Context(), importKey, ids[2], rejection(true)); err != nil {
			t.Fatal(err)
		}
		lock, err := l.records.TryClaim(t.Context(), claimOf(ids[3]), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Unlock()
		g := executions.NewGeneration(l.records, l.records)
		before := wantGeneration(t, g, true)
		n, err := l.Prune(t.Context(), importKey.Task, victims, "ann@lab", "older than 30d")
		if err != nil || n != 2 {
			t.Errorf("pruned %d, %v, want 2", n, err)
		}
		if wantGeneration(t, g, true) == before {
			t.Error("the generation did not change")
		}
		if got, want := l.left(t), []string{ids[1], ids[2], ids[3], ids[5]}; !slices.Equal(got, want) {
			t.Errorf("left are %v, want %v", got, want)
		}
		list := l.tombstones(t)
		if got, want := prunedIDs(list), []string{ids[0], ids[4]}; !slices.Equal(got, want) {
			t.Fatalf("tombstones are of %v, want %v", got, want)
		}
		want := record.Tombstone{InputsHash: importKey.Inputs.String(), ExecutionID: ids[4], OutputHash: objectstore.Sum([]byte("here")).String(),
			PrunedAt: l.clock, By: "ann@lab", Reason: "older than 30d"}
		if list[1] != want || list[0].OutputHash != "" {
			t.Errorf("tombstones are %+v, want %+v", list, want)
		}
		// Pruning again keeps the tombstones.
		if n, err := l.Prune(t.Context(), importKey.Task, victims[:1], "ann@lab", "again"); err != nil || n != 0 {
			t.Errorf("again: %d, %v", n, err)
		}
		if got := prunedIDs(l.tombstones(t)); len(got) != 2 {
			t.Errorf("then tombstones are of %v", got)
		}
		got, err := l.Tombstone(t.Context(), importKey)
		if err != nil || got == nil || *got != want {
			t.Errorf("Tombstone is %+v, %v, want %+v", got, err, want)
		}
		if got, err := l.Tombstone(t.Context(), executions.Key{Task: importKey.Task}); got != nil || err != nil {
			t.Errorf("of another key: %+v, %v", got, err)
		}
		var gone *executions.PrunedError
		if _, err := l.FindTask(t.Context(), importKey.Task, strings.ToUpper(ids[4])); !errors.As(err, &gone) || !errors.Is(err, executions.ErrNotFound) || gone.ExecutionID != ids[4] {
			t.Errorf("FindTask: %v, want that it was pruned", err)
		}
		if _, err := l.Locate(t.Context(), ids[4]); !errors.As(err, &gone) {
			t.Errorf("Locate: %v, want that it was pruned", err)
		}
	})
}

// The error says when an execution was pruned, by which user and by which rule.
func TestPrunedWords(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e := &executions.PrunedError{Tombstone: record.Tombstone{ExecutionID: "id", PrunedAt: at, By: "ann@lab", Reason: "older than 30d"}}
	for past, want := range map[time.Duration]string{
		-time.Minute: "just now", 59 * time.Second: "just now", time.Minute: "1 minute ago", 119 * time.Minute: "1 hour ago",
		47 * time.Hour: "1 day ago", 72 * time.Hour: "3 days ago",
	} {
		e.Now = at.Add(past)
		if got, want := e.Error(), "execution id was pruned "+want+" by ann@lab (older than 30d)"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	e.Now, e.Reason = time.Time{}, ""
	if got, want := e.Error(), "execution id was pruned on 2026-01-02 by ann@lab"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The tombstone of each key's latest success is kept for a year, others for a month.
func TestTombstonesAge(t *testing.T) {
	l := newLibrary(mem.New())
	const day = 24 * time.Hour
	prune := func(states ...record.State) []string {
		ids := l.ended(t, states...)
		if n, err := l.Prune(t.Context(), importKey.Task, l.victims(t, ids...), "ann", ""); err != nil || n != len(ids) {
			t.Fatalf("pruned %d, %v", n, err)
		}
		return ids
	}
	first := prune(record.Success, record.Success, record.Failed)
	l.clock = l.clock.Add(29 * day)
	second := prune(record.Failed)
	if got, want := prunedIDs(l.tombstones(t)), slices.Concat(first, second); !slices.Equal(got, want) {
		t.Errorf("after 29 days: %v, want %v", got, want)
	}
	l.clock = l.clock.Add(2 * day)
	third := prune(record.Failed)
	if got, want := prunedIDs(l.tombstones(t)), slices.Concat(first[1:2], second, third); !slices.Equal(got, want) {
		t.Errorf("after 31 days: %v, want %v", got, want)
	}
	if got, err := l.Tombstone(t.Context(), importKey); err != nil || got.ExecutionID != first[1] {
		t.Errorf("the latest success is %+v, %v, want %s", got, err, first[1])
	}
	l.clock = l.clock.Add(335 * day)
	fourth := prune(record.Failed)
	if got := prunedIDs(l.tombstones(t)); !slices.Equal(got, fourth) {
		t.Errorf("after a year: %v, want %v", got, fourth)
	}
	if got, err := l.Tombstone(t.Context(), importKey); err != nil || got.ExecutionID != fourth[0] {
		t.Errorf("without a success: %+v, %v, want %s", got, err, fourth[0])
	}
}

// However long a call takes, a tombstone's date is neither before its execution was removed nor after the call.
func TestPruneDates(t *testing.T) {
	store := &watched{Store: mem.New()}
	l := newLibrary(store)
	ids := l.ended(t, slices.Repeat([]record.State{record.Success}, 10)...)
	gone := map[string]time.Time{}
	store.deleting = func(stone record.Tombstone) {
		if stone.PrunedAt.Before(l.clock) {
			t.Errorf("at %v the tombstone says %v", l.clock, stone.PrunedAt)
		}
		l.clock = l.clock.Add(10 * time.Minute)
		gone[stone.ExecutionID] = l.clock
	}
	if n, err := l.Prune(t.Context(), importKey.Task, l.victims(t, ids...), "ann", ""); err != nil || n != len(ids) {
		t.Fatalf("pruned %d, %v", n, err)
	}
	for _, s := range l.tombstones(t) {
		if s.PrunedAt.Before(gone[s.ExecutionID]) || s.PrunedAt.After(l.clock) {
			t.Errorf("%s went at %v, its tombstone says %v; the call ended at %v", s.ExecutionID, gone[s.ExecutionID], s.PrunedAt, l.clock)
		}
	}
	if len(gone) != len(ids) {
		t.Errorf("%d went with a tombstone, want %d", len(gone), len(ids))
	}
}

// A prune that fails midway has dated the tombstones of removed executions, and can be repeated.
func TestPruneFails(t *testing.T) {
	store := &flaky{Store: mem.New(), left: 1 << 30}
	l := newLibrary(store)
	ids := l.ended(t, record.Success, record.Failed, record.Success)
	victims := l.victims(t, ids...)
	store.left = 6 // generation, tombstones, one execution with two logs
	if n, err := l.Prune(t.Context(), importKey.Task, victims, "ann", ""); n != 1 || !errors.Is(err, errDied) {
		t.Fatalf("pruned %d, %v, want 1 and the fault", n, err)
	}
	store.left = 1 << 30
	if n, err := l.Prune(t.Context(), importKey.Task, victims, "ann", ""); n != 2 || err != nil {
		t.Errorf("again: pruned %d, %v, want the other 2", n, err)
	}
	list := l.tombstones(t)
	if got := prunedIDs(list); !slices.Equal(got, ids) || len(l.left(t)) != 0 {
		t.Errorf("tombstones are of %v, want %v; left are %v", got, ids, l.left(t))
	}
	for _, s := range list {
		if s.PrunedAt != l.clock {
			t.Errorf("a tombstone says %v, want %v", s.PrunedAt, l.clock)
		}
	}
}

// Remove removes a pinned execution, but not one that has changed.
func TestRemove(t *testing.T) {
	overLibraries(t, func(t *testing.T, l *library) {
		ids := l.ended(t, record.Success, record.Success)
		victims := l.victims(t, ids...)
		for _, id := range ids {
			if _, err := l.Pin(t.Context(), importKey, id, "ann", ""); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Reject(t.Context(), importKey, ids[1], rejection(true)); err != nil {
			t.Fatal(err)
		}
		for i, want := range []bool{true, false} {
			if gone, err := l.Remove(t.Context(), importKey.Task, victims[i], "ann", "odd"); gone != want || err != nil {
				t.Errorf("execution %d: got %v, %v, want %v", i, gone, err, want)
			}
		}
		if got := l.left(t); !slices.Equal(got, ids[1:]) {
			t.Errorf("left are %v, want %v", got, ids[1:])
		}
		if got := prunedIDs(l.tombstones(t)); !slices.Equal(got, ids[:1]) {
			t.Errorf("tombstones are of %v, want %v", got, ids[:1])
		}
	})
}

// Two concurrent prunes of the same executions keep the tombstones of what the other one removes.
func TestPruneTogether(t *testing.T) {
	store := mem.New()
	l := newLibrary(store)
	ids := l.ended(t, record.Success)
	victims := l.victims(t, ids...)
	now := func() time.Time { return l.clock }

	waiting, done := make(chan struct{}), make(chan struct{})
	other := &claimed{Store: store, refused: sync.OnceFunc(func() { close(waiting) })}
	refusal := errors.New("the other one has not claimed the execution")
	deleting := &watched{Store: store, deleting: func(record.Tombstone) {
		_, refusal = store.TryClaim(t.Context(), claimOf(ids[0]), nil)
	}}
	theirs := executions.NewCurator(executions.NewStore(deleting, &memory{}), other, now)
	mine := &claimed{Store: store, claiming: func(claim [32]byte) error {
		if claim != claimOf(ids[0]) {
			return nil
		}
		go func() {
			defer close(done)
			if _, err := theirs.Prune(context.Background(), importKey.Task, victims, "bob", ""); err != nil {
				t.Error(err)
			}
		}()
		select {
		case <-done: // the other one has pruned it meanwhile
			return refusal
		case <-waiting:
			return nil
		}
	}}
	ours := executions.NewCurator(executions.NewStore(store, &memory{}), mine, now)
	if _, err := ours.Prune(t.Context(), importKey.Task, victims, "ann", ""); err != nil {
		t.Error(err)
	}
	<-done
	if got := prunedIDs(l.tombstones(t)); !slices.Equal(got, ids) || len(l.left(t)) != 0 {
		t.Errorf("tombstones are of %v, and left are %v; want a tombstone of %v", got, l.left(t), ids)
	}
}

// claimed watches claims: claiming may answer in their place; refused is called for claims held by others.
type claimed struct {
	*mem.Store
	claiming func([32]byte) error
	refused  func()
}

func (c *claimed) TryClaim(ctx context.Context, claim [32]byte, holder []byte) (refstore.Lock, error) {
	if c.claiming != nil {
		if err := c.claiming(claim); err != nil {
			return nil, err
		}
	}
	lock, err := c.Store.TryClaim(ctx, claim, holder)
	if errors.Is(err, refstore.ErrClaimed) && c.refused != nil {
		c.refused()
	}
	return lock, err
}

// watched calls a function before an execution is deleted.
type watched struct {
	*mem.Store
	deleting func(record.Tombstone)
}

func (w *watched) Delete(ctx context.Context, k refstore.Key, v refstore.Version) error {
	if strings.HasPrefix(k.Partition, "EXECUTION/") {
		for p, err := range executions.NewStore(w.Store, &memory{}).Tombstones(ctx) {
			if err == nil && p.ExecutionID == k.Sort {
				w.deleting(p.Tombstone)
			}
		}
	}
	return w.Store.Delete(ctx, k, v)
}

// Unreadable tombstones are reported when all are read, hinder nothing, and are replaced by the next prune.
func TestTombstonesTorn(t *testing.T) {
	l := newLibrary(mem.New())
	key := refstore.Key{Partition: "TOMBSTONE", Sort: importKey.Task.String()}
	for _, value := range [][]byte{[]byte("torn"), record.Tombstones{{InputsHash: "../x", ExecutionID: "y"}}.Encode()} {
		rec, _ := l.records.Get(t.Context(), key)
		if _, err := l.records.Put(t.Context(), refstore.Record{Key: key, Value: value, Version: rec.Version}); err != nil {
			t.Fatal(err)
		}
		bad := 0
		for p, err := range l.Tombstones(t.Context()) {
			if !errors.Is(err, executions.ErrMalformed) || p.Key.Task != importKey.Task {
				t.Errorf("got %+v, %v", p, err)
			}
			bad++
		}
		if got, err := l.Tombstone(t.Context(), importKey); got != nil || err != nil || bad != 1 {
			t.Errorf("got %+v, %v after %d errors", got, err, bad)
		}
	}
	ids := l.ended(t, record.Success)
	if n, err := l.Prune(t.Context(), importKey.Task, l.victims(t, ids...), "ann", ""); n != 1 || err != nil {
		t.Errorf("pruned %d, %v", n, err)
	}
	if got, err := l.Tombstone(t.Context(), importKey); err != nil || got == nil || got.ExecutionID != ids[0] {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestPins(t *testing.T) {
	overLibraries(t, func(t *testing.T, l *library) {
		pins := func() (list []executions.Pin) {
			for p, err := range l.Pins(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, p)
			}
			return list
		}
		ids := l.ended(t, record.Success, record.Failed)
		for _, step := range []struct {
			note, want string
			changed    bool
		}{{"", "", true}, {"", "", false}, {"keep", "keep", true}, {"", "keep", false}, {"keep", "keep", false}, {"for ever", "for ever", true}} {
			if changed, err := l.Pin(t.Context(), importKey, ids[0], "ann", step.note); err != nil || changed != step.changed {
				t.Errorf("pin with %q: %v, %v, want %v", step.note, changed, err, step.changed)
			}
			if list := pins(); len(list) != 1 || list[0].ExecutionID != ids[0] || list[0].Key != importKey || list[0].By != "ann" || list[0].Note != step.want || list[0].At != l.clock {
				t.Errorf("after %q the pins are %+v", step.note, list)
			}
		}
		if changed, err := l.Pin(t.Context(), importKey, newID(t), "ann", ""); changed || !errors.Is(err, executions.ErrNotFound) {
			t.Errorf("of none: %v, %v", changed, err)
		}
		// A running execution can be pinned too.
		live := newID(t)
		localStates[len(localStates)-1].make(t, l, live)
		if changed, err := l.Pin(t.Context(), importKey, live, "ann", ""); !changed || err != nil {
			t.Errorf("of one that runs: %v, %v", changed, err)
		}
		for _, want := range []bool{true, false} {
			if changed, err := l.Unpin(t.Context(), ids[0]); err != nil || changed != want {
				t.Errorf("unpin: %v, %v, want %v", changed, err, want)
			}
		}
		if list := pins(); len(list) != 1 || list[0].ExecutionID != live {
			t.Errorf("then the pins are %+v", list)
		}
		// An unreadable pin still protects, and can be replaced.
		if _, err := l.records.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: "PIN", Sort: ids[1]}, Value: []byte("torn")}); err != nil {
			t.Fatal(err)
		}
		for p, err := range l.Pins(t.Context()) {
			if torn := p.ExecutionID == ids[1]; torn != errors.Is(err, executions.ErrMalformed) {
				t.Errorf("pin %+v, %v", p, err)
			}
		}
		if n, err := l.Prune(t.Context(), importKey.Task, l.victims(t, ids[1]), "ann", ""); n != 0 || err != nil {
			t.Errorf("pruned %d, %v", n, err)
		}
		if changed, err := l.Pin(t.Context(), importKey, ids[1], "ann", ""); !changed || err != nil {
			t.Errorf("again: %v, %v", changed, err)
		}
		if list := pins(); len(list) != 2 {
			t.Errorf("in the end the pins are %+v", list)
		}
	})
}
