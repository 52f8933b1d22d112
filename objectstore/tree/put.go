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
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"e3/internal/format/beast2"
	"e3/internal/host/beneath"
	"e3/objectstore"
)

// PutOptions adjust Put.
type PutOptions struct {
	// Filter says what to include; rel is the path within the tree, with slashes. A refused directory is not entered.
	// One goroutine calls it.
	Filter func(rel string, e fs.DirEntry) bool

	// Adopt moves the files into the store instead of copying them, if the store can do that as a *Dir does: the caller
	// must not need the directory any more. See Dir.Adopt.
	Adopt bool

	// Workers is the number of files that are read at a time; 0 means two for each core, or the number that a remote
	// store asks for.
	Workers int
}

// Stats counts what a tree holds.
type Stats struct {
	Files, Dirs, Links int64 // Dirs without the root
	Bytes              int64 // total size of the files
	Read               int64 // files that were read because no Past proved their content
}

// Put stores the directory dir with everything in it and returns the name of its directory object. Files that
// change meanwhile are a *ChangedError; sockets, pipes and devices a *SpecialFileError; names that are not UTF-8 and
// links that lead outside an *Error. Links are stored as they are and never followed.
func Put(ctx context.Context, s objectstore.Store, dir string, o PutOptions) (objectstore.Hash, Stats, error) {
	root, err := openRoot(dir)
	if err != nil {
		return objectstore.Hash{}, Stats{}, err
	}
	return PutDir(ctx, s, root, o)
}

func openRoot(dir string) (*beneath.Dir, error) {
	root, err := beneath.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("store directory: %w", err)
	}
	return root, nil
}

// PutDir is Put for an open directory, which it closes. In a confined directory, a mount is an error.
func PutDir(ctx context.Context, s objectstore.Store, root *beneath.Dir, o PutOptions) (objectstore.Hash, Stats, error) {
	top, stats, err := put(ctx, s, root, o, nil)
	if err != nil {
		return objectstore.Hash{}, Stats{}, err
	}
	return top.hash, stats, nil
}

// put stores an open directory, and closes it.
func put(ctx context.Context, s objectstore.Store, root *beneath.Dir, o PutOptions, past *Past) (*putDir, Stats, error) {
	dir := root.Name()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers(o.Workers, s))
	p := &putter{ctx: ctx, store: s, o: o, past: past, group: g, links: links{}}
	p.adopter, _ = s.(objectstore.Adopter)
	top := &putDir{root: root}
	if past != nil {
		top.before = past.Memory
	}
	walkErr := p.walk(top)
	err := g.Wait()
	if err == nil || !errors.Is(walkErr, context.Canceled) {
		err = errors.Join(walkErr, err) // otherwise the walk stopped because of a worker's error
	}
	if err != nil {
		return nil, Stats{}, fmt.Errorf("store directory %s: %w", dir, err)
	}
	return top, Stats{
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
	past  *Past // nil: nothing is remembered
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

	// With a Past:
	before  []byte // the memory of the directory; nil if there is none
	memory  []byte // the new memory
	differs atomic.Bool
	subs    []*putDir // the directories in it, in order
	mu      sync.Mutex
	read    []fileStamp // by entry: of the files that were read; nil if none was
}

// A putFile is a file that no worker has yet: an entry of a directory by its index, and what was remembered of it.
type putFile struct {
	index int
	input []byte // a keptInput; nil if there is none
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
	if p.past != nil {
		batch = knownBatch
	}
	var files []putFile
	was := cursorOf(d.before)
	for i, e := range list {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		before := was.find(e.Name())
		if e.Type() != 0 {
			if err := p.entry(d, i, e.Name(), e.Type(), before); err != nil {
				return err
			}
			continue
		}
		if msg := checkName(e.Name()); msg != "" {
			return &Error{Path: d.at(e.Name()), Msg: msg}
		}
		d.entries[i].Name, d.entries[i].Kind = e.Name(), KindFile
		f := putFile{index: i}
		if before.kind == KindFile {
			f.input = before.body
		}
		if files = append(files, f); len(files) == batch {
			p.some(d, files)
			files = make([]putFile, 0, batch)
		}
	}
	if !was.whole() {
		d.differs.Store(true)
	}
	p.some(d, files)
	return nil
}

// some gives files of d to a worker. The worker completes the known files, and leaves the others to free workers.
func (p *putter) some(d *putDir, files []putFile) {
	if len(files) == 0 {
		return
	}
	d.pending.Add(int64(len(files)))
	p.group.Go(func() (err error) {
		for _, f := range files {
			at, known, fault := p.look(d, f)
			if fault != nil || known {
				fault = p.done(d, fault)
			} else {
				store := func() error { return p.done(d, p.file(d, f.index, at)) }
				if len(files) > 1 && p.group.TryGo(store) {
					continue
				}
				fault = store()
			}
			if err == nil {
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
			return !p.o.Filter(d.at(e.Name()), e)
		})
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return beast2.CompareStrings(a.Name(), b.Name()) })
	return list, nil
}

// entry starts on the i-th entry of d, which is no file. before is what was remembered of that name.
func (p *putter) entry(d *putDir, i int, name string, kind fs.FileMode, before pastEntry) error {
	if msg := checkName(name); msg != "" {
		return &Error{Path: d.at(name), Msg: msg}
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
		sub := &putDir{root: root, rel: d.at(name), depth: d.depth + 1, parent: d, index: i}
		if p.past != nil {
			d.subs = append(d.subs, sub)
		}
		if before.kind == KindDir {
			sub.before = before.body
		}
		return p.walk(sub)
	case fs.ModeSymlink:
		target, err := d.root.Readlink(name)
		if err != nil {
			return d.named(name, err)
		}
		e.Kind = KindLink
		e.Target = filepath.ToSlash(target)
		if before.kind != KindLink || string(before.body) != e.Target {
			d.differs.Store(true)
		}
		rel := d.at(name)
		p.links[rel] = e.Target
		if msg := checkTarget(e.Target); msg != "" {
			return &Error{Path: rel, Msg: msg, Link: true}
		}
		return nil
	}
	return &objectstore.SpecialFileError{Path: filepath.Join(d.root.Name(), name), Mode: kind}
}

// look completes the entry of a known file. With a Past, it returns the file's stamp.
func (p *putter) look(d *putDir, f putFile) (at fileStamp, known bool, err error) {
	if err := p.ctx.Err(); err != nil {
		return at, false, err
	}
	if p.past == nil {
		return at, false, nil
	}
	e := &d.entries[f.index]
	now, err := d.root.Stamp(e.Name)
	if err != nil {
		return at, false, d.named(e.Name, err)
	}
	if f.input != nil {
		var info objectstore.Info
		if info, known = p.past.proves(f.input, &now); known {
			p.complete(e, info, executable(now.Mode))
		}
	}
	return stampOf(&now), known, nil
}

// file stores the i-th entry of d, a file, and completes the entry. at is the result of look.
func (p *putter) file(d *putDir, i int, at fileStamp) error {
	e := &d.entries[i]
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
	p.complete(e, info, executable(perm))
	if p.past != nil {
		d.readAt(i, at)
	}
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
	if !p.unchanged(d) {
		if err := p.make(d); err != nil {
			return err
		}
		if p.past != nil {
			p.remember(d)
		}
		if d.parent != nil {
			d.parent.differs.Store(true)
		}
	}
	d.entries, d.subs, d.read = nil, nil, nil
	if d.parent != nil {
		p.dirs.Add(1)
		d.parent.entries[d.index].Hash = d.hash
	}
	return nil
}

// make stores the directory object of d.
func (p *putter) make(d *putDir) error {
	b, err := Encode(d.entries)
	if err != nil {
		var bad *Error
		if errors.As(err, &bad) {
			bad.Path = path.Join(d.rel, bad.Path)
		}
		return err
	}
	d.hash, err = objectstore.PutBytes(p.ctx, p.store, b)
	return err
}
