package tree

import (
	"context"
	"errors"
	"iter"
	"path"

	"e3/internal/format/beast2"
	"e3/objectstore"
)

// A Change is an entry that differs between two directories. Was is nil for an added entry, Is is nil for a removed
// one. A directory on one side only is one change, whatever its content.
type Change struct {
	Path    string // slash-separated, relative to the compared directories
	Was, Is *Entry
}

// Diff yields the changes between two directory objects, level by level, in the order of the names. Equal parts are not
// read. An unreadable level ends the iteration with its error, which wraps ErrNotFound if the level is absent.
func Diff(ctx context.Context, s objectstore.Store, was, is objectstore.Hash) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		d := differ{ctx: ctx, store: s, yield: yield}
		if err := d.trees("", was, is); err != nil && !errors.Is(err, errEnough) {
			yield(Change{}, err)
		}
	}
}

// errEnough ends a walk whose caller stops early.
var errEnough = errors.New("enough")

type differ struct {
	ctx   context.Context
	store objectstore.Store
	yield func(Change, error) bool
}

func (d *differ) trees(rel string, was, is objectstore.Hash) error {
	if was == is {
		return nil
	}
	old, err := Read(d.ctx, d.store, was)
	if err != nil {
		return err
	}
	now, err := Read(d.ctx, d.store, is)
	if err != nil {
		return err
	}
	for len(old) > 0 || len(now) > 0 {
		var a, b *Entry
		switch {
		case len(now) == 0 || len(old) > 0 && beast2.CompareStrings(old[0].Name, now[0].Name) < 0:
			a, old = &old[0], old[1:]
		case len(old) == 0 || beast2.CompareStrings(now[0].Name, old[0].Name) < 0:
			b, now = &now[0], now[1:]
		default:
			a, b, old, now = &old[0], &now[0], old[1:], now[1:]
		}
		if err := d.entry(rel, a, b); err != nil {
			return err
		}
	}
	return nil
}

// entry compares the two sides of an entry; one side may be missing.
func (d *differ) entry(rel string, a, b *Entry) error {
	c := Change{Was: a, Is: b}
	switch {
	case a == nil:
		c.Path = path.Join(rel, b.Name)
	case b == nil:
		c.Path = path.Join(rel, a.Name)
	case a.Kind == KindDir && b.Kind == KindDir:
		return d.trees(path.Join(rel, a.Name), a.Hash, b.Hash)
	case *a == *b:
		return nil
	default:
		c.Path = path.Join(rel, a.Name)
	}
	if !d.yield(c, nil) {
		return errEnough
	}
	return nil
}
