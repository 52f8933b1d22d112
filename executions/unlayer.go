package executions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"

	"e3/internal/format/record"
	"e3/internal/host/beneath"
	"e3/internal/host/room"
	"e3/objectstore/tree"
)

// copyLayers makes copies in the working directory where layers cannot be mounted, for example on NFS. Later commands
// get no layers.
func (b *box) copyLayers(ctx context.Context) error {
	b.x.checkouts.layers.refused.Store(true)
	for _, l := range b.lent {
		if err := b.copyLayer(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// copyLayer makes one copy. It keeps changes and removals that a command in the room has made there.
func (b *box) copyLayer(ctx context.Context, l *layer) error {
	work := b.work
	for parent := filepath.Dir(l.rel); parent != "."; parent = filepath.Dir(parent) {
		if room.Gone(work, parent) {
			return work.Remove(parent)
		}
		if !work.IsDir(parent) || room.Hides(work, parent) {
			return nil
		}
	}
	_, err := work.Lstat(l.rel)
	switch {
	case l.entry.Kind != tree.KindDir && errors.Is(err, fs.ErrNotExist):
		perm := stagedFile
		if l.entry.Executable {
			perm = stagedExecutable
		}
		if err := b.x.objects.Materialize(ctx, l.entry.Hash, work, l.rel, perm); err != nil {
			return err
		}
		return b.fixMode(l.rel, perm)
	case errors.Is(err, fs.ErrNotExist):
		return b.checkOutLayer(ctx, l, work, l.rel)
	case err != nil:
		return err
	case l.entry.Kind == tree.KindDir && work.IsDir(l.rel) && !room.Hides(work, l.rel):
		const whole = "whole"
		err := b.checkOutLayer(ctx, l, b.root, whole)
		if err == nil {
			err = fillIn(b.root, whole, work, l.rel)
		}
		if err := errors.Join(err, b.root.Discard(whole)); err != nil {
			return err
		}
	}
	return removeGone(work, l.rel)
}

func (b *box) checkOutLayer(ctx context.Context, l *layer, in *beneath.Dir, to string) error {
	_, err := tree.CheckoutIn(ctx, b.x.objects, l.entry.Hash, in, to, tree.CheckoutOptions{Fixed: true, Strips: b.strips})
	return err
}

// fillIn moves the content of one folder into another, except what the other has or hides.
func fillIn(in *beneath.Dir, from string, at *beneath.Dir, to string) error {
	source, err := in.Sub(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := at.Sub(to)
	if err != nil {
		return err
	}
	defer target.Close()
	entries, err := source.ReadDir()
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		info, err := target.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = source.Rename(name, target, name)
		case err == nil && e.IsDir() && info.IsDir() && !room.Hides(target, name):
			err = fillIn(source, name, target, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeGone removes the marks of removed files at a path and below it.
func removeGone(work *beneath.Dir, rel string) error {
	if room.Gone(work, rel) {
		return work.Remove(rel)
	}
	if !work.IsDir(rel) {
		return nil
	}
	top, err := work.Sub(rel)
	if err != nil {
		return err
	}
	defer top.Close()
	return top.Walk(func(file string, e fs.DirEntry, err error) error {
		if err == nil && e.Type()&fs.ModeCharDevice != 0 && room.Gone(top, file) {
			return top.Remove(file)
		}
		if errors.Is(err, fs.ErrPermission) { // a folder that the command has made inaccessible
			return fs.SkipDir
		}
		return err
	})
}

// lendAgain gives a kept folder its layers again, below what its command has written.
func (b *box) lendAgain(ctx context.Context) (err error) {
	if !b.root.IsDir(scratchFolder) {
		return nil
	}
	for i, in := range b.spec.Inputs {
		rel, err := local(in.Path)
		if err != nil || in.Path == "" || in.Kind == record.KindValue {
			continue
		}
		entry, ok, err := b.layered(ctx, in, b.req.Inputs[i], rel)
		if err == nil && ok {
			err = b.lendTo(ctx, in, rel, entry)
		}
		if err != nil {
			return fmt.Errorf("input %s: %w", in.Name, err)
		}
	}
	// The kernel refuses the scratch folder of an earlier room, and several people may look at the folder.
	for {
		b.scratch = fmt.Sprintf("%s-%08x", scratchFolder, rand.Uint32())
		if err := b.root.Mkdir(b.scratch, 0o700); !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
}

// leaveLayers ends a visit of a kept folder.
func (b *box) leaveLayers() error {
	b.x.checkouts.returnLayers(b.lent)
	if b.lent = nil; b.scratch == "" {
		return nil
	}
	return b.root.Discard(b.scratch)
}
