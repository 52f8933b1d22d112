package tree

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"

	"e3/objectstore"
)

// A Placed is a file of a directory that Build makes. Its content is stored.
type Placed struct {
	Path       string // below the directory, with slashes
	Info       objectstore.Info
	Executable bool
}

// Build stores the directory that has these files and no others, and returns its name. No path may occur twice, or be a
// folder on the way to another path. An invalid name is an *Error.
func Build(ctx context.Context, s objectstore.Store, files []Placed) (objectstore.Hash, error) {
	entries := make(Entries, len(files))
	for i, f := range files {
		entries[i] = Entry{Name: f.Path, Kind: KindFile, Hash: f.Info.Hash, Size: f.Info.Size, Executable: f.Executable}
	}
	return Nest(ctx, s, entries)
}

// Nest is Build for entries of any kind, whose names are paths.
func Nest(ctx context.Context, s objectstore.Store, all Entries) (objectstore.Hash, error) {
	folders := map[string]Entries{".": nil} // by path, without the folders in them
	depths := [][]string{{"."}}             // the paths of the folders, by depth
	var add func(dir string) (depth int)
	add = func(dir string) int {
		depth := 0
		if dir != "." {
			depth = strings.Count(dir, "/") + 1
		}
		if _, known := folders[dir]; !known {
			add(path.Dir(dir))
			folders[dir] = nil
			for len(depths) <= depth {
				depths = append(depths, nil)
			}
			depths[depth] = append(depths[depth], dir)
		}
		return depth
	}
	for _, e := range all {
		if !fs.ValidPath(e.Name) || e.Name == "." {
			return objectstore.Hash{}, &Error{Path: e.Name, Msg: "the name is no path in a directory"}
		}
		dir := path.Dir(e.Name)
		if add(dir) > MaxDepth {
			return objectstore.Hash{}, tooDeep(dir)
		}
		e.Name = path.Base(e.Name)
		folders[dir] = append(folders[dir], e)
	}
	var top objectstore.Hash
	for depth := len(depths) - 1; depth >= 0; depth-- {
		stored := make([]objectstore.Hash, len(depths[depth]))
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(workers(0, s))
		for i, dir := range depths[depth] {
			g.Go(func() (err error) {
				entries := folders[dir]
				entries.Sort()
				b, err := Encode(entries)
				if bad := (*Error)(nil); errors.As(err, &bad) {
					bad.Path = path.Join(dir, bad.Path)
				}
				if err == nil {
					stored[i], err = objectstore.PutBytes(ctx, s, b)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return objectstore.Hash{}, err
		}
		for i, dir := range depths[depth] {
			if top = stored[i]; dir != "." {
				above := path.Dir(dir)
				folders[above] = append(folders[above], Entry{Name: path.Base(dir), Kind: KindDir, Hash: stored[i]})
			}
		}
	}
	return top, nil
}
