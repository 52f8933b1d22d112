package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// ReadTree returns the directory object h.
func ReadTree(ctx context.Context, s Store, h Hash) (Tree, error) {
	b, err := ReadAll(ctx, s, h, MaxTreeBytes)
	if err != nil {
		return nil, err
	}
	t, err := DecodeTree(b)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", h, err)
	}
	return t, nil
}

// WalkTree calls visit for every entry below the tree h, parents before their content, in order; rel is the path within
// the tree. If visit returns fs.SkipDir for a directory it is not entered. A small tree can name one directory very
// many times, so a caller that needs each object once should skip directories that it has seen. fs.SkipAll ends the
// walk without an error.
func WalkTree(ctx context.Context, s Store, h Hash, visit func(rel string, e TreeEntry) error) error {
	err := walkTree(ctx, s, h, "", 0, visit)
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return err
}

func walkTree(ctx context.Context, s Store, h Hash, rel string, depth int, visit func(string, TreeEntry) error) error {
	if depth > MaxTreeDepth {
		return tooDeep(rel)
	}
	t, err := ReadTree(ctx, s, h)
	if err != nil {
		return fmt.Errorf("directory %q: %w", orRoot(rel), err)
	}
	for _, e := range t {
		at := path.Join(rel, e.Name)
		switch err := visit(at, e); {
		case err == fs.SkipDir && e.Kind == KindDir:
			continue
		case err != nil:
			return err
		}
		if e.Kind == KindDir {
			if err := walkTree(ctx, s, e.Hash, at, depth+1, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

func tooDeep(rel string) error {
	return &TreeError{Path: rel, Msg: fmt.Sprintf("directories nest deeper than %d levels", MaxTreeDepth)}
}

// orRoot returns rel, or "." for the root.
func orRoot(rel string) string {
	if rel == "" {
		return "."
	}
	return rel
}

// Lookup returns the entry at rel, a path with slashes as fs.ValidPath has them, in the tree h. "." is the tree
// itself, as a directory without a name. Links are entries and are not followed. An absent path, or one below an
// entry that is no directory, is fs.ErrNotExist; ErrNotFound says that a directory object is missing from the store.
func Lookup(ctx context.Context, s Store, h Hash, rel string) (TreeEntry, error) {
	if !fs.ValidPath(rel) {
		return TreeEntry{}, &fs.PathError{Op: "lookup", Path: rel, Err: fs.ErrInvalid}
	}
	e := TreeEntry{Kind: KindDir, Hash: h}
	for rest := rel; rest != "." && rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if e.Kind != KindDir {
			return TreeEntry{}, &fs.PathError{Op: "lookup", Path: rel, Err: fs.ErrNotExist}
		}
		t, err := ReadTree(ctx, s, e.Hash)
		if err != nil {
			return TreeEntry{}, fmt.Errorf("lookup %s: %w", rel, err)
		}
		found, ok := t.Find(name)
		if !ok {
			return TreeEntry{}, &fs.PathError{Op: "lookup", Path: rel, Err: fs.ErrNotExist}
		}
		e = found
	}
	return e, nil
}
