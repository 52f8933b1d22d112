package compare

import (
	"context"
	"errors"
	"fmt"
	"path"

	"e3/objectstore"
	"e3/objectstore/tree"
)

// maxWalk is the number of directory entries after which a walk gives up. Without it, a few objects that name each
// other many times could make a practically endless walk.
const maxWalk = 1 << 20

// files compares two directories, file by file. The result says which directories could not be read.
func (c *comparison) files(was, is string) (*Files, error) {
	a, err := objectstore.ParseHash(was)
	if err != nil {
		return nil, err
	}
	b, err := objectstore.ParseHash(is)
	if err != nil {
		return nil, err
	}
	f := &differ{c: c, out: &Files{Changes: []FileChange{}}}
	for change, err := range tree.Diff(c.ctx, c.objects, a, b) {
		if err == nil {
			err = f.change(change)
		}
		if err == nil {
			continue
		}
		if err = f.fault(err); err != nil {
			return nil, err
		}
		break
	}
	return f.out, nil
}

// differ gathers the changes within a directory.
type differ struct {
	c     *comparison
	out   *Files
	steps int
}

var errEnough = errors.New("enough")

// fault records why a walk ended early. It returns errors that do not come from the directories.
func (f *differ) fault(err error) error {
	var corrupt *objectstore.CorruptError
	var bad *tree.Error
	switch {
	case f.c.ctx.Err() != nil:
		return context.Cause(f.c.ctx)
	case errors.Is(err, errEnough):
		f.out.Unknown = fmt.Sprintf("there are more than %d changes", maxWalk)
	case errors.Is(err, objectstore.ErrNotFound):
		f.out.Unknown = "a part of the directories is not in the store"
	case errors.As(err, &corrupt), errors.As(err, &bad):
		f.out.Unknown = err.Error()
	default:
		return err
	}
	return nil
}

// change adds a change. For a directory that only one side has, it adds the entries. If one side has a file and the
// other a directory, the file comes first, so that the order does not depend on the order of the sides.
func (f *differ) change(t tree.Change) error {
	wasDir := t.Was != nil && t.Was.Kind == tree.KindDir
	isDir := t.Is != nil && t.Is.Kind == tree.KindDir
	if !wasDir && !isDir {
		return f.add(t.Path, t.Was, t.Is)
	}
	if t.Was != nil && !wasDir {
		if err := f.add(t.Path, t.Was, nil); err != nil {
			return err
		}
	}
	if t.Is != nil && !isDir {
		if err := f.add(t.Path, nil, t.Is); err != nil {
			return err
		}
	}
	for _, e := range []*tree.Entry{t.Was, t.Is} {
		if e == nil || e.Kind != tree.KindDir {
			continue
		}
		if err := f.into(t.Path, e, e == t.Was); err != nil {
			return err
		}
	}
	return nil
}

// into adds all entries of a directory that only one side has.
func (f *differ) into(at string, dir *tree.Entry, was bool) error {
	side := func(rel string, e *tree.Entry) error {
		if was {
			return f.add(rel, e, nil)
		}
		return f.add(rel, nil, e)
	}
	empty := true
	err := tree.Walk(f.c.ctx, f.c.objects, dir.Hash, func(rel string, e tree.Entry) error {
		empty = false
		if e.Kind == tree.KindDir {
			return f.step()
		}
		return side(path.Join(at, rel), &e)
	})
	if err == nil && empty {
		return side(at, dir)
	}
	return err
}

func (f *differ) step() error {
	if f.steps++; f.steps > maxWalk {
		return errEnough
	}
	return nil
}

// add counts a change, and keeps it while there is room.
func (f *differ) add(at string, was, is *tree.Entry) error {
	if err := f.step(); err != nil {
		return err
	}
	c := FileChange{Path: at, Change: Changed, Was: fileOf(was), Is: fileOf(is)}
	switch {
	case was == nil:
		c.Change = Added
		f.out.Added++
	case is == nil:
		c.Change = Removed
		f.out.Removed++
	default:
		f.out.Changed++
	}
	if was != nil {
		f.out.Bytes -= was.Size
	}
	if is != nil {
		f.out.Bytes += is.Size
	}
	if len(f.out.Changes) < MaxFiles {
		f.out.Changes = append(f.out.Changes, c)
	} else {
		f.out.More++
	}
	return nil
}

func fileOf(e *tree.Entry) *File {
	if e == nil {
		return nil
	}
	switch e.Kind {
	case tree.KindDir:
		return &File{Kind: "directory"}
	case tree.KindLink:
		return &File{Kind: "link", Target: e.Target}
	}
	return &File{Kind: "file", Size: e.Size, Executable: e.Executable}
}

// weigh counts the files of a directory and their bytes. complete is false if a part is not in the store, or if there
// are too many entries.
func (c *comparison) weigh(h objectstore.Hash) (files, size int64, complete bool, err error) {
	steps := 0
	err = tree.Walk(c.ctx, c.objects, h, func(_ string, e tree.Entry) error {
		if steps++; steps > maxWalk {
			return errEnough
		}
		if e.Kind == tree.KindFile {
			files++
			size += e.Size
		}
		return nil
	})
	if err == nil {
		return files, size, true, nil
	}
	f := differ{c: c, out: &Files{}}
	return 0, 0, false, f.fault(err)
}
