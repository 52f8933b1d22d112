package exportimport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/format/zipfile"
	"e3/internal/host/atomicfile"
	"e3/internal/insight/runview"
	"e3/internal/reach"
	"e3/objectstore"
	"e3/workspace"
)

// ExportOptions adjust an export. The zero value is usable.
type ExportOptions struct {
	AllHistory bool           // every execution of the package's tasks, in addition to those of the run
	Images     bool           // take along the images of tasks
	NoData     bool           // leave out the content of inputs marked "export: false"
	Replace    bool           // replace an existing file
	Key        *signature.Key // signs the zip; nil: it is not signed
	Workers    int            // blocks compressed at a time; 0: one for each core
	// Progress receives the number of bytes read and their total, from several goroutines.
	Progress func(done, total int64)
}

// Exported is what was exported.
type Exported struct {
	File       string               `json:"file"`
	Workspace  string               `json:"workspace,omitempty"` // absent for a package
	Package    workspace.PackageRef `json:"package"`
	RunID      string               `json:"run,omitempty"`
	Executions int                  `json:"executions"`
	Objects    int                  `json:"objects"`
	Content    int64                `json:"contentBytes"` // of all entries
	Size       int64                `json:"size"`         // of the zip
	Signer     *runview.Signer      `json:"signer"`       // null: unsigned
	Notes      []string             `json:"notes"`
}

// exporter is one export.
type exporter struct {
	repo    *Repository
	opts    ExportOptions
	objects *overlay
	tasks   tasks
	dir     string // where the zip is written
	name    string // the zip's name there

	unprotected bool // a collection may remove exported objects meanwhile
}

func (r *Repository) exporter(o ExportOptions) *exporter {
	x := &exporter{repo: r, opts: o, objects: &overlay{Objects: r.Objects, extra: map[objectstore.Hash][]byte{}}}
	x.tasks.objects = x.objects
	return x
}

// ErrFileExists is wrapped if the file of an export exists.
var ErrFileExists = errors.New("the file exists")

// ExportWorkspace writes a workspace to a zip at path: its latest run that has ended, all executions of that run, and
// the executions of its present results, whichever run made them. The zip is written completely or not at all.
func (r *Repository) ExportWorkspace(ctx context.Context, ws, path string, o ExportOptions) (*Exported, error) {
	x := r.exporter(o)
	return x.to(ctx, path, func(ctx context.Context, out *os.File) (*Exported, error) {
		return x.workspace(ctx, ws, out)
	})
}

// ExportPackage writes a registered package to a zip at path, as ExportWorkspace does.
func (r *Repository) ExportPackage(ctx context.Context, ref workspace.PackageRef, path string, o ExportOptions) (*Exported, error) {
	x := r.exporter(o)
	return x.to(ctx, path, func(ctx context.Context, out *os.File) (*Exported, error) {
		return x.pkg(ctx, ref, out)
	})
}

// to has a zip written to a file without a name, syncs it, and names it.
func (x *exporter) to(ctx context.Context, path string, write func(context.Context, *os.File) (*Exported, error)) (*Exported, error) {
	if !x.opts.Replace { // before all the work; naming it checks again
		if _, err := os.Lstat(path); err == nil {
			return nil, fmt.Errorf("%s: %w", path, ErrFileExists)
		}
	}
	x.dir, x.name = filepath.Dir(path), filepath.Base(path)
	fail := func(err error) (*Exported, error) { return nil, fmt.Errorf("export to %s: %w", path, err) }
	out, err := atomicfile.NewHidden(x.dir, x.name, 0o666)
	if err != nil {
		return fail(err)
	}
	defer out.Discard() // after an error; nothing of it is kept
	res, err := write(ctx, out.File)
	if err != nil && x.unprotected && errors.Is(err, objectstore.ErrNotFound) {
		return nil, fmt.Errorf("%w; you cannot write in the repository, so nothing kept it from being collected: if it is there, try again", err)
	}
	if err != nil {
		return nil, err
	}
	if err := out.Sync(); err != nil {
		return fail(err)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	name := out.Create
	if x.opts.Replace {
		name = out.Replace
	}
	err = name(path)
	if errors.Is(err, fs.ErrExist) && !x.opts.Replace {
		return nil, fmt.Errorf("%s: %w", path, ErrFileExists)
	}
	if err != nil {
		return fail(err)
	}
	if err := atomicfile.SyncDir(x.dir); err != nil {
		return fail(err)
	}
	return res, nil
}

// tries bounds the restarts of an export because executions were pruned during it.
const tries = 3

func (x *exporter) workspace(ctx context.Context, ws string, out *os.File) (*Exported, error) {
	for try := 1; ; try++ {
		res, err := x.tryWorkspace(ctx, ws, out)
		var pruned *prunedError
		if err == nil || try == tries || !errors.As(err, &pruned) {
			return res, err
		}
		if err := out.Truncate(0); err != nil {
			return nil, err
		}
	}
}

func (x *exporter) tryWorkspace(ctx context.Context, ws string, out *os.File) (*Exported, error) {
	s, release, err := x.take(ctx, ws)
	if err != nil {
		return nil, err
	}
	defer release()
	if s.pkgBytes != nil {
		x.objects.extra[objectstore.Sum(s.pkgBytes)] = s.pkgBytes
	}
	f := newFinder(x.repo)
	if s.run != nil {
		if err := f.run(ctx, ws, s.run, s.deployed); err != nil {
			return nil, err
		}
		if err := f.attempts(ctx, ws, s.run); err != nil {
			return nil, err
		}
	}
	find := f.answers
	if s.pkg == nil {
		find = f.eastMakers
	}
	if err := find(ctx, s); err != nil {
		return nil, err
	}
	if x.opts.AllHistory {
		hashes, err := x.taskHashes(ctx, s)
		if err != nil {
			return nil, err
		}
		if err := f.history(ctx, hashes); err != nil {
			return nil, err
		}
	}
	list := f.sorted()
	s.notes = append(s.notes, f.notes...)
	return x.write(ctx, s, list, out)
}

// taskHashes are the hashes of the package's task objects.
func (x *exporter) taskHashes(ctx context.Context, s *snapshot) ([]objectstore.Hash, error) {
	h, err := objectstore.ParseHash(s.state.PackageHash)
	if err != nil {
		return nil, err
	}
	refs, err := reach.Refs(ctx, x.objects, reach.Ref{Kind: reach.Package, Hash: h})
	if err != nil {
		return nil, fmt.Errorf("package: %w", err)
	}
	var list []objectstore.Hash
	for _, r := range refs {
		if r.Kind == reach.Task {
			list = append(list, r.Hash)
		}
	}
	return list, nil
}

func (x *exporter) pkg(ctx context.Context, ref workspace.PackageRef, out *os.File) (*Exported, error) {
	s := &snapshot{state: record.WorkspaceState{PackageName: ref.Name, PackageVersion: ref.Version, PackageHash: ref.Hash}}
	if err := x.begin(ctx); err != nil {
		return nil, err
	}
	release, err := x.protect(ctx, s)
	if err != nil {
		return nil, err
	}
	defer release()
	again, err := x.repo.Workspaces.Packages.Find(ctx, ref.Name, ref.Version)
	if err != nil {
		return nil, err
	}
	if again != ref {
		return nil, fmt.Errorf("package %s was replaced by another one of this name; try again", ref)
	}
	s.pkg, err = x.repo.Workspaces.Packages.Load(ctx, ref.Hash)
	if err != nil && !errors.Is(err, record.ErrType) {
		return nil, fmt.Errorf("package %s: %w", ref, err)
	}
	return x.write(ctx, s, nil, out)
}

// write makes the closure and writes the zip.
func (x *exporter) write(ctx context.Context, s *snapshot, list []*taken, out *os.File) (*Exported, error) {
	c, list, err := x.gather(ctx, s, list)
	if err != nil {
		return nil, err
	}
	spool, err := atomicfile.NewScratch(x.dir, x.name+".directory")
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	defer spool.Discard() // nothing of it is kept
	lines, err := atomicfile.NewScratch(x.dir, x.name+".sums")
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	defer lines.Discard()
	w := &zipWriter{
		x: x, s: s, manifest: signature.NewManifest(), lines: bufio.NewWriter(lines), written: lines.File,
		zip: zipfile.NewWriter(ctx, &atomicfile.Early{File: out}, spool, zipfile.Options{Workers: x.opts.Workers}),
	}
	defer w.zip.Abort()
	return w.write(ctx, c, list)
}
