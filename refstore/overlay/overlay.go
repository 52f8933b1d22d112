// Package overlay is a [refstore.Store] over another one that is only read: reads fall through to the base, and what is
// written stays in a store of this machine.
//
// # Records
//
// A change of a record of the base is kept with the version of the base that it was made on, and holds until the base
// has another one: then the base's record counts again. So a deployment in a shared repository is seen by all that
// keep an overlay over it. A record that the base does not have is this machine's. A deletion is a mark beside such a
// version.
//
// Only writes of this machine exclude each other by compare-and-swap. A write of the base between the look at it and
// the local write is as one that comes later.
//
// # Streams and locks
//
// A stream of the base is copied when it is first changed; it then no longer follows the base's. Locks and claims are
// local; a lock that a process holds in the base is refused here too. Sessions are local: the base's collector does not
// know them, so its objects may go, like those of any reader without a session.
package overlay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"e3/refstore"
)

// Base is the store that is read. Nothing of it is ever written.
type Base interface {
	refstore.Store
	refstore.Streams
	refstore.Locker
}

// Local is the store that keeps what is written.
type Local interface {
	Base
	refstore.Durable
	refstore.Sessions
	refstore.Watcher
}

// Store is an overlay. It is safe for concurrent use, by any number of processes with the same local store.
type Store struct {
	refstore.Sessions // the local ones
	base              Base
	local             Local
}

var (
	_ refstore.Durable  = (*Store)(nil)
	_ refstore.Streams  = (*Store)(nil)
	_ refstore.Locker   = (*Store)(nil)
	_ refstore.Hearing  = (*Store)(nil)
	_ refstore.Watcher  = (*Store)(nil)
	_ refstore.Sessions = (*Store)(nil)
)

// New returns an overlay of local over base.
func New(base Base, local Local) *Store { return &Store{Sessions: local, base: base, local: local} }

// markField is the side field of a local record that says what it stands for: a letter, and the version of the base's
// record when it was written.
const markField = "overlay"

// The letters of marks.
const (
	whole   = '-' // a record with all its fields
	changed = '=' // a change of the base's record: fields that it does not have are the base's
	gone    = 'x' // a deletion of the base's record
)

// The first letters of versions.
const (
	ofBase  = "b"
	ofLocal = "l"
)

// entry is what both stores have under a key.
type entry struct {
	key   refstore.Key
	local *refstore.Record // nil: none
	base  *refstore.Record // nil: none
	// Errors of reads, which wrap refstore.ErrDamaged.
	localErr, baseErr error
}

// mark returns the letter of the local record and the version of the base for which it holds.
func (e *entry) mark() (kind byte, of refstore.Version) {
	text, _ := e.local.Field(markField)
	if len(text) == 0 {
		return whole, refstore.Absent // a damaged one, or one of an enumeration
	}
	return text[0], refstore.Version(text[1:])
}

// version is that of the base's record.
func (e *entry) version() refstore.Version {
	if e.base == nil {
		return refstore.Absent
	}
	return e.base.Version
}

// holds reports whether the local record counts.
func (e *entry) holds() bool {
	if e.local == nil {
		return false
	}
	_, of := e.mark()
	return of == e.version() || e.localErr != nil
}

// record returns the record that counts, with the fields that were asked for; ok is false if there is none.
func (e *entry) record(fields []string) (r refstore.Record, ok bool, err error) {
	switch {
	case !e.holds() && e.base == nil:
		return refstore.Record{}, false, nil
	case !e.holds():
		r = *e.base
		r.Version = ofBase + r.Version
		return r, true, e.baseErr
	}
	kind, _ := e.mark()
	if kind == gone {
		return refstore.Record{}, false, nil
	}
	r = *e.local
	r.Version, r.Fields = ofLocal+r.Version, nil
	for _, name := range fields {
		value, there := e.local.Field(name)
		if !there && kind == changed {
			value, there = e.base.Field(name)
		}
		if there {
			r.Fields = append(r.Fields, refstore.Field{Name: name, Value: value})
		}
	}
	return r, true, e.localErr
}

// look reads what both stores have. The base is read last: its fields are then at least as new as the version that
// decides.
func (s *Store) look(ctx context.Context, key refstore.Key, fields ...string) (*entry, error) {
	e := &entry{key: key}
	read := func(from refstore.Store, into **refstore.Record, damage *error, fields []string) error {
		rec, err := from.Get(ctx, key, fields...)
		switch {
		case errors.Is(err, refstore.ErrNotFound):
			return nil
		case errors.Is(err, refstore.ErrDamaged):
			*damage = err
		case err != nil:
			return err
		}
		*into = &rec
		return nil
	}
	if err := read(s.local, &e.local, &e.localErr, append(slices.Clone(fields), markField)); err != nil {
		return nil, err
	}
	return e, read(s.base, &e.base, &e.baseErr, fields)
}

// InBase reports whether the base has a record.
func (s *Store) InBase(ctx context.Context, key refstore.Key) (bool, error) {
	_, err := s.base.Get(ctx, key)
	if errors.Is(err, refstore.ErrNotFound) {
		return false, nil
	}
	return err == nil || errors.Is(err, refstore.ErrDamaged), err
}

// Get implements [refstore.Store].
func (s *Store) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	e, err := s.look(ctx, key, fields...)
	if err != nil {
		return refstore.Record{}, err
	}
	r, ok, err := e.record(fields)
	if !ok {
		return refstore.Record{}, fmt.Errorf("get %q: %w", key, refstore.ErrNotFound)
	}
	return r, err
}

// Put implements [refstore.Store].
func (s *Store) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return s.put(ctx, r, s.local.Put)
}

// PutSync implements [refstore.Durable].
func (s *Store) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return s.put(ctx, r, s.local.PutSync)
}

func (s *Store) put(ctx context.Context, r refstore.Record, put func(context.Context, refstore.Record) (refstore.Version, error)) (refstore.Version, error) {
	if err := r.Validate(); err != nil {
		return refstore.Absent, err
	}
	e, err := s.expect(ctx, "put", r.Key, r.Version)
	if err != nil {
		return refstore.Absent, err
	}
	kind := byte(whole)
	switch {
	case e.holds() && r.Version != refstore.Absent:
		kind, _ = e.mark()
		r.Version = e.local.Version
	default:
		if r.Version != refstore.Absent {
			kind = changed
		}
		if err := s.clear(ctx, e); err != nil {
			return refstore.Absent, err
		}
		r.Version = refstore.Absent
	}
	r.Fields = append(slices.Clip(r.Fields), mark(kind, e.version()))
	v, err := put(ctx, r)
	if err != nil {
		return refstore.Absent, err
	}
	return ofLocal + v, nil
}

func mark(kind byte, of refstore.Version) refstore.Field {
	return refstore.Field{Name: markField, Value: []byte(string(kind) + string(of))}
}

// expect reads what there is, and fails if the record that counts has not the version: ErrConflict.
func (s *Store) expect(ctx context.Context, what string, key refstore.Key, v refstore.Version) (*entry, error) {
	e, err := s.look(ctx, key)
	if err != nil {
		return nil, err
	}
	now, _, _ := e.record(nil)
	if now.Version != v {
		return nil, fmt.Errorf("%s %q: %w", what, key, refstore.ErrConflict)
	}
	return e, nil
}

// clear removes a local record, with all its fields, that another one is to follow.
func (s *Store) clear(ctx context.Context, e *entry) error {
	if e.local == nil {
		return nil
	}
	err := s.local.Delete(ctx, e.key, e.local.Version)
	if errors.Is(err, refstore.ErrNotFound) {
		return fmt.Errorf("replace %q: %w", e.key, refstore.ErrConflict)
	}
	return err
}

// Delete implements [refstore.Store].
func (s *Store) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	if err := key.Validate(); err != nil {
		return err
	}
	e, err := s.look(ctx, key)
	if err != nil {
		return err
	}
	now, ok, _ := e.record(nil)
	switch {
	case !ok:
		return fmt.Errorf("delete %q: %w", key, refstore.ErrNotFound)
	case now.Version != v:
		return fmt.Errorf("delete %q: %w", key, refstore.ErrConflict)
	}
	if err := s.clear(ctx, e); err != nil || e.base == nil {
		return err
	}
	_, err = s.local.Put(ctx, refstore.Record{Key: key, Fields: []refstore.Field{mark(gone, e.version())}})
	return err
}

// enumerates reports whether a store makes the records of a partition from others: they have no value and no fields.
func enumerates(partition string) bool {
	kind, _, _ := strings.Cut(partition, "/")
	return kind == "TASKS" || kind == "INPUTS" || kind == "RUNS"
}

// List implements [refstore.Store].
func (s *Store) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	return func(yield func(refstore.Record, error) bool) {
		here := map[string]*entry{}
		local := q
		local.Limit = 0
		if !enumerates(q.Partition) {
			local.KeysOnly, local.Fields = false, append(slices.Clone(q.Fields), markField)
		}
		var order []string
		for rec, err := range s.local.List(ctx, local) {
			if err != nil && !errors.Is(err, refstore.ErrDamaged) {
				yield(refstore.Record{}, err)
				return
			}
			here[rec.Key.Sort] = &entry{key: rec.Key, local: &rec, localErr: err}
			order = append(order, rec.Key.Sort)
		}
		far := q
		if q.Limit > 0 {
			far.Limit = q.Limit + len(order) // so many of the base's may be hidden
		}
		left := q.Limit
		give := func(e *entry) bool {
			r, ok, err := e.record(q.Fields)
			if !ok {
				return true
			}
			if q.KeysOnly {
				r = refstore.Record{Key: r.Key}
			}
			left--
			return yield(r, err) && left != 0
		}
		// both decides about a key that both have. A list of keys does not say the base's version.
		both := func(e *entry) bool {
			if q.KeysOnly && !enumerates(q.Partition) {
				var err error
				if e, err = s.look(ctx, e.key); err != nil {
					yield(refstore.Record{}, err)
					return false
				}
			}
			return give(e)
		}
		first := func(a, b string) bool { return a < b != q.Descending }
		for rec, err := range s.base.List(ctx, far) {
			if err != nil && !errors.Is(err, refstore.ErrDamaged) {
				yield(refstore.Record{}, err)
				return
			}
			for len(order) > 0 && order[0] != rec.Key.Sort && first(order[0], rec.Key.Sort) {
				if !give(here[order[0]]) {
					return
				}
				order = order[1:]
			}
			e := &entry{key: rec.Key, base: &rec, baseErr: err}
			next := give
			if len(order) > 0 && order[0] == rec.Key.Sort {
				e.local, e.localErr, next, order = here[order[0]].local, here[order[0]].localErr, both, order[1:]
			}
			if !next(e) {
				return
			}
		}
		for _, name := range order {
			if !give(here[name]) {
				return
			}
		}
	}
}

// ListTime says that the list has just changed where the base has such times, since a record may go in the base
// unnoticed here; 0 where it has none.
func (s *Store) ListTime(string) (int64, error) {
	if _, ok := s.base.(interface {
		ListTime(partition string) (int64, error)
	}); !ok {
		return 0, nil
	}
	return time.Now().UnixNano(), nil
}

// Watch implements [refstore.Watcher]. A base that is no watcher is not watched.
func (s *Store) Watch(ctx context.Context, partition string) (<-chan struct{}, error) {
	here, err := s.local.Watch(ctx, partition)
	if err != nil {
		return nil, err
	}
	w, ok := s.base.(refstore.Watcher)
	if !ok {
		return here, nil
	}
	there, err := w.Watch(ctx, partition)
	if err != nil {
		return nil, err
	}
	return either(here, there), nil
}

// either wakes when one of two channels does, and is closed once both are.
func either(a, b <-chan struct{}) <-chan struct{} {
	woken := make(chan struct{}, 1)
	go func() {
		defer close(woken)
		for a != nil || b != nil {
			var ok bool
			select {
			case _, ok = <-a:
				if !ok {
					a = nil
				}
			case _, ok = <-b:
				if !ok {
					b = nil
				}
			}
			if ok {
				select {
				case woken <- struct{}{}:
				default: // it is about to wake anyway
				}
			}
		}
	}()
	return woken
}

// TryLock implements [refstore.Locker].
func (s *Store) TryLock(ctx context.Context, name string, mode refstore.Mode, holder []byte) (refstore.Lock, error) {
	text, held, err := s.base.Holder(ctx, name)
	if err != nil {
		return nil, err
	}
	if held {
		return nil, &refstore.LockedError{Name: name, Holder: text}
	}
	return s.local.TryLock(ctx, name, mode, holder)
}

// Holder implements [refstore.Locker].
func (s *Store) Holder(ctx context.Context, name string) (holder []byte, held bool, err error) {
	holder, _, held, err = s.HeldBy(ctx, name)
	return holder, held, err
}

// HeldBy implements [refstore.Hearing].
func (s *Store) HeldBy(ctx context.Context, name string) (holder []byte, heard refstore.Heard, held bool, err error) {
	holder, heard, held, err = refstore.HeldBy(ctx, s.local, name)
	if held || err != nil {
		return holder, heard, held, err
	}
	return refstore.HeldBy(ctx, s.base, name)
}

// TryClaim implements [refstore.Locker]: the claims of this machine exclude each other, those of the base do not count.
func (s *Store) TryClaim(ctx context.Context, key [32]byte, holder []byte) (refstore.Lock, error) {
	return s.local.TryClaim(ctx, key, holder)
}
