package verify

import (
	"context"
	"fmt"

	"e3/objectstore"
	"e3/objectstore/tree"
)

// MaxChanges bounds Again.Changes.
const MaxChanges = 1000

// ChangeKind is a kind of difference.
type ChangeKind string

// The kinds of changes.
const (
	Added   ChangeKind = "added"
	Removed ChangeKind = "removed"
	Changed ChangeKind = "changed"
)

// A Change is an entry of an output that differs between the two executions.
type Change struct {
	Kind ChangeKind `json:"kind"`
	Path string     `json:"path,omitempty"` // absent for a file
	Was  string     `json:"was,omitempty"`  // such as "executable, 12 bytes" or "link to x"
	Is   string     `json:"is,omitempty"`
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

// shown describes an entry.
func shown(e *tree.Entry) string {
	switch e.Kind {
	case tree.KindDir:
		return "directory"
	case tree.KindLink:
		return "link to " + e.Target
	}
	if e.Executable {
		return "executable, " + sized(e.Size)
	}
	return sized(e.Size)
}

// trees compares two directories entry by entry.
func (d *differ) trees(was, is objectstore.Hash) error {
	for c, err := range tree.Diff(d.ctx, d.objects, was, is) {
		switch {
		case err != nil:
			return err
		case c.Was == nil:
			d.add(Change{Kind: Added, Path: c.Path, Is: shown(c.Is)})
		case c.Is == nil:
			d.add(Change{Kind: Removed, Path: c.Path, Was: shown(c.Was)})
		default:
			d.add(Change{Kind: Changed, Path: c.Path, Was: shown(c.Was), Is: shown(c.Is)})
		}
	}
	return nil
}
