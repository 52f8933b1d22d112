// Package mem is a [refstore.Store] in memory, with streams, locks and watches. It serves tests: it waits only on
// channels, so that testing/synctest can drive its callers.
package mem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"e3/refstore"
)

// Store keeps everything in memory. Create it with [New].
type Store struct {
	mu       sync.Mutex
	versions uint64 // the last one given; one sequence for all keys, so that none recurs
	records  map[string]map[string]*record
	watches  map[watched]map[chan struct{}]struct{}
	streams  map[refstore.Key]*stream
	locks    map[string]*lockState
	claims   map[[32]byte]struct{}

	began     time.Time // of the one session; zero until it begins
	protected map[*[]string]struct{}
}

type record struct {
	home    refstore.Key // where it is not an alias
	value   []byte
	fields  map[string][]byte
	version refstore.Version
}

var (
	_ refstore.Durable  = (*Store)(nil)
	_ refstore.Streams  = (*Store)(nil)
	_ refstore.Locker   = (*Store)(nil)
	_ refstore.Watcher  = (*Store)(nil)
	_ refstore.Sessions = (*Store)(nil)
)

// New returns an empty store.
func New() *Store {
	return &Store{
		records: make(map[string]map[string]*record),
		watches: make(map[watched]map[chan struct{}]struct{}),
		streams: make(map[refstore.Key]*stream),
		locks:   make(map[string]*lockState),
		claims:  make(map[[32]byte]struct{}),
	}
}

// Get implements [refstore.Store].
func (s *Store) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	if err := check(ctx, key.Validate()); err != nil {
		return refstore.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[key.Partition][key.Sort]
	if rec == nil {
		return refstore.Record{}, fmt.Errorf("get %q: %w", key, refstore.ErrNotFound)
	}
	return rec.read(key, fields), nil
}

func (r *record) read(key refstore.Key, fields []string) refstore.Record {
	out := refstore.Record{Key: key, Value: bytes.Clone(r.value), Version: r.version}
	for _, name := range fields {
		if value, ok := r.fields[name]; ok {
			out.Fields = append(out.Fields, refstore.Field{Name: name, Value: bytes.Clone(value)})
		}
	}
	return out
}

// PutSync is Put: there is no disk.
func (s *Store) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return s.Put(ctx, r)
}

// Put implements [refstore.Store].
func (s *Store) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if err := check(ctx, r.Validate()); err != nil {
		return refstore.Absent, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(r)
}

// put is Put under s.mu.
func (s *Store) put(r refstore.Record) (refstore.Version, error) {
	partition := s.records[r.Key.Partition]
	rec := partition[r.Key.Sort]
	if current := rec.currentVersion(); current != r.Version {
		return refstore.Absent, fmt.Errorf("put %q: %w", r.Key, refstore.ErrConflict)
	}
	if partition == nil {
		partition = make(map[string]*record)
		s.records[r.Key.Partition] = partition
	}
	if rec == nil || rec.home != r.Key {
		rec = &record{home: r.Key, fields: make(map[string][]byte)}
		partition[r.Key.Sort] = rec
	}
	for _, f := range r.Fields {
		rec.fields[f.Name] = bytes.Clone(f.Value)
	}
	s.versions++
	rec.value = bytes.Clone(r.Value)
	rec.version = refstore.Version(strconv.FormatUint(s.versions, 10))
	s.wake(watched{partition: r.Key.Partition})
	return rec.version, nil
}

func (r *record) currentVersion() refstore.Version {
	if r == nil {
		return refstore.Absent
	}
	return r.version
}

// Delete implements [refstore.Store].
func (s *Store) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	if err := check(ctx, key.Validate()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delete(key, v)
}

// delete is Delete under s.mu.
func (s *Store) delete(key refstore.Key, v refstore.Version) error {
	rec := s.records[key.Partition][key.Sort]
	switch {
	case rec == nil:
		return fmt.Errorf("delete %q: %w", key, refstore.ErrNotFound)
	case rec.version != v:
		return fmt.Errorf("delete %q: %w", key, refstore.ErrConflict)
	}
	delete(s.records[key.Partition], key.Sort)
	s.wake(watched{partition: key.Partition})
	return nil
}

// Move moves a record, as a folder moves the jobs of a queue.
func (s *Store) Move(ctx context.Context, from refstore.Key, v refstore.Version, r refstore.Record) (refstore.Version, error) {
	if err := check(ctx, errors.Join(from.Validate(), r.Validate())); err != nil {
		return refstore.Absent, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch there := s.records[from.Partition][from.Sort].currentVersion(); there {
	case v:
	case refstore.Absent:
		return refstore.Absent, fmt.Errorf("move %q: %w", from, refstore.ErrNotFound)
	default:
		return refstore.Absent, fmt.Errorf("move %q: %w", from, refstore.ErrConflict)
	}
	to, err := s.put(r)
	if err == nil {
		err = s.delete(from, v)
	}
	return to, err
}

// Alias has a record appear at a second key. The alias shows the record as it is.
func (s *Store) Alias(ctx context.Context, key, alias refstore.Key) error {
	if err := check(ctx, errors.Join(key.Validate(), alias.Validate())); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[key.Partition][key.Sort]
	switch {
	case rec == nil:
		return fmt.Errorf("alias of %q: %w", key, refstore.ErrNotFound)
	case s.records[alias.Partition][alias.Sort] != nil:
		return fmt.Errorf("alias of %q: %w", key, refstore.ErrConflict)
	}
	if s.records[alias.Partition] == nil {
		s.records[alias.Partition] = make(map[string]*record)
	}
	s.records[alias.Partition][alias.Sort] = rec
	s.wake(watched{partition: alias.Partition})
	return nil
}

// PutUnaliased puts a record and drops its alias.
func (s *Store) PutUnaliased(ctx context.Context, r refstore.Record, alias refstore.Key) (v refstore.Version, gone bool, err error) {
	if err := check(ctx, errors.Join(r.Validate(), alias.Validate())); err != nil {
		return refstore.Absent, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, err = s.put(r); err != nil {
		return refstore.Absent, false, err
	}
	as := s.records[alias.Partition][alias.Sort]
	if as != nil && as == s.records[r.Key.Partition][r.Key.Sort] {
		return v, true, s.delete(alias, v)
	}
	return v, as == nil, nil
}

// WatchNames is Watch, and tells that any record may have been created.
func (s *Store) WatchNames(ctx context.Context, partition string) (
	c <-chan struct{}, made func() (sorts []string, all bool), err error,
) {
	c, err = s.Watch(ctx, partition)
	return c, func() ([]string, bool) { return nil, true }, err
}

// ReadBatch returns those of some records that are there.
func (s *Store) ReadBatch(ctx context.Context, keys []refstore.Key) (records []refstore.Record, err error) {
	if len(keys) == 0 || len(keys) > refstore.MaxReads {
		return nil, fmt.Errorf("read %d records at once: %w", len(keys), refstore.ErrInvalid)
	}
	for _, key := range keys {
		r, err := s.Get(ctx, key)
		if err == nil {
			records = append(records, r)
		} else if !errors.Is(err, refstore.ErrNotFound) {
			return nil, err
		}
	}
	return records, nil
}

// WriteBatch puts and deletes records, whatever was there.
func (s *Store) WriteBatch(ctx context.Context, puts []refstore.Record, gone []refstore.Key) error {
	if err := check(ctx, nil); err != nil {
		return err
	}
	if len(puts)+len(gone) > refstore.MaxBatch {
		return fmt.Errorf("write %d records at once: %w", len(puts)+len(gone), refstore.ErrInvalid)
	}
	for _, key := range gone {
		for {
			r, err := s.Get(ctx, key)
			if err == nil {
				err = s.Delete(ctx, key, r.Version)
			}
			if err == nil || errors.Is(err, refstore.ErrNotFound) {
				break
			}
			if !errors.Is(err, refstore.ErrConflict) {
				return err
			}
		}
	}
	for _, r := range puts {
		for {
			there, err := s.Get(ctx, r.Key)
			if err != nil && !errors.Is(err, refstore.ErrNotFound) {
				return err
			}
			r.Version = there.Version
			if _, err = s.Put(ctx, r); err == nil {
				break
			}
			if !errors.Is(err, refstore.ErrConflict) {
				return err
			}
		}
	}
	return nil
}

// List implements [refstore.Store].
func (s *Store) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	return func(yield func(refstore.Record, error) bool) {
		if err := check(ctx, q.Validate()); err != nil {
			yield(refstore.Record{}, err)
			return
		}
		s.mu.Lock()
		sorts := slices.Collect(maps.Keys(s.records[q.Partition]))
		s.mu.Unlock()
		n := 0
		for _, sort := range q.Select(sorts) {
			if err := ctx.Err(); err != nil {
				yield(refstore.Record{}, err)
				return
			}
			s.mu.Lock()
			rec := s.records[q.Partition][sort]
			var out refstore.Record
			if rec != nil {
				key := refstore.Key{Partition: q.Partition, Sort: sort}
				if q.KeysOnly {
					out.Key = key
				} else {
					out = rec.read(key, q.Fields)
				}
			}
			s.mu.Unlock()
			if rec == nil {
				continue
			}
			if !yield(out, nil) {
				return
			}
			if n++; n == q.Limit {
				return
			}
		}
	}
}

// watched names the subject of a watch: the records or the streams of a partition.
type watched struct {
	partition string
	streams   bool
}

// Watch implements [refstore.Watcher].
func (s *Store) Watch(ctx context.Context, partition string) (<-chan struct{}, error) {
	return s.watch(ctx, watched{partition: partition})
}

func (s *Store) watch(ctx context.Context, what watched) (<-chan struct{}, error) {
	if err := check(ctx, refstore.Query{Partition: what.partition}.Validate()); err != nil {
		return nil, err
	}
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[what] == nil {
		s.watches[what] = make(map[chan struct{}]struct{})
	}
	s.watches[what][c] = struct{}{}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches[what], c)
		close(c)
	})
	return c, nil
}

// wake notifies the watchers of a partition, under s.mu.
func (s *Store) wake(what watched) {
	for c := range s.watches[what] {
		select {
		case c <- struct{}{}:
		default: // one wake-up is waiting already
		}
	}
}

// check returns the first reason not to begin an operation.
func check(ctx context.Context, invalid error) error {
	if invalid != nil {
		return invalid
	}
	return ctx.Err()
}
