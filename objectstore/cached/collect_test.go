package cached_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/objectstore"
	"e3/objectstore/cached"
)

// shardNames returns n names of one shard, in order. Collections ignore content.
func shardNames(n int) []objectstore.Hash {
	hs := make([]objectstore.Hash, n)
	for i := range hs {
		hs[i] = objectstore.Hash{0x42, byte(i >> 8), byte(i)}
	}
	return hs
}

func names(s *far) []objectstore.Hash {
	s.mu.Lock()
	defer s.mu.Unlock()
	var hs []objectstore.Hash
	for h := range s.objects {
		hs = append(hs, h)
	}
	slices.SortFunc(hs, objectstore.Hash.Compare)
	return hs
}

// sweep sweeps the shard of shardNames and returns the removed names.
func sweep(ctx context.Context, s *fixture, cutoff time.Time, keep func(objectstore.Hash) bool) ([]objectstore.Hash, error) {
	var gone []objectstore.Hash
	err := s.SweepShard(ctx, 0x42, cutoff, keep, func(e objectstore.Entry) { gone = append(gone, e.Hash) })
	return gone, err
}

func none(objectstore.Hash) bool { return false }

func TestSweepSpares(t *testing.T) {
	ctx := t.Context()
	far, p := newFar(), newPact()
	s := open(t, far, p, func(o *cached.Options) { o.Grace = time.Minute })
	cutoff := time.Now().Add(-time.Hour)
	hs := shardNames(6)
	for i, ago := range []time.Duration{2 * time.Hour, 2 * time.Hour, 2 * time.Hour, time.Hour + 59*time.Second, time.Hour, 0} {
		far.now = func() time.Time { return time.Now().Add(-ago) }
		far.set(hs[i], nil)
	}
	other := p.begin()
	if err := other.Rely(ctx, hs[0]); err != nil {
		t.Fatal(err)
	}
	far.takeCalls()
	asked := 0
	gone, err := sweep(ctx, s, cutoff, func(h objectstore.Hash) bool {
		asked++
		far.takeCalls()
		if n, err := s.Stat(ctx, h); n != 0 || err != nil {
			t.Errorf("stat while keep is called: got %d, %v", n, err)
		}
		expectCalls(t, far)
		return h == hs[1]
	})
	if err != nil || !slices.Equal(gone, hs[2:3]) {
		t.Errorf("got %v removed, %v, want only the old object that neither keep nor a session wants", gone, err)
	}
	if asked != len(hs) {
		t.Errorf("was asked to keep %d objects, want %d", asked, len(hs))
	}
	if left := names(far); !slices.Equal(left, slices.Delete(slices.Clone(hs), 2, 3)) {
		t.Errorf("left: %v", left)
	}
	other.end()
	if gone, err = sweep(ctx, s, cutoff, none); err != nil || !slices.Equal(gone, hs[:2]) {
		t.Errorf("when no session relies on it: got %v, %v", gone, err)
	}
	if gone, err = sweep(ctx, s, time.Time{}, none); err != nil || len(gone) > 0 {
		t.Errorf("without a cut-off: got %v, %v", gone, err)
	}
	if _, err := s.Stat(ctx, hs[0]); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("stat after the sweep: got %v, want ErrNotFound", err)
	}
}

// A sweep works in batches.
func TestSweepMany(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	far.now = func() time.Time { return time.Now().Add(-time.Hour) }
	p := newPact()
	s := open(t, far, p, nil)
	for _, h := range shardNames(12_345) {
		far.set(h, nil)
	}
	most, condemned := 0, 0
	s.own.asked = func(op string, hs ...objectstore.Hash) {
		if op == "condemn" {
			condemned = max(condemned, len(hs))
		}
	}
	far.before = func(_ context.Context, op string, hs ...objectstore.Hash) error {
		if op == "delete" {
			most = max(most, len(hs))
		}
		return nil
	}
	gone, err := sweep(ctx, s, time.Now(), none)
	if err != nil || len(gone) != 12_345 || len(names(far)) > 0 {
		t.Errorf("got %d removed, %d left, %v", len(gone), len(names(far)), err)
	}
	if most != 1000 || condemned != 5000 {
		t.Errorf("got up to %d deleted and %d condemned at a time, want 1000 and 5000", most, condemned)
	}
	if n := len(p.condemned); n > 0 {
		t.Errorf("%d names are still condemned", n)
	}
}

// A sweep drops the copies of removed objects, so that a later read does not find them.
func TestSweepDropsCopies(t *testing.T) {
	ctx := t.Context()
	far, p := newFar(), newPact()
	far.now = func() time.Time { return time.Now().Add(-time.Hour) }
	s := open(t, far, p, nil)
	b := random(1, 100)
	h := mustPut(t, s, b)
	gc := openIn(t, s.local.Path(), far, p, nil)
	count := 0
	sweep := func() error {
		return gc.SweepShard(ctx, h[0], time.Now(), none, func(objectstore.Entry) { count++ })
	}
	if err := sweep(); err != nil || count > 0 {
		t.Errorf("a live session relies on it: got %d removed, %v", count, err)
	}
	s.own.end()
	if err := sweep(); err != nil || count != 1 {
		t.Errorf("no session relies on it: got %d removed, %v", count, err)
	}
	if _, err := gc.Open(ctx, h); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("open after the sweep: got %v, want ErrNotFound", err)
	}
	// Neither the collector's own process nor a new session counts it as known.
	far.takeCalls()
	mustPut(t, gc, b)
	expectCalls(t, far, call("put", h))
}

// Whatever fails, every reported removal has happened, writers wait exactly as long as a deletion may still take
// effect, and the next sweep removes the rest.
func TestSweepFaults(t *testing.T) {
	hs := shardNames(2500)
	for name, row := range map[string]struct {
		op    string
		nth   int
		fault error
		stop  bool // the context ends
		bound bool // names stay condemned
	}{
		"listing fails":              {op: "list", nth: 1, fault: errors.New("no")},
		"the first deletion fails":   {op: "delete", nth: 1, fault: errors.New("no"), bound: true},
		"a deletion is refused":      {op: "delete", nth: 1, fault: fmt.Errorf("%w: no rights", objectstore.ErrRefused)},
		"the second deletion is cut": {op: "delete", nth: 2, fault: lost{}, bound: true},
		"cancelled between":          {op: "delete", nth: 2, stop: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			far, p := newFar(), newPact()
			far.now = func() time.Time { return time.Now().Add(-time.Hour) }
			s := open(t, far, p, nil)
			for _, h := range hs {
				far.set(h, nil)
			}
			n := 0
			far.before = func(_ context.Context, op string, _ ...objectstore.Hash) error {
				if op == row.op {
					if n++; n == row.nth {
						if row.stop {
							cancel()
						}
						return row.fault
					}
				}
				return nil
			}
			gone, err := sweep(ctx, s, time.Now(), none)
			if err == nil || row.fault != nil && !errors.Is(err, row.fault) || row.stop && !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			for _, h := range gone {
				if _, ok := far.get(h); ok {
					t.Fatalf("%s is there, but is reported as removed", h)
				}
			}
			if bound := len(p.condemned) > 0; bound != row.bound {
				t.Errorf("names are condemned: %v, want %v", bound, row.bound)
			}
			far.before = nil
			// Another process, because this one's list may stay condemned.
			rest, err := sweep(t.Context(), open(t, far, p, nil), time.Now(), none)
			if err != nil || len(names(far)) > 0 {
				t.Errorf("the next sweep: got %d removed, %d left, %v", len(rest), len(names(far)), err)
			}
		})
	}
}

// If a deletion may still take effect, removals are reported but their list stays condemned. A shard has one list at a
// time, so another sweep does the rest.
func TestSweepUnanswered(t *testing.T) {
	far, p := newFar(), newPact()
	far.now = func() time.Time { return time.Now().Add(-time.Hour) }
	s := open(t, far, p, nil)
	hs := shardNames(7500)
	for _, h := range hs {
		far.set(h, nil)
	}
	n := 0
	far.before = func(_ context.Context, op string, _ ...objectstore.Hash) error {
		if op == "delete" {
			if n++; n == 2 {
				return fmt.Errorf("delete: %w", objectstore.ErrUnanswered)
			}
		}
		return nil
	}
	asked := 0
	gone, err := sweep(t.Context(), s, time.Now(), func(objectstore.Hash) bool { asked++; return false })
	if err != nil || !slices.Equal(gone, hs[:5000]) || !slices.Equal(names(far), hs[5000:]) || asked != len(hs) {
		t.Errorf("got %d removed, %d left, asked about %d, %v; want 5000 removed of 7500", len(gone), len(names(far)), asked, err)
	}
	if len(p.condemned) != 5000 {
		t.Errorf("%d names are condemned, want the 5000 that were", len(p.condemned))
	}
	if len(s.warns) != 1 || !errors.Is(s.warns[0], objectstore.ErrUnanswered) {
		t.Errorf("warned of %v, want one warning of a late deletion", s.warns)
	}
}

func TestDeleteUnanswered(t *testing.T) {
	far, p := newFar(), newPact()
	s := open(t, far, p, nil)
	hs := shardNames(1)
	far.set(hs[0], nil)
	far.before = func(_ context.Context, op string, _ ...objectstore.Hash) error {
		if op == "delete" {
			return objectstore.ErrUnanswered
		}
		return nil
	}
	gone, err := s.DeleteBefore(t.Context(), hs[0], time.Now().Add(time.Hour))
	if !gone || err != nil || len(names(far)) > 0 {
		t.Errorf("got %v, %v, %d left, want it removed", gone, err, len(names(far)))
	}
	if len(p.condemned) != 1 {
		t.Errorf("%d names are condemned, want the one that was removed", len(p.condemned))
	}
}

// A process that has lost its lease deletes nothing.
func TestSweepWithoutLease(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	far.now = func() time.Time { return time.Now().Add(-time.Hour) }
	s := open(t, far, newPact(), nil)
	hs := shardNames(3)
	for _, h := range hs {
		far.set(h, nil)
	}
	s.own.lost = errors.New("the lease is lost")
	if gone, err := sweep(ctx, s, time.Now(), none); !errors.Is(err, s.own.lost) || len(gone) > 0 {
		t.Errorf("sweep: got %v, %v", gone, err)
	}
	other := open(t, far, newPact(), nil)
	other.own.lost = s.own.lost
	if err := other.Delete(ctx, hs[0]); !errors.Is(err, s.own.lost) {
		t.Errorf("delete: got %v", err)
	}
	if len(names(far)) != 3 {
		t.Errorf("%d objects are left, want 3", len(names(far)))
	}
}

func TestDelete(t *testing.T) {
	ctx := t.Context()
	far, p := newFar(), newPact()
	s := open(t, far, p, nil)
	b := random(1, 1000)
	h := mustPut(t, s, b)
	seen, err := far.find(h)
	if err != nil {
		t.Fatal(err)
	}
	if gone, err := s.DeleteBefore(ctx, h, seen.time.Add(1)); gone || err != nil {
		t.Errorf("delete what a session relies on: got %v, %v, want false", gone, err)
	}
	gc := open(t, far, p, nil)
	s.own.end()
	if gone, err := gc.DeleteBefore(ctx, h, seen.time); gone || err != nil {
		t.Errorf("delete what is not older: got %v, %v, want false", gone, err)
	}
	if gone, err := gc.DeleteBefore(ctx, h, seen.time.Add(1)); !gone || err != nil {
		t.Errorf("delete what is older: got %v, %v, want true", gone, err)
	}
	if gone, err := gc.DeleteBefore(ctx, h, seen.time.Add(1)); gone || err != nil {
		t.Errorf("delete what is absent: got %v, %v, want false", gone, err)
	}
	if err := gc.Delete(ctx, h); err != nil {
		t.Errorf("delete what is absent: %v", err)
	}

	// Delete also removes an object that this process relies on, which is not known afterwards.
	mustPut(t, gc, b)
	far.set(h, b[1:]) // it was corrupt all the time
	if err := gc.Verify(ctx, h); !errors.As(err, new(*objectstore.CorruptError)) {
		t.Errorf("verify: got %v, want a *CorruptError", err)
	}
	if err := gc.Delete(ctx, h); err != nil {
		t.Fatal(err)
	}
	if _, err := gc.Open(ctx, h); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("open what was deleted: got %v, want ErrNotFound", err)
	}
	mustPut(t, gc, b)
	if err := gc.Verify(ctx, h); err != nil {
		t.Errorf("verify what was put anew: %v", err)
	}
	if n := len(p.condemned); n > 0 {
		t.Errorf("%d names are still condemned", n)
	}
}

// Concurrent deletions in one shard.
func TestDeleteMany(t *testing.T) {
	far, p := newFar(), newPact()
	s := open(t, far, p, nil)
	var g errgroup.Group
	for _, h := range shardNames(50) {
		far.set(h, nil)
		g.Go(func() error { return s.Delete(t.Context(), h) })
		g.Go(func() error {
			_, err := s.DeleteBefore(t.Context(), h, time.Now())
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if left := names(far); len(left) > 0 {
		t.Errorf("%d objects are left", len(left))
	}
}

// Verify checks the remote bytes, and removes a damaged copy.
func TestVerify(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	s := open(t, far, newPact(), nil)
	b := random(1, 300_000)
	h := mustPut(t, s, b)
	damage(t, s.local, h, func(b []byte) []byte { b[0] ^= 1; return b })
	if err := s.Verify(ctx, h); err != nil {
		t.Errorf("got %v, want nothing: the shared object is as it should be", err)
	}
	if _, err := s.local.Stat(ctx, h); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("the damaged copy: got %v, want ErrNotFound", err)
	}
	far.set(h, b[:1000])
	var corrupt *objectstore.CorruptError
	if err := s.Verify(ctx, h); !errors.As(err, &corrupt) || corrupt.Size != 1000 {
		t.Errorf("got %v, want a *CorruptError of 1000 bytes", err)
	}
	far.remove(h)
	if err := s.Verify(ctx, h); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

// Once an object is found to be gone, the next put uploads it again.
func TestRemovedByHand(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	s := open(t, far, newPact(), nil)
	b := random(1, 1000)
	h := mustPut(t, s, b)
	far.remove(h)
	if err := s.local.Delete(ctx, h); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(ctx, h); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	if ok, err := s.Refresh(ctx, h); ok || err != nil {
		t.Errorf("refresh: got %v, %v, want false", ok, err)
	}
	mustPut(t, s, b)
	if _, ok := far.get(h); !ok {
		t.Error("it was not uploaded again")
	}
}

func TestWalk(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	s := open(t, far, newPact(), nil)
	var want []objectstore.Hash
	for i := range 300 {
		want = append(want, mustPut(t, s, fmt.Appendf(nil, "object %d", i)))
	}
	slices.SortFunc(want, objectstore.Hash.Compare)
	var got []objectstore.Hash
	for e, err := range s.Walk(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Hash)
	}
	if !slices.Equal(got, want) {
		t.Errorf("walk: got %d objects, want %d in order", len(got), len(want))
	}
	faults := 0
	far.before = func(context.Context, string, ...objectstore.Hash) error {
		if faults++; faults%2 == 0 {
			return errors.New("no")
		}
		return nil
	}
	failed := 0
	for _, err := range s.Walk(ctx) {
		if err != nil {
			failed++
		}
	}
	if failed != objectstore.Shards/2 {
		t.Errorf("a walk that continues: got %d errors, want %d", failed, objectstore.Shards/2)
	}
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	failed = 0
	for _, err := range s.Walk(stopped) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		failed++
	}
	if failed != 1 {
		t.Errorf("a cancelled walk yielded %d errors, want 1", failed)
	}
	if !s.Presumes() {
		t.Error("the store does not presume that what is named is there")
	}
	if times, err := s.ShardTimes(); err != nil || times != [objectstore.Shards]int64{} {
		t.Errorf("shard times: got %v, %v", times, err)
	}
}
