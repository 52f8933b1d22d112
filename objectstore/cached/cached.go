// Package cached is an object store with remote objects and a cache on this machine: a [objectstore.Dir] that keeps
// copies of objects put and read here, up to a bound.
//
// Which store answers:
//
//   - The remote store alone says what exists. A copy here proves nothing: a collection on another
//     machine may have removed the object. Stat, Missing, Refresh, Verify and the walks ask it.
//   - Bytes are the same wherever they come from, as the name is their hash. Open, ReadAll and
//     other reads take the copy if there is one. Otherwise they fetch the whole object and check it
//     before it gets its name in the cache.
//   - A put returns when the remote store has the object, so that a reference may be written next.
//
// Writers and collectors agree on removals through a [Guard], because the remote store can neither refresh an object's
// time nor delete conditionally. A process relies on a name before its first request about it. So an object that this
// process relied on and then found stays until its session ends, and needs no further request.
package cached

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"e3/objectstore"
)

// A Remote holds the objects. An absent object is objectstore.ErrNotFound.
type Remote interface {
	// Put stores the size bytes of body under h, which the caller has checked, unless an object has that name. It may
	// replace an object of another size. created tells whether it stored the bytes, but may be false although Put
	// stored them.
	Put(ctx context.Context, h objectstore.Hash, body io.ReaderAt, size int64) (created bool, err error)

	// Replace is Put that overwrites an existing object.
	Replace(ctx context.Context, h objectstore.Hash, body io.ReaderAt, size int64) error

	// Open streams the bytes of h, unchecked.
	Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error)

	// Fetch writes the bytes of h to w, in any order, unchecked, and returns their number.
	Fetch(ctx context.Context, h objectstore.Hash, w io.WriterAt) (size int64, err error)

	// Stat returns the size of h and the time at which it was put, by the remote store's clock. Entry.Hash differs from
	// h if the remote store reports another hash for its bytes.
	Stat(ctx context.Context, h objectstore.Hash) (objectstore.Entry, error)

	// List yields the objects whose names begin with a byte, in order.
	List(ctx context.Context, shard byte) iter.Seq2[objectstore.Entry, error]

	// Delete removes objects. An absent object counts as removed. objectstore.ErrUnanswered: all were removed, but an
	// earlier try may still take effect. objectstore.ErrRefused: some were not removed, and no try can still take
	// effect.
	Delete(ctx context.Context, hs []objectstore.Hash) error
}

// A Guard makes writers and collectors agree about objects.
type Guard interface {
	// Rely announces that this process's session is about to name or put h. After it returns, no collection removes h
	// until the session ends. It is cheap for a name that the session already relies on.
	Rely(ctx context.Context, h objectstore.Hash) error

	// Condemn announces the removal of the objects hs of a shard, and returns the objects on which no session
	// relies. No session begins to rely on the returned objects before done is called. Without a call of done,
	// none does as long as a request of this process can still arrive. A shard has one such list at a time.
	Condemn(ctx context.Context, shard byte, hs []objectstore.Hash) (free []objectstore.Hash, done func(context.Context) error, err error)

	// Held returns an error once other processes may ignore the condemned lists of this process, because this process
	// was stopped or disconnected for too long. It sends no request.
	Held() error
}

// Options are the parts of a Store. Local, Remote and Guard are needed, the rest has defaults.
type Options struct {
	Local  *objectstore.Dir // the cache
	Remote Remote
	Guard  Guard

	MaxBytes int64         // bound of the cache's size; 0: 20 GiB
	Grace    time.Duration // an object that a sweep removes is older than the cut-off by at least this; 0: 5 minutes
	Parallel int           // uploads, and fetches, at a time; 0: 16. Small requests, and uploads up to 64 KiB: four times as many

	// Warn, if not nil, is called once if the cache cannot be used and reads continue without it, and once if a
	// deletion may still take effect, so that other processes wait.
	Warn func(error)

	Now    func() time.Time // by the clock that dates the cache's files; nil: time.Now
	Booted time.Time        // the time at which this machine started; zero: as the system reports it
}

// The defaults of Options.
const (
	DefaultMaxBytes = 20 << 30
	DefaultGrace    = 5 * time.Minute
	DefaultParallel = 16
)

// A Store is an objectstore.Store in two places. It is safe for concurrent use.
type Store struct {
	local  *objectstore.Dir
	remote Remote
	guard  Guard
	o      Options

	known     names
	distrusts atomic.Int32 // calls of Distrust that have not ended
	uploads   singleFlight
	fetches   singleFlight
	sending   slots // for uploads
	getting   slots // for fetches
	asking    slots // for small requests

	// condemning has a slot for the one list of each shard.
	condemning [objectstore.Shards]slots
	// sweeping holds, for the sweep of a shard, the object for which it is calling keep.
	sweeping [objectstore.Shards]atomic.Pointer[objectstore.Entry]

	warned   sync.Once
	warnLate sync.Once
	trimming sync.Mutex
	trims    sync.WaitGroup
}

// Open composes a store. It makes no request and writes nothing yet.
func Open(o Options) (*Store, error) {
	if o.Local == nil || o.Remote == nil || o.Guard == nil {
		return nil, errors.New("open cached object store: the cache, the remote store and the guard are needed")
	}
	o.MaxBytes = cmp.Or(max(o.MaxBytes, 0), DefaultMaxBytes)
	o.Grace = cmp.Or(max(o.Grace, 0), DefaultGrace)
	o.Parallel = cmp.Or(max(o.Parallel, 0), DefaultParallel)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Warn == nil {
		o.Warn = func(error) {}
	}
	if o.Booted.IsZero() {
		o.Booted = booted(o.Now())
	}
	s := &Store{
		local: o.Local, remote: o.Remote, guard: o.Guard, o: o,
		sending: make(slots, o.Parallel), getting: make(slots, o.Parallel), asking: make(slots, 4*o.Parallel),
	}
	for i := range s.condemning {
		s.condemning[i] = make(slots, 1)
	}
	return s, nil
}

// Close trims the cache if this process has added to it. The store must not be in use any more. The caller ends the
// guard afterwards.
func (s *Store) Close() error {
	s.trims.Wait()
	if s.local.Grown() == 0 {
		return nil
	}
	_, err := s.local.Trim(context.Background(), s.o.MaxBytes, s.o.Now())
	return err
}

// Presumes reports that an object named by a record counts as present without a check: only collections remove objects,
// and never objects that a record names.
func (s *Store) Presumes() bool { return true }

// Parallel returns the useful number of concurrent calls.
func (s *Store) Parallel() int { return s.o.Parallel }

// Grace is the time by which an object must be older than the cut-off of a sweep.
func (s *Store) Grace() time.Duration { return s.o.Grace }

// ShardTimes returns zeros, because no file times show changes of this store.
func (s *Store) ShardTimes() ([objectstore.Shards]int64, error) {
	return [objectstore.Shards]int64{}, nil
}

// trimStep bounds the growth of the cache between two checks of its size.
const trimStep = 64 << 20

// trimIfGrown begins a trim if the cache has grown enough.
func (s *Store) trimIfGrown() {
	if s.local.Grown() < min(trimStep, s.o.MaxBytes/16) || !s.trimming.TryLock() {
		return
	}
	s.trims.Go(func() {
		defer s.trimming.Unlock()
		if _, err := s.local.Trim(context.Background(), s.o.MaxBytes, s.o.Now()); err != nil {
			s.warn(err)
		}
	})
}

func (s *Store) warn(err error) {
	s.warned.Do(func() { s.o.Warn(fmt.Errorf("the object cache in %s: %w", s.local.Path(), err)) })
}

// slots limits the number of calls that run at a time.
type slots chan struct{}

// with calls f when a slot is free.
func (s slots) with(ctx context.Context, f func() error) error {
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s }()
	return f()
}

// names is a set of names that can be emptied: it is only a cache.
type names struct {
	set atomic.Pointer[objectstore.HashSet]
}

func (n *names) has(h objectstore.Hash) bool {
	set := n.set.Load()
	return set != nil && set.Has(h)
}

func (n *names) add(h objectstore.Hash) {
	set := n.set.Load()
	if set == nil {
		n.set.CompareAndSwap(nil, new(objectstore.HashSet))
		set = n.set.Load()
	}
	set.Add(h)
}

// forget empties the set if h is in it. This is rare.
func (n *names) forget(h objectstore.Hash) {
	if n.has(h) {
		n.clear()
	}
}

// clear empties the set.
func (n *names) clear() { n.set.Store(new(objectstore.HashSet)) }
