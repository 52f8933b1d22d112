package objectstore

import (
	"context"
	"errors"
	"iter"
	"path"

	"e3/internal/format/beast2"
)

// A TreeChange is an entry that differs between two directories: Was is nil for an added one, Is for a removed one. A
// directory on one side only is one change, whatever its content.
type TreeChange struct {
	Path    string // slash-separated, relative to the compared directories
	Was, Is *TreeEntry
}

// DiffTrees yields the changes between two directory objects, level by level, in the order of the names. Equal parts
// are not read. An unreadable level ends the iteration with its error, which wraps ErrNotFound for an absent one.
func DiffTrees(ctx context.Context, s Store, was, is Hash) iter.Seq2[TreeChange, error] {
	return func(yield func(TreeChange, error) bool) {
		d := treeDiffer{ctx: ctx, store: s, yield: yield}
		if err := d.trees("", was, is); err != nil && !errors.Is(err, errEnough) {
			yield(TreeChange{}, err)
		}
	}
}

// errEnough ends a walk whose caller stops early.
var errEnough = errors.New("enough")

type treeDiffer struct {
	ctx   context.Context
	store Store
	yield func(TreeChange, error) bool
}

func (d *treeDiffer) trees(rel string, was, is Hash) error {
	if was == is {
		return nil
	}
	old, err := ReadTree(d.ctx, d.store, was)
	if err != nil {
		return err
	}
	now, err := ReadTree(d.ctx, d.store, is)
	if err != nil {
		return err
	}
	for len(old) > 0 || len(now) > 0 {
		var a, b *TreeEntry
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

// entry compares an entry, of which one side may be missing.
func (d *treeDiffer) entry(rel string, a, b *TreeEntry) error {
	c := TreeChange{Was: a, Is: b}
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
