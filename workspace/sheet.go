package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"e3/internal/format/items"
	"e3/internal/format/record"
	"e3/internal/projectfiles"
	"e3/objectstore"
	dirtree "e3/objectstore/tree"
)

// sheet reads a list with the files and folders that its cells name, as one directory in which each has its own path.
func (s *scan) sheet(ctx context.Context, in *record.LinkInput) (record.Leaf, error) {
	known := make(map[string]*record.LinkFile, len(in.Files))
	for i := range in.Files {
		known[in.Files[i].Path] = &in.Files[i]
	}
	list, _, err := s.content(ctx, filepath.Join(s.base, filepath.FromSlash(in.Location)), known[in.Location])
	if err != nil {
		return record.Leaf{}, err
	}
	data, err := objectstore.ReadAll(ctx, s.states.Objects, list.Hash, items.MaxFile)
	if err != nil {
		return record.Leaf{}, err
	}
	cells, err := items.Paths(in.Location, data, in.Columns)
	if err != nil {
		return record.Leaf{}, err
	}
	named, err := s.named(in, cells)
	if err != nil {
		return record.Leaf{}, err
	}
	files := make([]record.LinkFile, len(named))
	placed := make([]dirtree.Placed, len(named))
	if err := s.each(ctx, len(named), func(ctx context.Context, i int) error {
		f, info, err := s.content(ctx, named[i].At, known[named[i].Path])
		if err != nil {
			return err
		}
		f.Path = named[i].Path
		files[i] = f
		stored := objectstore.Info{Hash: f.Hash, Size: info.Size()}
		placed[i] = dirtree.Placed{Path: f.Path, Info: stored, Executable: info.Mode()&0o100 != 0}
		return nil
	}); err != nil {
		return record.Leaf{}, err
	}
	h, err := dirtree.Build(ctx, s.states.Objects, placed)
	if err != nil {
		return record.Leaf{}, err
	}
	in.Files = files
	return record.Leaf{Kind: record.LeafDir, Hash: h.String()}, nil
}

// named are the files that a sheet consists of, each once: the sheet itself, and what its cells name.
func (s *scan) named(in *record.LinkInput, cells []items.Cell) ([]projectfiles.File, error) {
	const most = 20 // faults
	var list []projectfiles.File
	var faults []error
	seen, folders := map[string]bool{}, map[string]bool{}
	add := func(files ...projectfiles.File) {
		for _, f := range files {
			if !seen[f.Path] {
				seen[f.Path] = true
				list = append(list, f)
			}
		}
	}
	at := func(rel string) string { return filepath.Join(s.base, filepath.FromSlash(rel)) }
	add(projectfiles.File{Path: in.Location, At: at(in.Location)})
	for _, c := range cells {
		if !c.Folder && seen[c.Path] || c.Folder && folders[c.Path] || len(faults) == most {
			continue
		}
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("%s: "+format, append([]any{c.Where}, args...)...))
		}
		switch info, err := os.Stat(at(c.Path)); {
		case errors.Is(err, fs.ErrNotExist):
			fault("there is no %s; paths are relative to the package file", c.Path)
		case err != nil:
			fault("%v", err)
		case info.IsDir() && !c.Folder:
			fault("%s is a folder: write %s/", c.Path, c.Path)
		case !info.IsDir() && c.Folder:
			fault("%s is a file: write it without the slash at its end", c.Path)
		case !c.Folder:
			add(projectfiles.File{Path: c.Path, At: at(c.Path)})
		default:
			folders[c.Path] = true
			found, err := projectfiles.Below(s.base, c.Path, exceptOf(in))
			if err == nil && len(found) == 0 {
				err = errors.New("it has no files")
			}
			if err != nil {
				fault("%s: %v", c.Path, err)
			}
			add(found...)
		}
	}
	return list, errors.Join(faults...)
}

// sheetIn finds the file of a sheet in its directory.
func sheetIn(ctx context.Context, from objectstore.Store, dir objectstore.Hash, path string) (objectstore.Hash, error) {
	for name := range strings.SplitSeq(path, "/") {
		entries, err := dirtree.Read(ctx, from, dir)
		if err != nil {
			return dir, err
		}
		e, ok := entries.Find(name)
		if !ok {
			return dir, fmt.Errorf("there is no %s in it", path)
		}
		dir = e.Hash
	}
	return dir, nil
}
