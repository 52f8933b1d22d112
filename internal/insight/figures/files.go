package figures

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// A File is a file that a view selects.
type File struct {
	Path  string // in the output's directory; if the output is a file, its name
	Inner bool   // the output is a directory
	Hash  objectstore.Hash
	Size  int64 // -1: not known
}

// maxSeen bounds the entries of a directory that a pattern is compared with.
const maxSeen = 1_000_000

// Find returns the first files, at most so many, that a view selects in the output of a task, in the order of their paths. dir says
// that the output's object is a directory, of several outputs or as the only one. A path that is not there is an error,
// fs.ErrNotExist; objectstore.ErrNotFound says that an object is gone. more says that there are more files.
func Find(ctx context.Context, objects objectstore.Store, v *record.View, output objectstore.Hash, dir bool, most int) (list []File, more bool, err error) {
	at := tree.Entry{Kind: tree.KindFile, Hash: output, Size: -1}
	if dir {
		at.Kind = tree.KindDir
	}
	if v.Entry != "" {
		if at, err = tree.Lookup(ctx, objects, output, v.Entry); err != nil {
			return nil, false, err
		}
	}
	switch at.Kind {
	case tree.KindFile:
		return []File{{v.Path, false, at.Hash, at.Size}}, false, nil
	case tree.KindLink:
		return nil, false, errors.New("it is a link")
	}
	folder, pattern := v.Path, ""
	if strings.ContainsAny(v.Path, "*?") {
		folder, pattern = manifest.GlobPrefix(v.Path), v.Path
	}
	if folder != "" && folder != "." {
		found, err := tree.Lookup(ctx, objects, at.Hash, folder)
		switch {
		case errors.Is(err, fs.ErrNotExist) && pattern != "":
			return nil, false, nil
		case errors.Is(err, fs.ErrNotExist):
			return nil, false, fmt.Errorf("there is no %s in it: %w", v.Path, err)
		case err != nil:
			return nil, false, err
		case found.Kind == tree.KindLink:
			return nil, false, fmt.Errorf("%s is a link", v.Path)
		case found.Kind == tree.KindFile && pattern == "":
			return []File{{v.Path, true, found.Hash, found.Size}}, false, nil
		case found.Kind == tree.KindFile:
			return nil, false, nil
		}
		at = found
	}
	seen := 0
	err = tree.Walk(ctx, objects, at.Hash, func(rel string, e tree.Entry) error {
		rel = path.Join(folder, rel)
		if seen++; seen > maxSeen {
			more = true
			return fs.SkipAll
		}
		if e.Kind != tree.KindFile || pattern != "" && !manifest.MatchGlob(pattern, rel) {
			return nil
		}
		if len(list) >= most {
			more = true
			return fs.SkipAll
		}
		list = append(list, File{rel, true, e.Hash, e.Size})
		return nil
	})
	return list, more, err
}

// Covers reports whether a view of a directory selects the file at a path in it.
func Covers(v *record.View, rel string) bool {
	if strings.ContainsAny(v.Path, "*?") {
		return manifest.MatchGlob(v.Path, rel)
	}
	return v.Path == "" || v.Path == rel || strings.HasPrefix(rel, v.Path+"/")
}
