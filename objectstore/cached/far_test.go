package cached_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"e3/objectstore"
	"e3/objectstore/cached"
)

// far is a Remote in memory that behaves as s3.Bucket does.
type far struct {
	// before, if not nil, is called before a request takes effect. Its error is the answer; the request then has no
	// effect, unless the error is lost{}.
	before func(ctx context.Context, op string, hs ...objectstore.Hash) error
	now    func() time.Time
	sums   bool // Stat reports hashes

	mu      sync.Mutex
	objects map[objectstore.Hash]farObject
	calls   []string // "op first-8-digits"
}

type farObject struct {
	bytes []byte
	time  time.Time
}

// lost is the error of a request that took effect although its answer was lost.
type lost struct{}

func (lost) Error() string { return "the answer got lost" }

func newFar() *far {
	return &far{objects: map[objectstore.Hash]farObject{}, now: time.Now}
}

// note records a request and calls before.
func (r *far) note(ctx context.Context, op string, hs ...objectstore.Hash) error {
	r.mu.Lock()
	what := op
	for _, h := range hs {
		what += " " + h.String()[:8]
	}
	r.calls = append(r.calls, what)
	r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.before != nil {
		return r.before(ctx, op, hs...)
	}
	return nil
}

// takeCalls returns the requests since its last call.
func (r *far) takeCalls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

func (r *far) set(h objectstore.Hash, b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects[h] = farObject{slices.Clone(b), r.now()}
}

func (r *far) remove(h objectstore.Hash) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.objects, h)
}

func (r *far) get(h objectstore.Hash) ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, ok := r.objects[h]
	return o.bytes, ok
}

func (r *far) Put(ctx context.Context, h objectstore.Hash, body io.ReaderAt, size int64) (bool, error) {
	err := r.note(ctx, "put", h)
	if _, late := err.(lost); err != nil && !late {
		return false, err
	}
	b := make([]byte, size)
	if n, err := body.ReadAt(b, 0); int64(n) < size {
		return false, fmt.Errorf("body of %s: %w", h, err)
	}
	if got := objectstore.Sum(b); got != h {
		return false, &objectstore.CorruptError{Want: h, Got: got, Size: size}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, there := r.objects[h]
	if !there {
		r.objects[h] = farObject{b, r.now()}
	}
	return !there, err
}

func (r *far) Replace(ctx context.Context, h objectstore.Hash, body io.ReaderAt, size int64) error {
	err := r.note(ctx, "replace", h)
	if _, late := err.(lost); err != nil && !late {
		return err
	}
	b := make([]byte, size)
	if n, err := body.ReadAt(b, 0); int64(n) < size {
		return fmt.Errorf("body of %s: %w", h, err)
	}
	if got := objectstore.Sum(b); got != h {
		return &objectstore.CorruptError{Want: h, Got: got, Size: size}
	}
	r.set(h, b)
	return err
}

func (r *far) find(h objectstore.Hash) (farObject, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, ok := r.objects[h]
	if !ok {
		return farObject{}, fmt.Errorf("object %s: %w", h, objectstore.ErrNotFound)
	}
	return o, nil
}

func (r *far) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	if err := r.note(ctx, "open", h); err != nil {
		return nil, err
	}
	o, err := r.find(h)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(o.bytes)), nil
}

// Fetch writes in parts, the last one first.
func (r *far) Fetch(ctx context.Context, h objectstore.Hash, w io.WriterAt) (int64, error) {
	err := r.note(ctx, "fetch", h)
	if _, late := err.(lost); err != nil && !late {
		return 0, err
	}
	o, findErr := r.find(h)
	if findErr != nil {
		return 0, findErr
	}
	const part = 100_000
	for off := len(o.bytes) / part * part; off >= 0; off -= part {
		if _, err := w.WriteAt(o.bytes[off:min(off+part, len(o.bytes))], int64(off)); err != nil {
			return 0, err
		}
		if err != nil {
			return 0, err // in the middle
		}
	}
	return int64(len(o.bytes)), nil
}

func (r *far) Stat(ctx context.Context, h objectstore.Hash) (objectstore.Entry, error) {
	if err := r.note(ctx, "stat", h); err != nil {
		return objectstore.Entry{}, err
	}
	o, err := r.find(h)
	if r.sums && err == nil {
		h = objectstore.Sum(o.bytes)
	}
	return objectstore.Entry{Info: objectstore.Info{Hash: h, Size: int64(len(o.bytes))}, Time: o.time}, err
}

func (r *far) List(ctx context.Context, shard byte) iter.Seq2[objectstore.Entry, error] {
	return func(yield func(objectstore.Entry, error) bool) {
		if err := r.note(ctx, "list"); err != nil {
			yield(objectstore.Entry{}, err)
			return
		}
		r.mu.Lock()
		objects := maps.Clone(r.objects)
		r.mu.Unlock()
		for _, h := range slices.SortedFunc(maps.Keys(objects), objectstore.Hash.Compare) {
			o := objects[h]
			if h[0] == shard && !yield(objectstore.Entry{Info: objectstore.Info{Hash: h, Size: int64(len(o.bytes))}, Time: o.time}, nil) {
				return
			}
		}
	}
}

func (r *far) Delete(ctx context.Context, hs []objectstore.Hash) error {
	err := r.note(ctx, "delete", hs...)
	if _, late := err.(lost); err != nil && !late && !errors.Is(err, objectstore.ErrUnanswered) {
		return err
	}
	for _, h := range hs {
		r.remove(h)
	}
	return err
}

// pact is the agreement of writers and collectors, in memory.
type pact struct {
	mu        sync.Mutex
	sessions  map[*session]bool
	condemned map[objectstore.Hash][]chan struct{} // one for each collector, closed by its done
}

func newPact() *pact {
	return &pact{sessions: map[*session]bool{}, condemned: map[objectstore.Hash][]chan struct{}{}}
}

// session is a Guard.
type session struct {
	*pact
	err    error // of Rely
	lost   error // of Held
	relied map[objectstore.Hash]bool
	lists  map[byte]bool
	asked  func(op string, hs ...objectstore.Hash) // called for each call; may be nil
}

func (p *pact) begin() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &session{pact: p, relied: map[objectstore.Hash]bool{}, lists: map[byte]bool{}}
	p.sessions[s] = true
	return s
}

func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, s)
}

func (s *session) relies(h objectstore.Hash) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.relied[h]
}

func (s *session) Held() error { return s.lost }

func (s *session) Rely(ctx context.Context, h objectstore.Hash) error {
	if s.asked != nil {
		s.asked("rely", h)
	}
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return s.err
	}
	s.relied[h] = true
	waits := slices.Clone(s.condemned[h])
	s.mu.Unlock()
	for _, over := range waits {
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *session) Condemn(ctx context.Context, shard byte, hs []objectstore.Hash) ([]objectstore.Hash, func(context.Context) error, error) {
	if s.asked != nil {
		s.asked("condemn", hs...)
	}
	s.mu.Lock()
	if s.lists[shard] {
		s.mu.Unlock()
		return nil, nil, fmt.Errorf("this session has condemned others of shard %x", shard)
	}
	s.lists[shard] = true
	done := make(chan struct{})
	for _, h := range hs {
		if h[0] != shard {
			s.mu.Unlock()
			return nil, nil, fmt.Errorf("object %s is not of shard %x", h, shard)
		}
		s.condemned[h] = append(s.condemned[h], done)
	}
	s.mu.Unlock()
	if s.asked != nil {
		s.asked("look")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	free := slices.DeleteFunc(slices.Clone(hs), func(h objectstore.Hash) bool {
		for other := range s.sessions {
			if other.relied[h] {
				return true
			}
		}
		return false
	})
	return free, func(ctx context.Context) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, h := range hs {
			s.condemned[h] = slices.DeleteFunc(s.condemned[h], func(c chan struct{}) bool { return c == done })
			if len(s.condemned[h]) == 0 {
				delete(s.condemned, h)
			}
		}
		delete(s.lists, shard)
		close(done)
		return nil
	}, nil
}

// fixture is a store with its cache, remote store and session.
type fixture struct {
	*cached.Store
	local *objectstore.Dir
	far   *far
	own   *session
	warns []error
}

// open opens a store over a remote, in a folder of its own. set may change the options.
func open(t testing.TB, r *far, p *pact, set func(*cached.Options)) *fixture {
	t.Helper()
	return openIn(t, t.TempDir(), r, p, set)
}

func openIn(t testing.TB, dir string, r *far, p *pact, set func(*cached.Options)) *fixture {
	t.Helper()
	local, err := objectstore.OpenDir(dir, objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{local: local, far: r, own: p.begin()}
	o := cached.Options{Local: local, Remote: r, Guard: f.own, Warn: func(err error) { f.warns = append(f.warns, err) }}
	if set != nil {
		set(&o)
	}
	if f.Store, err = cached.Open(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return f
}

// random returns n bytes that depend on seed.
func random(seed byte, n int) []byte {
	b := bytes.Repeat([]byte{seed, 1, 2, 3, 5, 7, 11}, n/7+1)[:n]
	for i := 0; i < n; i += 4096 {
		b[i] = byte(i>>12) ^ seed
	}
	return b
}

func mustPut(t testing.TB, s objectstore.Store, b []byte) objectstore.Hash {
	t.Helper()
	h, err := objectstore.PutBytes(t.Context(), s, b)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// expectCalls checks the requests since the last takeCalls.
func expectCalls(t testing.TB, r *far, want ...string) {
	t.Helper()
	if got := r.takeCalls(); !slices.Equal(got, want) {
		t.Errorf("requests: got %q, want %q", got, want)
	}
}

func call(op string, h objectstore.Hash) string { return op + " " + h.String()[:8] }
