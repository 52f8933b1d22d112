package objectstoretest

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"e3/objectstore"
)

// ErrInjected is the default error of Faulty.
var ErrInjected = errors.New("injected fault")

// Faulty wraps a store and fails one call. Calls of all methods are counted together, from 1. A test runs its subject
// with Nth = 1, 2, 3… until Fired returns false.
type Faulty struct {
	Store objectstore.Store

	Nth  int64 // the call that fails; 0 for none
	Err  error // its error; nil for ErrInjected
	Late bool  // the call is executed, but its result is lost

	calls atomic.Int64
}

var _ objectstore.Store = (*Faulty)(nil)

// Fired reports whether the call number Nth was made.
func (f *Faulty) Fired() bool { return f.Nth > 0 && f.calls.Load() >= f.Nth }

// Calls returns the number of calls so far.
func (f *Faulty) Calls() int64 { return f.calls.Load() }

// fault returns the error for this call, or nil.
func (f *Faulty) fault() error {
	switch {
	case f.calls.Add(1) != f.Nth:
		return nil
	case f.Err != nil:
		return f.Err
	}
	return ErrInjected
}

// Put is the store's Put, or the fault. Before a fault that is not late, part of r is read.
func (f *Faulty) Put(ctx context.Context, r io.Reader) (objectstore.Info, error) {
	fault := f.fault()
	if fault != nil && !f.Late {
		io.CopyN(io.Discard, r, 1)
		return objectstore.Info{}, fault
	}
	info, err := f.Store.Put(ctx, r)
	if fault != nil {
		return objectstore.Info{}, fault
	}
	return info, err
}

// Open is the store's Open, or the fault. A late fault occurs during reading, after the first byte.
func (f *Faulty) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	fault := f.fault()
	if fault != nil && !f.Late {
		return nil, fault
	}
	r, err := f.Store.Open(ctx, h)
	if err != nil || fault == nil {
		return r, err
	}
	return &brokenReader{r, fault, false}, nil
}

// Missing is the store's Missing, or the fault.
func (f *Faulty) Missing(ctx context.Context, hs []objectstore.Hash) ([]objectstore.Hash, error) {
	fault := f.fault()
	if fault != nil && !f.Late {
		return nil, fault
	}
	missing, err := f.Store.Missing(ctx, hs)
	if fault != nil {
		return nil, fault
	}
	return missing, err
}

// brokenReader yields one byte and then err.
type brokenReader struct {
	io.ReadCloser
	err  error
	used bool
}

func (r *brokenReader) Read(p []byte) (int, error) {
	if r.used {
		return 0, r.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	r.used = true
	n, _ := r.ReadCloser.Read(p[:1])
	return n, nil
}
