package resultdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/workspace"
)

// want is a file, link or empty folder that is to be there.
type want struct {
	path   string
	kind   record.ResultKind
	hash   objectstore.Hash // of the content, or of a link's target
	target string           // of a link
}

// maxEntries bounds what one Write leaves: small directory objects that name each other could otherwise fill any disk.
const maxEntries = 10_000_000

// flatten lists the files of the items.
func (f *Folder) flatten(ctx context.Context, items []Item) ([]want, error) {
	var wants []want
	for _, item := range items {
		h, err := objectstore.ParseHash(item.Leaf.Hash)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", item.Path, err)
		}
		switch item.Leaf.Kind {
		case record.LeafFile:
			wants = append(wants, want{path: item.Path, kind: fileKind(item.Leaf.Executable), hash: h})
		case record.LeafDir:
			if wants, err = f.below(ctx, wants, item.Path, item.Path, h, 0); err != nil {
				return nil, fmt.Errorf("%s: %w", item.Path, err)
			}
		default:
			return nil, fmt.Errorf("%s is neither a file nor a folder", item.Path)
		}
	}
	return wants, nil
}

func fileKind(executable bool) record.ResultKind {
	if executable {
		return record.ResultExecutable
	}
	return record.ResultFileKind
}

// below adds what is in a directory at the path at, of the item at the path top.
func (f *Folder) below(ctx context.Context, wants []want, top, at string, h objectstore.Hash, depth int) ([]want, error) {
	entries, err := tree.Read(ctx, f.Objects, h)
	if err != nil {
		return nil, err
	}
	switch {
	case depth > tree.MaxDepth:
		return nil, fmt.Errorf("%s: folders are nested too deeply", at)
	case len(wants)+len(entries) > maxEntries:
		return nil, fmt.Errorf("there are more than %d entries", maxEntries)
	case len(entries) == 0:
		return append(wants, want{path: at, kind: record.ResultFolder}), nil
	}
	for i := range entries {
		e := &entries[i]
		p := at + "/" + e.Name
		switch e.Kind {
		case tree.KindDir:
			if wants, err = f.below(ctx, wants, top, p, e.Hash, depth+1); err != nil {
				return nil, err
			}
		case tree.KindFile:
			wants = append(wants, want{path: p, kind: fileKind(e.Executable), hash: e.Hash})
		default:
			if to := path.Join(at, e.Target); path.IsAbs(e.Target) || to != top && !strings.HasPrefix(to, top+"/") {
				return nil, fmt.Errorf("the link %s leads out of its directory, to %q", p, e.Target)
			}
			wants = append(wants, want{path: p, kind: record.ResultLink, hash: objectstore.Sum([]byte(e.Target)), target: e.Target})
		}
	}
	return wants, nil
}

// found is what lies at a path.
type found struct {
	known bool // hash and kind are known
	kind  form
	hash  objectstore.Hash
	ours  bool // nobody edited it since it was written
}

// form is the kind of a result apart from its executable bit.
type form uint8

const (
	aFile form = iota
	aLink
	aFolder
)

func (f form) sameForm(k record.ResultKind) bool {
	switch k {
	case record.ResultLink:
		return f == aLink
	case record.ResultFolder:
		return f == aFolder
	}
	return f == aFile
}

// look finds out what lies at a path and, if it is not as it was written, why it must be kept.
func (w *writer) look(ctx context.Context, p string, info fs.FileInfo) (is found, why string, err error) {
	e := w.files[p]
	why = "it was edited since it was written"
	if e == nil {
		why = "it was there before, with other content"
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return found{known: true, kind: aFolder, ours: e != nil && e.Kind == record.ResultFolder}, "there is a folder", nil
	case mode&fs.ModeSymlink != 0:
		target, err := w.Root.Readlink(p)
		if err != nil {
			return is, "", err
		}
		is = found{known: true, kind: aLink, hash: objectstore.Sum([]byte(target))}
	case !mode.IsRegular():
		return is, "it is no regular file", nil
	case e != nil && e.Next == nil && workspace.Proves(e.Stat, workspace.Stat(info)):
		return found{known: true, kind: aFile, hash: e.Hash, ours: true}, "", nil
	default:
		f, err := w.Root.Open(p)
		if err != nil {
			return is, "it cannot be read: " + err.Error(), nil
		}
		defer f.Close()
		content, err := objectstore.HashReader(ctx, f)
		if err != nil {
			return is, "it cannot be read: " + err.Error(), nil
		}
		is = found{known: true, kind: aFile, hash: content.Hash}
		// After a power loss a renamed file may be empty. Nothing is lost with it.
		if e != nil && info.Size() == 0 {
			is.ours = true
		}
	}
	if e != nil && (is.hash == e.Hash || e.Next != nil && string(is.hash[:]) == string(e.Next)) {
		is.ours = true
	}
	return is, why, nil
}

// isInTheWay reports whether a part of a path is no folder.
func isInTheWay(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR)
}

// escapes says that a path cannot be reached in the folder.
func escapes(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	if strings.Contains(err.Error(), "escapes") {
		return "a symbolic link leads out of the folder"
	}
	return err.Error()
}
