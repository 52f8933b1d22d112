package verify

import (
	"context"
	"fmt"
	"path"

	"e3/internal/beast2"
	"e3/objectstore"
)

// MaxChanges bounds Again.Changes.
const MaxChanges = 1000

// ChangeKind says how an entry differs.
type ChangeKind string

// The kinds of changes.
const (
	Added   ChangeKind = "added"
	Removed ChangeKind = "removed"
	Changed ChangeKind = "changed"
)

// A Change is an entry of an output that is not what it was.
type Change struct {
	Kind ChangeKind
	Path string // in the directory; "" for an output that is a file
	// Was and Is say what it is: "12 bytes", "executable, 12 bytes", "directory", "link to x". One of them is "" where there
	// was, or is, nothing.
	Was, Is string
}

// differ compares outputs.
type differ struct {
	ctx     context.Context
	objects Sized
	again   *Again
}

func (d *differ) add(c Change) {
	if len(d.again.Changes) < MaxChanges {
		d.again.Changes = append(d.again.Changes, c)
	} else {
		d.again.More++
	}
}

// file compares two files.
func (d *differ) file(was, is objectstore.Hash) error {
	old, err := d.objects.Stat(d.ctx, was)
	if err != nil {
		return err
	}
	now, err := d.objects.Stat(d.ctx, is)
	if err != nil {
		return err
	}
	d.add(Change{Kind: Changed, Was: sized(old), Is: sized(now)})
	return nil
}

func sized(n int64) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

// shown says what an entry is.
func shown(e *objectstore.TreeEntry) string {
	switch e.Kind {
	case objectstore.KindDir:
		return "directory"
	case objectstore.KindLink:
		return "link to " + e.Target
	}
	if e.Executable {
		return "executable, " + sized(e.Size)
	}
	return sized(e.Size)
}

// trees compares two directories entry by entry. What is the same in both is not read.
func (d *differ) trees(rel string, was, is objectstore.Hash) error {
	old, err := objectstore.ReadTree(d.ctx, d.objects, was)
	if err != nil {
		return err
	}
	now, err := objectstore.ReadTree(d.ctx, d.objects, is)
	if err != nil {
		return err
	}
	for len(old) > 0 || len(now) > 0 {
		var a, b *objectstore.TreeEntry
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
func (d *differ) entry(rel string, a, b *objectstore.TreeEntry) error {
	if a != nil && b != nil && a.Kind == objectstore.KindDir && b.Kind == objectstore.KindDir {
		if a.Hash == b.Hash {
			return nil
		}
		return d.trees(path.Join(rel, a.Name), a.Hash, b.Hash)
	}
	switch {
	case a == nil:
		d.add(Change{Kind: Added, Path: path.Join(rel, b.Name), Is: shown(b)})
	case b == nil:
		d.add(Change{Kind: Removed, Path: path.Join(rel, a.Name), Was: shown(a)})
	case *a != *b:
		d.add(Change{Kind: Changed, Path: path.Join(rel, a.Name), Was: shown(a), Is: shown(b)})
	}
	return nil
}
