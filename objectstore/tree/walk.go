package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"e3/objectstore"
)

// Read returns the directory object h.
func Read(ctx context.Context, s objectstore.Store, h objectstore.Hash) (Entries, error) {
	b, err := objectstore.ReadAll(ctx, s, h, MaxBytes)
	if err != nil {
		return nil, err
	}
	t, err := Decode(b)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", h, err)
	}
	return t, nil
}

// Walk calls visit for every entry below the tree h, parents before their content, in order; rel is the path within
// the tree. If visit returns fs.SkipDir for a directory it is not entered. A small tree can name one directory very
// many times, so a caller that needs each object once should skip directories that it has seen. fs.SkipAll ends the
// walk without an error.
func Walk(ctx context.Context, s objectstore.Store, h objectstore.Hash, visit func(rel string, e Entry) error) error {
	err := walk(ctx, s, h, "", 0, visit)
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return err
}

func walk(ctx context.Context, s objectstore.Store, h objectstore.Hash, rel string, depth int, visit func(string, Entry) error) error {
	if depth > MaxDepth {
		return tooDeep(rel)
	}
	t, err := Read(ctx, s, h)
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
			if err := walk(ctx, s, e.Hash, at, depth+1, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

func tooDeep(rel string) error {
	return &Error{Path: rel, Msg: fmt.Sprintf("directories nest deeper than %d levels", MaxDepth)}
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
func Lookup(ctx context.Context, s objectstore.Store, h objectstore.Hash, rel string) (Entry, error) {
	if !fs.ValidPath(rel) {
		return Entry{}, &fs.PathError{Op: "lookup", Path: rel, Err: fs.ErrInvalid}
	}
	e := Entry{Kind: KindDir, Hash: h}
	for rest := rel; rest != "." && rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if e.Kind != KindDir {
			return Entry{}, &fs.PathError{Op: "lookup", Path: rel, Err: fs.ErrNotExist}
		}
		t, err := Read(ctx, s, e.Hash)
		if err != nil {
			return Entry{}, fmt.Errorf("lookup %s: %w", rel, err)
		}
		found, ok := t.Find(name)
		if !ok {
			return Entry{}, &fs.PathError{Op: "lookup", Path: rel, Err: fs.ErrNotExist}
		}
		e = found
	}
	return e, nil
}
