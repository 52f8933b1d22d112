package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"e3/refstore"
)

// bucket is a store of objects and of references to them, like S3 and DynamoDB: no operation is atomic over both.
type bucket struct {
	t       *testing.T
	mu      sync.Mutex
	objects map[int]bool
	refs    map[int]int // by object
	deleted int
}

func (b *bucket) has(i int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects[i]
}

func (b *bucket) put(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects[i] = true
}

// refer writes a reference, which must not dangle.
func (b *bucket) refer(i int, who string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.objects[i] {
		b.t.Errorf("%s refers to object %d, which is gone", who, i)
	}
	b.refs[i]++
}

// remove deletes an object, which must have no references.
func (b *bucket) remove(i int, who string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refs[i] > 0 {
		b.t.Errorf("%s deletes object %d, to which something refers", who, i)
	}
	if b.objects[i] {
		delete(b.objects, i)
		b.deleted++
	}
}

// prune drops references.
func (b *bucket) prune(c *chance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.refs {
		if c.in(3) {
			delete(b.refs, i)
		}
	}
}

const objects = 40

// TestScheduleOfCollections: collections beside writers that come and go, are disconnected and killed, over a faulty
// network. No reference ever dangles, though only the leases protect writers from deletions.
func TestScheduleOfCollections(t *testing.T) {
	eachSchedule(t, func(t *testing.T, c *chance) {
		w := newWorld(t)
		b := &bucket{t: t, objects: make(map[int]bool), refs: make(map[int]int)}
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Minute)
		defer stop()
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				for life := 0; ctx.Err() == nil; life++ {
					m := w.begin(fmt.Sprintf("host%d", i%2), c)
					w.write(ctx, c, b, m, fmt.Sprintf("writer %d.%d", i, life))
					time.Sleep(c.upTo(time.Minute))
				}
			})
		}
		collections := 0
		all.Go(func() {
			for life := 0; ctx.Err() == nil; life++ {
				m := w.begin(fmt.Sprintf("host%d", c.below(3)), c)
				for ctx.Err() == nil && m.Held() == nil {
					b.prune(c)
					err := w.collect(ctx, c, b, m, fmt.Sprintf("collector %d", life))
					var unsettled *refstore.UnsettledError
					switch {
					case err == nil:
						collections++
					case errors.As(err, &unsettled):
						time.Sleep(unsettled.Wait)
					}
					if c.in(5) {
						break
					}
					time.Sleep(c.upTo(2 * time.Minute))
				}
				w.leave(c, m)
			}
		})
		all.Wait()
		b.mu.Lock() // deletions may still arrive
		defer b.mu.Unlock()
		t.Logf("%d collections, %d objects deleted", collections, b.deleted)
	})
}

// begin starts a process with a faulty connection.
func (w *world) begin(host string, c *chance) *machine {
	w.mu.Lock()
	m := w.on(host)
	w.mu.Unlock()
	w.rough(m, c, 300)
	return m
}

// leave ends a process in a random way.
func (w *world) leave(c *chance, m *machine) {
	switch c.below(3) {
	case 0:
		w.kill(m) // the requests that it sent have arrived
		time.Sleep(2 * ttl)
		m.wire.mend()
	case 1:
		m.wire.cut()
		time.Sleep(2 * ttl)
		m.wire.mend()
	}
	w.exit(m)
}

// exit ends a process in an orderly way.
func (w *world) exit(m *machine) {
	_ = m.Close() // with a faulty connection this may fail
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[m.pid] = true
}

// write is the life of a process that refers to existing objects, or puts them.
func (w *world) write(ctx context.Context, c *chance, b *bucket, m *machine, who string) {
	var workers sync.WaitGroup
	until := time.Now().Add(c.upTo(20 * time.Minute))
	for range 2 {
		workers.Go(func() {
			for ctx.Err() == nil && time.Now().Before(until) && m.Held() == nil {
				i := c.below(objects)
				if err := m.Rely(ctx, name(i)); err != nil {
					time.Sleep(time.Second)
					continue
				}
				time.Sleep(c.upTo(10 * time.Second))
				if !b.has(i) {
					time.Sleep(c.upTo(time.Second))
					if m.Held() != nil {
						return
					}
					b.put(i)
				}
				time.Sleep(c.upTo(20 * time.Second))
				if m.Held() == nil {
					b.refer(i, who)
				}
				time.Sleep(c.upTo(5 * time.Second))
			}
		})
	}
	if !c.in(3) {
		workers.Wait()
		w.leave(c, m)
		return
	}
	time.Sleep(c.upTo(10 * time.Minute))
	m.wire.cut() // its workers, which check the lease, end within four fifths of it
	time.Sleep(2 * ttl)
	m.wire.mend()
	workers.Wait()
	w.exit(m)
}

// collect does what gc does.
func (w *world) collect(ctx context.Context, c *chance, b *bucket, m *machine, who string) error {
	lock, err := m.TryLock(ctx, "gc", refstore.Exclusive, nil)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	end, err := m.Quiesce(ctx)
	if err != nil {
		return err
	}
	defer end()
	time.Sleep(c.upTo(time.Second))
	needed := make(map[string]bool)
	for i := range objects {
		b.mu.Lock()
		if b.refs[i] > 0 {
			needed[fmt.Sprintf("%x", name(i))] = true
		}
		b.mu.Unlock()
		time.Sleep(c.upTo(500 * time.Millisecond))
	}
	sessions, err := m.LiveSessions(ctx)
	if err != nil {
		return err
	}
	for _, s := range sessions {
		for _, p := range s.Protected {
			needed[p] = true
		}
	}
	for i := range objects {
		n := name(i)
		if needed[fmt.Sprintf("%x", n)] || !b.has(i) {
			continue
		}
		free, done, err := m.Condemn(ctx, n[0], [][32]byte{n})
		if errors.Is(err, refstore.ErrInvalid) {
			continue // an earlier list of the same shard remains
		}
		if err != nil {
			return err
		}
		if len(free) > 0 {
			time.Sleep(c.upTo(5 * time.Second))
			if err := m.Held(); err != nil {
				return err
			}
			if c.in(10) { // the answer is lost, and the deletion may arrive later
				late := c.upTo(settle - ttl)
				time.AfterFunc(late, func() {
					w.mu.Lock()
					ended := w.dead[m.pid] // then its connections are closed
					w.mu.Unlock()
					if !ended {
						b.remove(i, who)
					}
				})
				continue
			}
			b.remove(i, who)
		}
		if err := done(ctx); err != nil {
			return err
		}
	}
	return nil
}
