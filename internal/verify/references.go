package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"e3/internal/reach"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// references follows every reference. Most repositories have no fault, so one walk reads each object once. It begins with the
// executions, while their records are checked, so that these are read once too. Only if it finds a fault, a second walk
// finds all owners that need the object, and the way in which they need it.
//
// An object that is broken both before and after the second walk reads an owner is a fault of that owner: a
// collection removes an object only after its references are gone, and a new reference is written only after its
// object was put.
func (v *verifier) references(ctx context.Context) error {
	v.progress(Progress{Phase: Following})
	err := v.stores().OtherReferences(ctx, v.walk)
	if walk := v.walk.Wait(); walk != nil {
		err = walk // the sink's error is the same
	}
	if err != nil {
		return fmt.Errorf("follow references: %w", err)
	}
	b := v.broken
	if err := v.still(ctx, b); err != nil {
		return err
	}
	for h, d := range v.corrupt { // find its owners even if the walk did not read it
		b.objects[h] = d
	}
	if len(b.objects) == 0 && len(b.malformed) == 0 {
		return nil
	}
	v.progress(Progress{Phase: Explaining})
	t := &tracer{ctx: ctx, v: v, broken: b, memo: map[reach.Ref][]lostPart{}}
	if err := v.stores().References(ctx, t); err != nil {
		return fmt.Errorf("find out what is concerned: %w", err)
	}
	if err := v.still(ctx, b); err != nil {
		return err
	}
	v.concern = t.concern
	v.explain(b)
	return nil
}

func (v *verifier) stores() *reach.Stores {
	return &reach.Stores{Records: v.Records, Objects: v.Objects, Executions: v.Curator, Jobs: v.Jobs}
}

// broken has the references that a walk could not follow. A missing or damaged object is broken for all references;
// an object with the wrong content only for references of that kind.
type broken struct {
	mu        sync.Mutex // held while the walk is under way
	objects   map[objectstore.Hash]damage
	malformed map[reach.Ref]string
}

// damaged records the damage of an object's bytes.
func (b *broken) damaged(h objectstore.Hash, d damage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects[h] = d
}

// begin begins the walk from the recorded roots.
func (v *verifier) begin(ctx context.Context) {
	v.broken = &broken{objects: map[objectstore.Hash]damage{}, malformed: map[reach.Ref]string{}}
	_, copies := v.Objects.(interface{ Parallel() int }) // a remote store is read through copies, which prove nothing
	sizes := reach.NewSizes(v.Objects)
	dirs := reach.NewDirChecker(v.Objects, tree.MaxBytes, sizes.Stat)
	dirs.Damaged = func(ctx context.Context, h objectstore.Hash) bool {
		d, bad := v.damageOf(ctx, h)
		if bad {
			v.broken.damaged(h, d)
		}
		return bad
	}
	v.walk = reach.NewWalker(ctx, v.Objects, reach.Options{
		Visit: func(ctx context.Context, r reach.Ref) (int64, error) {
			if r.Kind != reach.File && !copies { // the walk reads objects of other kinds itself
				return -1, nil
			}
			return sizes.Stat(ctx, r.Hash)
		},
		Fault: func(f *reach.Fault) error {
			if !f.Record() { // records are checked elsewhere
				v.broken.add(f.Ref, f.Err)
			}
			return nil
		},
		Dirs: dirs,
	})
}

// damageOf checks an object of the wrong size.
func (v *verifier) damageOf(ctx context.Context, h objectstore.Hash) (damage, bool) {
	if d, known := v.corrupt[h]; known {
		return d, true
	}
	return v.lookAgain(ctx, h)
}

// add records why a reference could not be followed.
func (b *broken) add(r reach.Ref, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var malformed *reach.MalformedError
	var corrupt *objectstore.CorruptError
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		b.objects[r.Hash] = damage{kind: MissingObject, problem: "it is not there"}
	case errors.As(err, &corrupt):
		b.objects[r.Hash] = damage{kind: CorruptObject, problem: fmt.Sprintf("its %d bytes hash to %s", corrupt.Size, corrupt.Got)}
	case errors.As(err, &malformed):
		b.malformed[r] = malformed.Err.Error()
	default:
		b.objects[r.Hash] = damage{kind: UnreadableObject, problem: err.Error()}
	}
}

// still checks again and drops the objects that are whole now.
func (v *verifier) still(ctx context.Context, b *broken) error {
	for h, d := range b.objects {
		_, err := v.Objects.Stat(ctx, h)
		there := err == nil
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case d.kind == MissingObject && there:
			delete(b.objects, h)
		case d.kind == CorruptObject && there:
			if _, bad := v.lookAgain(ctx, h); !bad {
				delete(b.objects, h)
				delete(v.corrupt, h)
			}
		case d.kind == CorruptObject: // it has been removed, so its owners lack it now
			b.objects[h] = damage{kind: MissingObject, problem: "it is not there"}
			delete(v.corrupt, h)
		}
	}
	return nil
}

// lostPart is a broken object, with its path below the object that leads to it.
type lostPart struct {
	hash objectstore.Hash
	path string
}

// maxParts bounds the broken objects that are reported for one object above them.
const maxParts = 16

// A tracer finds out for each owner which of the broken objects it reaches. It is a reach.Sink.
type tracer struct {
	ctx    context.Context
	v      *verifier
	broken *broken

	mu      sync.Mutex // guards the fields below, while a root is traced
	memo    map[reach.Ref][]lostPart
	concern concern
}

// RecordFault implements reach.Sink.
func (t *tracer) RecordFault(*reach.Fault) error { return nil }

// Root implements reach.Sink.
func (t *tracer) Root(r reach.Root) error {
	if r.Weak && r.Owner.Kind != reach.ARun { // it may be missing, and everything below it
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.owner(r)
}

// below returns the broken objects that a reference leads to.
func (t *tracer) below(r reach.Ref, depth int) ([]lostPart, error) {
	if _, bad := t.broken.objects[r.Hash]; bad {
		return []lostPart{{hash: r.Hash}}, nil
	}
	if _, bad := t.broken.malformed[r]; bad {
		return []lostPart{{hash: r.Hash}}, nil
	}
	if r.Kind == reach.File {
		return nil, nil
	}
	if lost, known := t.memo[r]; known {
		return lost, nil
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("%s: references nest deeper than %d levels", r, maxDepth)
	}
	children, err := t.children(r)
	if err != nil {
		return nil, err
	}
	var lost []lostPart
	for _, c := range children {
		if c.Weak { // it may be missing, and everything below it
			continue
		}
		parts, err := t.below(c.Ref, depth+1)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			if len(lost) < maxParts {
				lost = append(lost, lostPart{p.hash, strings.TrimSuffix(c.Name+"/"+p.path, "/")})
			}
		}
	}
	t.memo[r] = lost
	return lost, nil
}

// maxDepth bounds the nesting of references; valid trees nest less deeply.
const maxDepth = 10_000

// children are the references in an object that was just found intact. If it has broken since, the next check finds it.
func (t *tracer) children(r reach.Ref) ([]reach.Child, error) {
	children, err := reach.Refs(t.ctx, t.v.Objects, r)
	if err != nil && t.ctx.Err() == nil {
		err = nil
	}
	return children, err
}
