package cached_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"e3/objectstore"
	"e3/objectstore/cached"
)

// scheduler lets one request at a time take effect, in a random order.
type scheduler struct {
	mu      sync.Mutex
	waiting []request
}

type request struct {
	actor int
	turn  chan error
}

// pass waits for the turn of a request and returns its fault, if any.
func (s *scheduler) pass(actor int) error {
	r := request{actor, make(chan error)}
	s.mu.Lock()
	s.waiting = append(s.waiting, r)
	s.mu.Unlock()
	return <-r.turn
}

// next releases the nth waiting request, with a fault or none, and reports whether there was such a request.
func (s *scheduler) next(n int, fault error) bool {
	s.mu.Lock()
	if len(s.waiting) == 0 {
		s.mu.Unlock()
		return false
	}
	slices.SortStableFunc(s.waiting, func(a, b request) int { return a.actor - b.actor })
	n %= len(s.waiting)
	r := s.waiting[n]
	s.waiting = slices.Delete(s.waiting, n, n+1)
	s.mu.Unlock()
	r.turn <- fault
	return true
}

// actor is the key of a context's actor.
type actor struct{}

// aStep is one operation of a writer on an object.
type aStep struct {
	Object int
	How    string
}

// plan is a complete schedule.
type plan struct {
	Writers [][]aStep
	Sweeps  int
	Order   []int
	Faults  []int
	There   []bool // the objects that exist at the start
	Seed    uint64
}

// An object that a writer has put, or refreshed and found, stays while the writer's session lives, whatever collectors
// do, and however requests are interleaved, fail, or lose their answers.
func TestSchedules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		step := rapid.Custom(func(rt *rapid.T) aStep {
			return aStep{rapid.IntRange(0, 3).Draw(rt, "object"), rapid.SampledFrom([]string{"put", "put", "refresh", "refresh", "read", "stat", "restart"}).Draw(rt, "how")}
		})
		p := plan{
			Writers: rapid.SliceOfN(rapid.SliceOfN(step, 1, 8), 1, 3).Draw(rt, "writers"),
			Sweeps:  rapid.IntRange(1, 2).Draw(rt, "sweeps"),
			Order:   rapid.SliceOfN(rapid.IntRange(0, 7), 0, 80).Draw(rt, "order"),
			Faults:  rapid.SliceOfN(rapid.IntRange(0, 9), 0, 80).Draw(rt, "faults"),
			There:   rapid.SliceOfN(rapid.Bool(), 4, 4).Draw(rt, "there"),
			Seed:    rapid.Uint64().Draw(rt, "seed"),
		}
		var err error
		synctest.Test(t, func(t *testing.T) { err = run(t, p) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// objects are of one shard, so that they are condemned together.
var objects = func() (list [4][]byte) {
	n := 0
	for i := 0; n < len(list); i++ {
		b := fmt.Appendf(nil, "object %d", i)
		if n == 0 || objectstore.Sum(b)[0] == objectstore.Sum(list[0])[0] {
			list[n] = b
			n++
		}
	}
	return list
}()

func run(t *testing.T, p plan) (err error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sched := &scheduler{}
	far, agreed := newFar(), newPact()
	old := time.Now().Add(-time.Hour)
	far.now = func() time.Time { return old } // all objects are old enough; only relying spares them
	for i, there := range p.There {
		if there {
			far.set(objectstore.Sum(objects[i]), objects[i])
		}
	}
	var wg sync.WaitGroup
	far.before = func(ctx context.Context, op string, hs ...objectstore.Hash) error {
		id := ctx.Value(actor{}).(int)
		err := sched.pass(id)
		if _, ok := err.(fault); ok && op == "delete" {
			// The request fails, but takes effect later.
			wg.Go(func() {
				sched.pass(id + 100)
				for _, h := range hs {
					far.remove(h)
				}
			})
		}
		return err
	}

	var mu sync.Mutex
	found := func(e error) {
		mu.Lock()
		defer mu.Unlock()
		err = errors.Join(err, e)
	}
	begin := func(id int, dir string) (*cached.Store, *session) {
		local, e := objectstore.OpenDir(dir, objectstore.Options{})
		own := agreed.begin()
		own.asked = func(string, ...objectstore.Hash) { sched.pass(id) }
		s, openErr := cached.Open(cached.Options{Local: local, Remote: far, Guard: own})
		if e = errors.Join(e, openErr); e != nil {
			found(e)
		}
		return s, own
	}
	for id, steps := range p.Writers {
		dir := t.TempDir()
		wg.Go(func() {
			ctx := context.WithValue(ctx, actor{}, id)
			s, own := begin(id, dir)
			named := map[int]bool{}
			for _, step := range steps {
				h := objectstore.Sum(objects[step.Object])
				switch step.How {
				case "put":
					if _, e := s.PutBytes(ctx, objects[step.Object]); e == nil {
						named[step.Object] = true
					}
				case "refresh":
					if ok, e := s.Refresh(ctx, h); ok && e == nil {
						named[step.Object] = true
					}
				case "read":
					if b, e := s.ReadAll(ctx, h, 1000); e == nil && !bytes.Equal(b, objects[step.Object]) {
						found(fmt.Errorf("object %d: read %q", step.Object, b))
					}
				case "stat":
					_, _ = s.Stat(ctx, h)
				case "restart":
					own.end()
					s, own = begin(id, dir)
					clear(named)
				}
				for i := range named {
					if _, ok := far.get(objectstore.Sum(objects[i])); !ok {
						found(fmt.Errorf("object %d was lost to a writer that names it", i))
					}
				}
			}
			own.end()
		})
	}
	for id := range p.Sweeps {
		dir := t.TempDir()
		wg.Go(func() {
			id += 10
			ctx := context.WithValue(ctx, actor{}, id)
			s, own := begin(id, dir)
			defer own.end()
			e := s.SweepShard(ctx, objectstore.Sum(objects[0])[0], time.Now(), func(objectstore.Hash) bool { return false }, func(objectstore.Entry) {})
			if e != nil && !errors.Is(e, fault{}) && !errors.Is(e, lost{}) {
				found(fmt.Errorf("sweep: %w", e))
			}
		})
	}
	rng := rand.New(rand.NewPCG(p.Seed, 0))
	for i := 0; ; i++ {
		synctest.Wait()
		n := rng.IntN(8)
		if i < len(p.Order) {
			n = p.Order[i]
		}
		var f error
		if i < len(p.Faults) {
			f = []error{fault{}, lost{}, nil, nil, nil, nil, nil, nil, nil, nil}[p.Faults[i]]
		}
		if !sched.next(n, f) {
			break
		}
	}
	cancel() // of writers that wait for names that a failed deletion left condemned
	wg.Wait()
	return err
}

// fault is the error of a request that had no effect, or not yet.
type fault struct{}

func (fault) Error() string { return "injected" }
