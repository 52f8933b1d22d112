package executions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"e3/internal/format/record"
	"e3/internal/host/atomicfile"
	"e3/internal/host/room"
	"e3/objectstore/tree"
)

// copyLayers makes copies in the working directory where layers cannot be mounted, for example on NFS. Later commands
// get no layers.
func copyLayers(ctx context.Context, a *attempt) error {
	a.x.checkouts.layers.refused.Store(true)
	for _, l := range a.box.lent {
		if err := copyLayer(ctx, a, l); err != nil {
			return err
		}
	}
	return nil
}

// copyLayer makes one copy. Changes and removals that a command in the room has made there stay.
func copyLayer(ctx context.Context, a *attempt, l *layer) error {
	path := filepath.Join(a.box.work, l.rel)
	for parent := filepath.Dir(l.rel); parent != "."; parent = filepath.Dir(parent) {
		dir := filepath.Join(a.box.work, parent)
		if room.Gone(dir) {
			return os.Remove(dir)
		}
		if !isFolder(dir) || room.Hides(dir) {
			return nil
		}
	}
	_, err := os.Lstat(path)
	switch {
	case l.entry.Kind != tree.KindDir && errors.Is(err, fs.ErrNotExist):
		perm := stagedFile
		if l.entry.Executable {
			perm = stagedExecutable
		}
		if err := a.x.objects.Materialize(ctx, l.entry.Hash, path, perm); err != nil {
			return err
		}
		return a.box.fix(path, perm)
	case errors.Is(err, fs.ErrNotExist):
		return checkOutLayer(ctx, a, l, path)
	case err != nil:
		return err
	case l.entry.Kind == tree.KindDir && isFolder(path) && !room.Hides(path):
		whole := filepath.Join(a.box.root, "whole")
		err := checkOutLayer(ctx, a, l, whole)
		if err == nil {
			err = fillIn(whole, path)
		}
		if err := errors.Join(err, atomicfile.RemoveAll(whole)); err != nil {
			return err
		}
	}
	return removeGone(path)
}

func checkOutLayer(ctx context.Context, a *attempt, l *layer, to string) error {
	_, err := tree.Checkout(ctx, a.x.objects, l.entry.Hash, to, tree.CheckoutOptions{Fixed: true, Strips: a.box.strips})
	return err
}

// fillIn moves what is in one folder to another, which hides some of it.
func fillIn(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		info, err := os.Lstat(target)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = os.Rename(source, target)
		case err == nil && e.IsDir() && info.IsDir() && !room.Hides(target):
			err = fillIn(source, target)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeGone removes the marks of removed files below a path.
func removeGone(path string) error {
	return filepath.WalkDir(path, func(file string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && file == path {
			return nil
		}
		if err == nil && e.Type()&fs.ModeCharDevice != 0 && room.Gone(file) {
			return os.Remove(file)
		}
		if errors.Is(err, fs.ErrPermission) { // a folder that the command has closed
			return fs.SkipDir
		}
		return err
	})
}

// lendAgain gives a kept folder its layers again, below what its command has written.
func lendAgain(ctx context.Context, a *attempt) (err error) {
	if !isFolder(filepath.Join(a.box.root, scratchFolder)) {
		return nil
	}
	for i, in := range a.spec.Inputs {
		rel, err := local(in.Path)
		if err != nil || in.Path == "" || in.Kind == record.KindValue {
			continue
		}
		entry, ok, err := layered(ctx, a, in, a.req.Inputs[i], rel)
		if err == nil && ok {
			err = lendTo(ctx, a, in, rel, entry)
		}
		if err != nil {
			return fmt.Errorf("input %s: %w", in.Name, err)
		}
	}
	// The kernel refuses the scratch folder of an earlier room, and several people may look at the folder.
	a.box.scratch, err = os.MkdirTemp(a.box.root, scratchFolder+"-")
	return err
}

// leaveLayers ends a visit of a kept folder.
func leaveLayers(a *attempt) error {
	a.x.checkouts.leave(a.box.lent)
	if a.box.lent = nil; a.box.scratch == "" {
		return nil
	}
	return atomicfile.RemoveAll(a.box.scratch)
}
