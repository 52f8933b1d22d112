package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"e3/internal/format/beast2"
	"e3/internal/host/beneath"
	"e3/objectstore"
)

// PutOptions adjust Put. The functions are called from several goroutines; rel is the
// path within the tree, with slashes.
type PutOptions struct {
	// Filter says what to include. A refused directory is not entered.
	Filter func(rel string, e fs.DirEntry) bool

	// Adopt moves the files into the store instead of copying them, if the store can do that as a *Dir does: the caller
	// must not need the directory any more. See Dir.Adopt.
	Adopt bool

	// Known returns the content of a file if the file's size and times are known, so that it need not be read. It
	// vouches that the object is in the store.
	Known func(rel string, fi fs.FileInfo) (objectstore.Info, bool)

	// Record is called with the content of a file that was read. fi dates from before the read.
	Record func(rel string, fi fs.FileInfo, info objectstore.Info)

	// Workers is the number of files that are read at a time; 0 means two for each core, or the number that a remote
	// store asks for.
	Workers int
}

// Stats counts what a tree holds.
type Stats struct {
	Files, Dirs, Links int64 // Dirs without the root
	Bytes              int64 // total size of the files
	Read               int64 // files that were read because Known did not have them
}

// Put stores the directory dir with everything in it and returns the name of its directory object. Files that
// change meanwhile are a *ChangedError; sockets, pipes and devices a *SpecialFileError; names that are not UTF-8 and
// links that lead outside an *Error. Links are stored as they are and never followed.
func Put(ctx context.Context, s objectstore.Store, dir string, o PutOptions) (objectstore.Hash, Stats, error) {
	root, err := beneath.Open(dir)
	if err != nil {
		return objectstore.Hash{}, Stats{}, fmt.Errorf("store directory: %w", err)
	}
	return PutDir(ctx, s, root, o)
}

// PutDir is Put for an open directory, which it closes. In a confined directory, a mount is an error.
func PutDir(ctx context.Context, s objectstore.Store, root *beneath.Dir, o PutOptions) (objectstore.Hash, Stats, error) {
	dir := root.Name()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers(o.Workers, s))
	p := &putter{ctx: ctx, store: s, o: o, group: g, links: links{}}
	p.adopter, _ = s.(objectstore.Adopter)
	top := &putDir{root: root}
	walkErr := p.walk(top)
	err := g.Wait()
	if err == nil || !errors.Is(walkErr, context.Canceled) {
		err = errors.Join(walkErr, err) // otherwise the walk stopped because of a worker's error
	}
	if err != nil {
		return objectstore.Hash{}, Stats{}, fmt.Errorf("store directory %s: %w", dir, err)
	}
	return top.hash, Stats{
		Files: p.files.Load(), Dirs: p.dirs.Load(), Links: int64(len(p.links)),
		Bytes: p.bytes.Load(), Read: p.read.Load(),
	}, nil
}

// A distant store has high latency: Parallel is the number of calls to make at a time.
type distant interface {
	Parallel() int
}

// workers returns the number of files to handle at a time. It is more than the number of cores, since some wait for the
// disk.
func workers(n int, s objectstore.Store) int {
	if n > 0 {
		return n
	}
	if s, ok := s.(distant); ok {
		return s.Parallel()
	}
	return 2 * runtime.GOMAXPROCS(0)
}

// putter is one Put. One goroutine walks and collects the links; workers store the files; the last finished
// entry of a directory stores the directory.
type putter struct {
	ctx   context.Context
	store objectstore.Store
	o     PutOptions
	group *errgroup.Group

	adopter objectstore.Adopter // the store, if it is a *Dir

	links links

	files, dirs, bytes, read atomic.Int64
}

// putDir is a directory that waits for entries.
type putDir struct {
	root    *beneath.Dir
	rel     string // "" is the root of the tree
	depth   int
	parent  *putDir
	index   int // in the parent's entries
	entries Entries
	pending atomic.Int64 // the number of unfinished entries, plus one while the walk is in the directory
	failed  atomic.Bool
	hash    objectstore.Hash
}

// knownBatch is the number of files of a directory that one worker looks up at a time if most are known: a look-up
// costs less than the hand-over of a file.
const knownBatch = 64

// walk handles everything below d. It returns once work on d's own entries has begun.
func (p *putter) walk(d *putDir) (err error) {
	d.pending.Store(1)
	defer func() {
		if err == nil && d.parent == nil {
			err = p.links.check(".") // before the root is stored
		}
		err = p.done(d, err)
	}()
	if d.depth > MaxDepth {
		return tooDeep(d.rel)
	}
	list, err := p.list(d)
	if err != nil {
		return err
	}
	d.entries = make(Entries, len(list))
	batch := 1
	if p.o.Known != nil {
		batch = knownBatch
	}
	var files []*Entry // files that no worker has yet
	for i, e := range list {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if e.Type() != 0 {
			if err := p.entry(d, i, e.Name(), e.Type()); err != nil {
				return err
			}
			continue
		}
		if msg := checkName(e.Name()); msg != "" {
			return &Error{Path: path.Join(d.rel, e.Name()), Msg: msg}
		}
		d.entries[i].Name, d.entries[i].Kind = e.Name(), KindFile
		if files = append(files, &d.entries[i]); len(files) == batch {
			p.some(d, files)
			files = nil
		}
	}
	p.some(d, files)
	return nil
}

// some gives files of d to a worker. The worker completes the known files, and leaves the others to free workers.
func (p *putter) some(d *putDir, files []*Entry) {
	if len(files) == 0 {
		return
	}
	d.pending.Add(int64(len(files)))
	p.group.Go(func() (err error) {
		for _, e := range files {
			fi, known, fault := p.look(d, e)
			store := func() error {
				if fault == nil && !known {
					fault = p.file(d, e, fi)
				}
				return p.done(d, fault)
			}
			if fault == nil && !known && len(files) > 1 && p.group.TryGo(store) {
				continue
			}
			if fault := store(); err == nil {
				err = fault
			}
		}
		return err
	})
}

// named puts the path of an entry of d into an error. If a listed entry is gone, or has become a link, the error is a
// change.
func (d *putDir) named(name string, err error) error {
	if errors.Is(err, beneath.ErrMount) {
		return &Error{Path: path.Join(d.rel, name), Msg: beneath.ErrMount.Error()}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, beneath.ErrLink) {
		return &objectstore.ChangedError{Path: filepath.Join(d.root.Name(), name)}
	}
	return fmt.Errorf("%s: %w", path.Join(d.rel, name), err)
}

// list returns the wanted entries of d, in tree order.
func (p *putter) list(d *putDir) ([]fs.DirEntry, error) {
	list, err := d.root.ReadDir()
	if err != nil {
		return nil, d.named(".", err)
	}
	if p.o.Filter != nil {
		list = slices.DeleteFunc(list, func(e fs.DirEntry) bool {
			return !p.o.Filter(path.Join(d.rel, e.Name()), e)
		})
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return beast2.CompareStrings(a.Name(), b.Name()) })
	return list, nil
}

// entry starts on the i-th entry of d, which is no file.
func (p *putter) entry(d *putDir, i int, name string, kind fs.FileMode) error {
	if msg := checkName(name); msg != "" {
		return &Error{Path: path.Join(d.rel, name), Msg: msg}
	}
	e := &d.entries[i]
	e.Name = name
	switch kind {
	case fs.ModeDir:
		e.Kind = KindDir
		root, err := d.root.Sub(name)
		if err != nil {
			return d.named(name, err)
		}
		d.pending.Add(1)
		return p.walk(&putDir{root: root, rel: path.Join(d.rel, name), depth: d.depth + 1, parent: d, index: i})
	case fs.ModeSymlink:
		target, err := d.root.Readlink(name)
		if err != nil {
			return d.named(name, err)
		}
		e.Kind = KindLink
		e.Target = filepath.ToSlash(target)
		rel := path.Join(d.rel, name)
		p.links[rel] = e.Target
		if msg := checkTarget(e.Target); msg != "" {
			return &Error{Path: rel, Msg: msg, Link: true}
		}
		return nil
	}
	return &objectstore.SpecialFileError{Path: filepath.Join(d.root.Name(), name), Mode: kind}
}

// look completes the entry of a known file. It returns the file's info if the options ask for it.
func (p *putter) look(d *putDir, e *Entry) (fi fs.FileInfo, known bool, err error) {
	if err := p.ctx.Err(); err != nil {
		return nil, false, err
	}
	if p.o.Known == nil && p.o.Record == nil {
		return nil, false, nil
	}
	fi, err = d.root.Lstat(e.Name)
	if err != nil {
		return nil, false, d.named(e.Name, err)
	}
	if p.o.Known != nil && fi.Mode().IsRegular() {
		var info objectstore.Info
		if info, known = p.o.Known(path.Join(d.rel, e.Name), fi); known {
			p.complete(e, info, executable(fi.Mode()))
		}
	}
	return fi, known, nil
}

// file stores one file and completes its entry. fi is the result of look.
func (p *putter) file(d *putDir, e *Entry, fi fs.FileInfo) error {
	f, perm, err := objectstore.OpenFileIn(d.root, e.Name)
	if err != nil {
		return d.named(e.Name, err)
	}
	defer f.Close()
	var info objectstore.Info
	if p.o.Adopt && p.adopter != nil {
		info, err = p.adopter.AdoptFile(p.ctx, f, func() error { return d.root.Remove(e.Name) })
	} else {
		info, err = objectstore.PutFile(p.ctx, p.store, f, objectstore.FileOptions{})
	}
	if err != nil {
		return err
	}
	p.read.Add(1)
	if p.o.Record != nil {
		p.o.Record(path.Join(d.rel, e.Name), fi, info)
	}
	p.complete(e, info, executable(perm))
	return nil
}

// executable is the part of a mode that trees keep: whether the owner may execute.
func executable(mode fs.FileMode) bool { return mode&0o100 != 0 }

func (p *putter) complete(e *Entry, info objectstore.Info, executable bool) {
	e.Hash, e.Size, e.Executable = info.Hash, info.Size, executable
	p.files.Add(1)
	p.bytes.Add(info.Size)
}

// done counts down the entries of d; err is the error of the entry, if it failed. After the last entry it closes d,
// stores it unless an entry failed, and counts down d's parent.
func (p *putter) done(d *putDir, err error) error {
	ok := err == nil
	for ; d != nil; d = d.parent {
		if !ok {
			d.failed.Store(true)
		}
		if d.pending.Add(-1) != 0 {
			break
		}
		d.root.Close()
		if ok = !d.failed.Load(); ok {
			err = p.finish(d)
			ok = err == nil
		}
	}
	return err
}

// finish stores d, whose entries are all complete.
func (p *putter) finish(d *putDir) error {
	b, err := Encode(d.entries)
	if err != nil {
		var bad *Error
		if errors.As(err, &bad) {
			bad.Path = path.Join(d.rel, bad.Path)
		}
		return err
	}
	d.hash, err = objectstore.PutBytes(p.ctx, p.store, b)
	if err == nil && d.parent != nil {
		p.dirs.Add(1)
		d.parent.entries[d.index].Hash = d.hash
	}
	return err
}
