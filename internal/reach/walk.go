package reach

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"

	"e3/objectstore"
	"e3/objectstore/tree"
)

// Options adjust a Walker. The zero value is usable.
type Options struct {
	// Workers is the number of objects that are read at a time; 0 means a number that suits the store.
	Workers int
	// Visit is called by several goroutines, once for each object before it is read; twice for an object that is met
	// as different kinds. It returns the size of the object, or -1. An error makes the reference a Fault.
	Visit func(ctx context.Context, r Ref) (size int64, err error)
	// Fault is called for each reference that cannot be followed and each record that cannot be read, one call at a
	// time. An error ends the walk and is what Wait returns. Without Fault the first such fault ends the walk.
	Fault func(f *Fault) error
	// Dirs, if it is not nil, checks the sizes of files in directories. After the walk it also checks each directory
	// that is named by something other than a directory.
	Dirs *DirChecker
	// Image reports whether to follow a task to its image; it is called by several goroutines. nil: follow all.
	Image func(image objectstore.Hash) bool
}

// A Walker follows references. Roots may be added by several goroutines, and again after Wait. Its memory is the set
// and the queue, which holds at most the directories and nodes of a level.
type Walker struct {
	ctx     context.Context
	objects objectstore.Store
	opts    Options
	set     *Set
	faults  sync.Mutex // held while Fault is called

	mu      sync.Mutex
	idle    sync.Cond // running became 0
	pending []item    // to be read; last in, first out, so that few are waiting
	running int
	err     error
	tops    []item // directories to check
	checked *Set
}

// item is an object to read.
type item struct {
	ref  Ref
	weak bool
	name string // in the object above it
	from *trail
}

// trail is the path on which an object was reached. Objects without children have none.
type trail struct {
	owner *Owner // at the top
	up    *trail
	name  string
}

// backlog is the length of the queue from which on adding a root also reads objects.
const backlog = 4096

// Workers returns the number of concurrent reads in a repository with such a store: one for each processor, and more if
// a read is a request.
func Workers(objects objectstore.Store) int {
	n := runtime.GOMAXPROCS(0)
	if far, ok := objects.(interface{ Parallel() int }); ok {
		n = max(n, 2*far.Parallel()) // some reads are served by the cache
	}
	return n
}

// NewWalker returns a Walker that has met nothing. The walk ends with ctx.
func NewWalker(ctx context.Context, objects objectstore.Store, o Options) *Walker {
	if o.Workers <= 0 {
		o.Workers = Workers(objects)
	}
	w := &Walker{ctx: ctx, objects: objects, opts: o, set: NewSet(), checked: NewSet()}
	w.idle.L = &w.mu
	return w
}

// Met is the set of objects met so far.
func (w *Walker) Met() *Set { return w.set }

// Root adds a root, and may read objects before it returns. An error means that the walk has ended.
func (w *Walker) Root(r Root) error {
	if w.isTop(r.Ref) {
		owner := r.Owner
		w.top(item{ref: r.Ref, weak: r.Weak, from: &trail{owner: &owner}})
	}
	if !w.set.Add(r.Ref) {
		return w.failure()
	}
	it := item{ref: r.Ref, weak: r.Weak}
	leaf := r.Kind == File || r.followed
	if leaf && w.opts.Visit == nil {
		return w.failure()
	}
	owner := r.Owner
	it.from = &trail{owner: &owner}
	if _, ok := w.visit(it); !ok || leaf {
		return w.failure()
	}
	if w.behind() {
		w.expand(it)
	} else {
		w.push(it)
	}
	return w.failure()
}

// RecordFault reports an unreadable record.
func (w *Walker) RecordFault(f *Fault) error {
	w.fault(f)
	return w.failure()
}

// Wait returns once everything was followed, or the walk has ended with an error.
func (w *Walker) Wait() error {
	for _, it := range w.settled() {
		if w.failure() != nil {
			break
		}
		err := w.opts.Dirs.Check(w.ctx, it.ref.Hash)
		var malformed *tree.Error
		if errors.As(err, &malformed) {
			err = &MalformedError{Ref: it.ref, Err: err}
		}
		if err != nil {
			w.faultAt(it, err)
		}
	}
	return w.failure()
}

// settled returns the directories to check, once everything was followed.
func (w *Walker) settled() []item {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.running > 0 {
		w.idle.Wait()
	}
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	tops := w.tops
	w.tops = nil
	return tops
}

// isTop reports whether a reference from outside of directories leads to a directory to check.
func (w *Walker) isTop(r Ref) bool { return w.opts.Dirs != nil && (r.Kind == Dir || r.Kind == Dirs) }

func (w *Walker) top(it item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.checked.Add(it.ref) {
		w.tops = append(w.tops, it)
	}
}

func (w *Walker) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Walker) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.pending = nil
}

// behind reports whether the queue is long enough that a new root must wait and read objects.
func (w *Walker) behind() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pending) >= backlog
}

// push queues objects for the workers.
func (w *Walker) push(items ...item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	w.pending = append(w.pending, items...)
	for range min(len(items), w.opts.Workers-w.running) {
		w.running++
		go w.work()
	}
}

// work reads objects until the queue is empty.
func (w *Walker) work() {
	for {
		w.mu.Lock()
		n := len(w.pending)
		if n == 0 {
			if w.running--; w.running == 0 {
				w.pending = nil // a level may have been large
				w.idle.Broadcast()
			}
			w.mu.Unlock()
			return
		}
		it := w.pending[n-1]
		w.pending[n-1] = item{}
		w.pending = w.pending[:n-1]
		w.mu.Unlock()
		w.expand(it)
	}
}

// expand reads an object and queues its references.
func (w *Walker) expand(it item) {
	if err := w.ctx.Err(); err != nil {
		w.fail(err)
		return
	}
	var below []item
	var from *trail
	inDir := it.ref.Kind == Dir || it.ref.Kind == Dirs || it.ref.Kind == FileOrDir
	err := each(w.ctx, w.objects, it.ref, func(c Child) {
		if c.Kind == Image && w.opts.Image != nil && !w.opts.Image(c.Hash) {
			return
		}
		if !inDir && w.isTop(c.Ref) {
			w.top(item{ref: c.Ref, weak: it.weak || c.Weak, name: c.Name, from: &trail{up: it.from, name: it.name}})
		}
		met := !w.set.Add(c.Ref)
		if met || c.Kind == File && w.opts.Visit == nil {
			w.listed(it, &c, -1)
			return
		}
		if from == nil {
			from = &trail{up: it.from, name: it.name}
		}
		child := item{ref: c.Ref, weak: it.weak || c.Weak, name: c.Name, from: from}
		size, ok := w.visit(child)
		switch {
		case !ok:
		case c.Kind == File:
			w.listed(it, &c, size)
		default:
			below = append(below, child)
		}
	})
	w.push(below...) // including children that a damaged object yielded before its error
	if err != nil {
		w.faultAt(it, err)
	}
}

// visit calls Visit and reports whether to read the object.
func (w *Walker) visit(it item) (size int64, ok bool) {
	if w.opts.Visit == nil {
		return -1, true
	}
	size, err := w.opts.Visit(w.ctx, it.ref)
	if err != nil {
		w.faultAt(it, err)
		return 0, false
	}
	return size, true
}

// listed checks a file of a directory; size is the file's, or -1 if not known yet.
func (w *Walker) listed(dir item, c *Child, size int64) {
	dirs := w.opts.Dirs
	if dirs == nil || c.size < 0 {
		return
	}
	var err error
	if size < 0 {
		size, err = dirs.Size(w.ctx, c.Hash)
	}
	if errors.Is(err, objectstore.ErrNotFound) { // reported where it was met first
		return
	}
	if err == nil {
		err = dirs.file(w.ctx, c, size)
	}
	var malformed *tree.Error
	if errors.As(err, &malformed) {
		err = &MalformedError{Ref: dir.ref, Err: err}
	}
	if err != nil {
		w.faultAt(dir, err)
	}
}

func (w *Walker) faultAt(it item, err error) {
	if w.ctx.Err() != nil {
		w.fail(w.ctx.Err())
		return
	}
	f := &Fault{Ref: it.ref, Weak: it.weak, Err: err}
	if it.name != "" {
		f.Path = append(f.Path, it.name)
	}
	for t := it.from; t != nil; t = t.up {
		if t.name != "" {
			f.Path = append(f.Path, t.name)
		}
		if t.owner != nil {
			f.Owner = *t.owner
		}
	}
	slices.Reverse(f.Path)
	w.fault(f)
}

func (w *Walker) fault(f *Fault) {
	w.faults.Lock()
	defer w.faults.Unlock()
	err := error(f)
	if w.opts.Fault != nil {
		err = w.opts.Fault(f)
	}
	if err != nil {
		w.fail(err)
	}
}
