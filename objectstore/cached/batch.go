package cached

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"e3/objectstore"
)

// A Batch is a Store whose puts stay on this machine until Send uploads them together. So the remote store is asked
// about many objects at once, and never about objects that a root names. Reads of the batch find its own puts. After
// Send it behaves like the Store, except that objects that Send has settled need no request. It is safe for concurrent
// use; Send is called once.
type Batch struct {
	*Store
	sent atomic.Bool

	mu      sync.Mutex
	queue   []queued
	index   map[objectstore.Hash]int // into queue
	settled objectstore.HashSet
}

// queued is an object to send.
type queued struct {
	objectstore.Info
	likely bool // the remote store probably has the object, because this machine already had a copy
	kept   bool // the cache has the bytes; else only the remote store may have them
}

// Batch returns a new batch.
func (s *Store) Batch() *Batch { return &Batch{Store: s, index: map[objectstore.Hash]int{}} }

// passes tells whether puts go directly to the store.
func (b *Batch) passes() bool { return b.sent.Load() }

func (b *Batch) add(q queued) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, ok := b.index[q.Hash]
	if !ok {
		b.index[q.Hash] = len(b.queue)
		b.queue = append(b.queue, q)
	} else if q.kept && !b.queue[i].kept {
		b.queue[i] = q
	}
}

func (b *Batch) keep(k objectstore.Kept, err error) (objectstore.Info, error) {
	if err != nil {
		return objectstore.Info{}, err
	}
	defer k.Close()
	b.add(queued{Info: k.Info, kept: true})
	return k.Info, nil
}

// Put keeps what r yields.
func (b *Batch) Put(ctx context.Context, r io.Reader) (objectstore.Info, error) {
	if b.passes() {
		return b.Store.Put(ctx, r)
	}
	return b.keep(b.local.KeepStream(ctx, r))
}

// PutBytes keeps p.
func (b *Batch) PutBytes(ctx context.Context, p []byte) (objectstore.Hash, error) {
	h := objectstore.Sum(p)
	if b.passes() {
		if b.settled.Has(h) {
			return h, nil
		}
		return b.Store.PutBytes(ctx, p)
	}
	_, err := b.local.Stat(ctx, h)
	likely := err == nil
	if _, err := b.local.PutBytes(ctx, p); err != nil {
		return objectstore.Hash{}, err
	}
	b.add(queued{Info: objectstore.Info{Hash: h, Size: int64(len(p))}, likely: likely, kept: true})
	return h, nil
}

// PutFile keeps the content of f.
func (b *Batch) PutFile(ctx context.Context, f *os.File, o objectstore.FileOptions) (objectstore.Info, error) {
	if b.passes() {
		return b.Store.PutFile(ctx, f, o)
	}
	return b.keep(b.local.KeepFile(ctx, f, o))
}

// Adopt keeps a file, as Dir.Adopt.
func (b *Batch) Adopt(ctx context.Context, in objectstore.Folder, name string) (objectstore.Info, error) {
	return objectstore.Adopt(ctx, b, in, name)
}

// AdoptFile is Adopt for an open file and a function that removes its name.
func (b *Batch) AdoptFile(ctx context.Context, f *os.File, remove func() error) (objectstore.Info, error) {
	if b.passes() {
		return b.Store.AdoptFile(ctx, f, remove)
	}
	return b.keep(b.local.KeepAdopted(ctx, f, remove))
}

// Refresh presumes, until Send, that the remote store has h; Send checks it.
func (b *Batch) Refresh(ctx context.Context, h objectstore.Hash) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	switch {
	case !b.passes():
		b.add(queued{Info: objectstore.Info{Hash: h}, likely: true})
		return true, nil
	case b.settled.Has(h):
		return true, nil
	}
	return b.Store.Refresh(ctx, h)
}

const (
	// sampleFrom is the number of objects from which Send first asks for a sample.
	sampleFrom = 48
	// sampled is the size of the sample.
	sampled = 8
)

// Send makes sure that the remote store has everything that was put. held tells which objects the remote store
// certainly has, because a protected root names them; these need no request. If a sample shows that the remote store
// has most of the others, for example from other machines, Send asks for each object before it sends it.
// objectstore.ErrUnsent means that an object is in neither store and must be put again.
func (b *Batch) Send(ctx context.Context, held func(objectstore.Hash) bool) error {
	b.sent.Store(true)
	b.mu.Lock()
	list := b.queue
	b.queue, b.index = nil, nil
	b.mu.Unlock()
	var rest []queued
	for _, q := range list {
		if !held(q.Hash) {
			rest = append(rest, q)
		}
	}
	rest, err := b.unknown(ctx, rest)
	if err == nil {
		err = b.inParallel(ctx, len(rest), func(ctx context.Context, i int) error { return b.sendOne(ctx, rest[i]) })
	}
	if err != nil {
		return err
	}
	for _, q := range list {
		b.settled.Add(q.Hash)
	}
	return nil
}

// unknown relies on the objects of list, and returns the objects that the remote store may lack.
func (b *Batch) unknown(ctx context.Context, list []queued) ([]queued, error) {
	err := b.inParallel(ctx, len(list), func(ctx context.Context, i int) error { return b.rely(ctx, list[i].Hash) })
	if err != nil {
		return nil, err
	}
	var rest []queued
	for _, q := range list {
		if !b.known.has(q.Hash) {
			rest = append(rest, q)
		}
	}
	if len(rest) < sampleFrom {
		return rest, nil
	}
	var found atomic.Int64
	err = b.inParallel(ctx, sampled, func(ctx context.Context, i int) error {
		h := rest[i*len(rest)/sampled].Hash
		_, err := b.ask(ctx, h)
		if errors.Is(err, objectstore.ErrNotFound) {
			return nil
		}
		if err == nil {
			b.known.add(h)
			found.Add(1)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for objects: %w", err)
	}
	if found.Load() <= sampled/2 {
		for i := range rest {
			rest[i].likely = false
		}
		return rest, nil
	}
	hashes := make([]objectstore.Hash, len(rest))
	for i := range rest {
		hashes[i] = rest[i].Hash
	}
	missing, err := b.Missing(ctx, hashes)
	if err != nil {
		return nil, err
	}
	absent := make(map[objectstore.Hash]bool, len(missing))
	for _, h := range missing {
		absent[h] = true
	}
	var toSend []queued
	for _, q := range rest {
		if absent[q.Hash] {
			q.likely = false
			toSend = append(toSend, q)
		} else {
			b.known.add(q.Hash)
		}
	}
	return toSend, nil
}

func (b *Batch) sendOne(ctx context.Context, q queued) error {
	if !q.kept {
		there, err := b.Store.Refresh(ctx, q.Hash)
		if err == nil && !there {
			err = fmt.Errorf("object %s: %w", q.Hash, objectstore.ErrUnsent)
		}
		return err
	}
	return b.upload(ctx, q.Info, q.likely, func() (io.ReaderAt, func(), error) { return b.reopen(ctx, q.Info, nil) })
}

// inParallel calls f for 0 to n-1, with the concurrency of small requests.
func (b *Batch) inParallel(ctx context.Context, n int, f func(context.Context, int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cap(b.asking))
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}
