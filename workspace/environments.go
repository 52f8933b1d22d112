package workspace

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/projectfiles"
	"e3/objectstore"
	dirtree "e3/objectstore/tree"
)

// preparedFor is the environment of a task's command; nil: it has none. Its platform is that of the machine that builds
// the package.
func preparedFor(def *manifest.Definition, t *manifest.Task) *record.Environment {
	p := def.EnvironmentOf(t.Spec)
	if p == nil {
		return nil
	}
	return &record.Environment{
		Argv: p.Command.Argv, Shell: p.Command.Shell, Path: p.Path, Env: p.Env, Tools: record.Names(p.Tools),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// environment reads the files of an environment as a directory, in which they have their paths in the project.
func (s *scan) environment(ctx context.Context, in *record.LinkInput) (record.Leaf, error) {
	var found []projectfiles.File
	for _, source := range manifest.FilesOf(in.Location) {
		files, err := environmentFiles(s.base, source)
		if err != nil {
			return record.Leaf{}, err
		}
		found = append(found, files...)
	}
	slices.SortFunc(found, func(a, b projectfiles.File) int { return strings.Compare(a.Path, b.Path) })
	found = slices.CompactFunc(found, func(a, b projectfiles.File) bool { return a.Path == b.Path })
	known := make(map[string]*record.LinkFile, len(in.Files))
	for i := range in.Files {
		known[in.Files[i].Path] = &in.Files[i]
	}
	files, placed := make([]record.LinkFile, len(found)), make([]dirtree.Placed, len(found))
	if err := s.each(ctx, len(found), func(ctx context.Context, i int) error {
		f, info, err := s.content(ctx, found[i].At, known[found[i].Path])
		if err != nil {
			return err
		}
		f.Path = found[i].Path
		files[i] = f
		stored := objectstore.Info{Hash: f.Hash, Size: info.Size()}
		placed[i] = dirtree.Placed{Path: f.Path, Info: stored, Executable: info.Mode()&0o100 != 0}
		return nil
	}); err != nil {
		return record.Leaf{}, err
	}
	h, err := dirtree.Build(ctx, s.states.Objects, placed)
	in.Files = files
	return record.Leaf{Kind: record.LeafDir, Hash: h.String()}, err
}

// environmentFiles are the files that one entry of from names.
func environmentFiles(base, source string) ([]projectfiles.File, error) {
	if !strings.ContainsAny(source, "*?") {
		return []projectfiles.File{{Path: source, At: filepath.Join(base, filepath.FromSlash(source))}}, nil
	}
	found, err := projectfiles.Match(base, source, manifest.NewExcept(nil, ""))
	if err == nil && len(found.Files) == 0 {
		err = fmt.Errorf("no file matches %s: %w", source, fs.ErrNotExist)
	}
	return found.Files, err
}
