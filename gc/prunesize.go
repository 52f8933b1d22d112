package gc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"e3/executions"
	"e3/internal/reach"
	"e3/objectstore"
)

// measure computes the size of the cache. It first marks everything reachable from protected roots. Then, from the
// latest execution to the oldest, it counts the objects that each one adds. So a shared object counts once, for the
// latest execution that has it.
func (p *pruner) measure(ctx context.Context) error {
	if p.MaxSize == 0 && !slices.ContainsFunc(p.pool.list, func(c candidate) bool { return c.rule != stays }) {
		return nil
	}
	s := &sizer{pool: &p.pool, index: make(map[place]int32, len(p.pool.list))}
	for i := range p.pool.list {
		c := &p.pool.list[i]
		if c.shield == Unshielded {
			s.index[placeOf(p.pool.keys[c.key], c.id)] = int32(i)
		}
	}
	sizes := reach.NewSizes(p.Objects)
	s.walk = reach.NewWalker(ctx, p.Objects, reach.Options{
		Visit: func(ctx context.Context, r reach.Ref) (int64, error) { return -1, s.visit(ctx, sizes, r) },
		// Missing or damaged objects are for verify to report. They have no size here, and lead to nothing.
		Fault: func(f *reach.Fault) error {
			if errors.Is(f.Err, errStore) {
				return f.Err
			}
			return nil
		},
	})
	stores := &reach.Stores{Records: p.Records, Objects: p.Objects, Executions: p.Curator, Jobs: p.Jobs}
	if err := stores.References(ctx, s); err != nil {
		return err
	}
	if err := s.walk.Wait(); err != nil {
		return err
	}
	if p.MaxSize > 0 {
		if err := p.cut(s); err != nil {
			return err
		}
	}
	// Executions that stay come first. So objects that are counted later are held only by removed executions.
	for _, goes := range []bool{false, true} {
		for i := range p.pool.list {
			c := &p.pool.list[i]
			if c.shield != Unshielded || (c.rule != stays) != goes {
				continue
			}
			objects, bytes, err := s.hold(int32(i))
			if err != nil {
				return err
			}
			if goes {
				p.report.Objects += objects
				p.report.Bytes += bytes
			}
		}
	}
	return nil
}

// cut applies MaxSize.
func (p *pruner) cut(s *sizer) error {
	held := int64(0)
	p.report.Held = &held
	return p.pool.bySize(p.MaxSize, func(i int32) (int64, error) {
		objects, more, err := s.hold(i)
		if held+more <= p.MaxSize {
			held += more
		} else { // the first to be removed; the older ones are measured below
			p.report.Objects += objects
			p.report.Bytes += more
		}
		return more, err
	})
}

// place identifies an execution in half the bytes of key and id: the same id may exist under another key.
type place [24]byte

func placeOf(k executions.Key, id uuid.UUID) place {
	var p place
	copy(p[:16], id[:])
	task, inputs := binary.LittleEndian.Uint64(k.Task[:8]), binary.LittleEndian.Uint64(k.Inputs[:8])
	binary.LittleEndian.PutUint64(p[16:], task^(inputs<<1|inputs>>63))
	return p
}

// sizer walks from all roots except the roots of executions that may go, which it keeps for later. It is a
// reach.Sink.
type sizer struct {
	pool  *pool
	index map[place]int32 // in the pool
	walk  *reach.Walker

	mu   sync.Mutex // guards kept and the candidates' roots
	kept []keptRoot

	counted        objectstore.HashSet
	objects, bytes atomic.Int64
}

// keptRoot is a root of a candidate, linked to its previous one.
type keptRoot struct {
	ref  reach.Ref
	next int32
}

// Root implements reach.Sink.
func (s *sizer) Root(r reach.Root) error {
	if r.Owner.Kind == reach.AnExecution {
		id, err := uuid.Parse(r.Owner.ID)
		if err == nil {
			if i, ok := s.index[placeOf(r.Owner.Key, id)]; ok {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.kept = append(s.kept, keptRoot{r.Ref, s.pool.list[i].roots})
				s.pool.list[i].roots = int32(len(s.kept) - 1)
				return nil
			}
		}
	}
	return s.walk.Root(r)
}

// RecordFault implements reach.Sink.
func (s *sizer) RecordFault(*reach.Fault) error { return nil }

// hold follows the references of an execution, and returns the objects and bytes that were not counted before.
func (s *sizer) hold(i int32) (objects, bytes int64, err error) {
	objects, bytes = s.objects.Load(), s.bytes.Load()
	for at := s.pool.list[i].roots; at >= 0; at = s.kept[at].next {
		if err := s.walk.Root(reach.Root{Ref: s.kept[at].ref, Weak: true}); err != nil {
			return 0, 0, err
		}
	}
	err = s.walk.Wait()
	return s.objects.Load() - objects, s.bytes.Load() - bytes, err
}

// errStore is wrapped if a store cannot be read.
var errStore = errors.New("the store cannot be read")

func (s *sizer) visit(ctx context.Context, sizes *reach.Sizes, r reach.Ref) error {
	if !s.counted.Add(r.Hash) {
		return nil
	}
	size, err := sizes.Stat(ctx, r.Hash)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errStore, err)
	}
	s.objects.Add(1)
	s.bytes.Add(size)
	return nil
}
