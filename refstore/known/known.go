// Package known remembers on this machine what was read of a store of records, and answers from that when the store
// cannot be reached.
//
// A [Memory] keeps each record as it was last read, with the version that it had and the fields that were asked for.
// What was never read is not known, and is as if it did not exist. The memory is not needed to be whole: what could
// not be remembered in time is forgotten, so readers never wait for it.
package known

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"

	"e3/refstore"
)

// seenField is the side field of a remembered record that has its version, and the names of the fields that are known,
// one a line.
const seenField = "seen"

// backlog is how many reads may wait to be remembered.
const backlog = 4096

// A Memory keeps records on this machine. It is safe for concurrent use, by any number of processes.
type Memory struct {
	records refstore.Store
	reads   chan read

	begin sync.Once
	done  chan struct{}

	mu     sync.RWMutex
	closed bool // nothing more is remembered
}

// read is what a read has found: a record, or that there is none.
type read struct {
	key    refstore.Key
	record *refstore.Record // nil: none
	asked  []string         // names of fields
	// replaced is the version that a write has replaced: all other fields of that are this one's too.
	replaced refstore.Version
}

// NewMemory returns a memory in a store of this machine.
func NewMemory(records refstore.Store) *Memory {
	return &Memory{records: records, reads: make(chan read, backlog), done: make(chan struct{})}
}

// Close waits until what was read is remembered. What is read afterwards is not.
func (m *Memory) Close() error {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		m.begin.Do(func() { close(m.done) }) // nothing was read
		close(m.reads)
	}
	m.mu.Unlock()
	<-m.done
	return nil
}

// forgotten are the kinds of records that say what is happening now: they mean nothing later.
var forgotten = map[string]bool{"LEASE": true, "QUEUE": true, "CANCEL": true, "APPROVAL": true, "TASKS": true, "INPUTS": true, "RUNS": true}

// note remembers a read, soon.
func (m *Memory) note(r read) {
	kind, _, _ := strings.Cut(r.key.Partition, "/")
	if forgotten[kind] {
		return
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return
	}
	m.begin.Do(func() { go m.remember() })
	select {
	case m.reads <- r:
	default: // it is not worth waiting for
	}
}

func (m *Memory) remember() {
	defer close(m.done)
	for r := range m.reads {
		_ = m.keep(context.Background(), r) // what cannot be remembered is not known
	}
}

// keep writes what a read has found, unless it is known.
func (m *Memory) keep(ctx context.Context, r read) error {
	old, err := m.records.Get(ctx, r.key, seenField)
	none := errors.Is(err, refstore.ErrNotFound)
	if err != nil && !none && !errors.Is(err, refstore.ErrDamaged) {
		return err
	}
	version, names := seen(old)
	switch {
	case r.record == nil && none:
		return nil
	case r.record == nil:
		return m.records.Delete(ctx, r.key, old.Version)
	case !none && err == nil && r.replaced != refstore.Absent && version == r.replaced:
		names = append(names, r.asked...)
	case !none && err == nil && version == r.record.Version:
		if !slices.ContainsFunc(r.asked, func(name string) bool { return !slices.Contains(names, name) }) {
			return nil
		}
		names = append(names, r.asked...)
	case !none: // its other fields are those of another version
		if err := m.records.Delete(ctx, r.key, old.Version); err != nil {
			return err
		}
		old.Version, names = refstore.Absent, r.asked
	default:
		old.Version, names = refstore.Absent, r.asked
	}
	slices.Sort(names)
	text := strings.Join(append([]string{string(r.record.Version)}, slices.Compact(names)...), "\n")
	fields := append(slices.Clip(r.record.Fields), refstore.Field{Name: seenField, Value: []byte(text)})
	_, err = m.records.Put(ctx, refstore.Record{Key: r.key, Value: r.record.Value, Fields: fields, Version: old.Version})
	return err
}

// seen is the version of a remembered record, and the names of its fields that are known.
func seen(r refstore.Record) (version refstore.Version, names []string) {
	text, _ := r.Field(seenField)
	first, rest, some := strings.Cut(string(text), "\n")
	if some {
		names = strings.Split(rest, "\n")
	}
	return refstore.Version(first), names
}

// Records are a store whose reads and writes are remembered.
type Records struct {
	store  refstore.Durable
	memory *Memory
}

// Remember returns a store that remembers what it reads and writes.
func Remember(s refstore.Durable, m *Memory) *Records { return &Records{s, m} }

// Put implements [refstore.Store].
func (r *Records) Put(ctx context.Context, rec refstore.Record) (refstore.Version, error) {
	return r.put(ctx, rec, r.store.Put)
}

// PutSync is Put, durable when it returns.
func (r *Records) PutSync(ctx context.Context, rec refstore.Record) (refstore.Version, error) {
	return r.put(ctx, rec, r.store.PutSync)
}

func (r *Records) put(ctx context.Context, rec refstore.Record, put func(context.Context, refstore.Record) (refstore.Version, error)) (refstore.Version, error) {
	v, err := put(ctx, rec)
	if err == nil {
		kept := cloned(rec)
		kept.Version = v
		var names []string
		for _, f := range rec.Fields {
			names = append(names, f.Name)
		}
		r.memory.note(read{rec.Key, &kept, names, rec.Version})
	}
	return v, err
}

// Delete implements [refstore.Store].
func (r *Records) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	err := r.store.Delete(ctx, key, v)
	if err == nil {
		r.memory.note(read{key: key})
	}
	return err
}

// Get implements [refstore.Store].
func (r *Records) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	rec, err := r.store.Get(ctx, key, fields...)
	switch {
	case err == nil:
		copied := cloned(rec)
		r.memory.note(read{key: key, record: &copied, asked: fields})
	case errors.Is(err, refstore.ErrNotFound):
		r.memory.note(read{key: key})
	}
	return rec, err
}

// cloned copies a record, so that the caller may change it.
func cloned(r refstore.Record) refstore.Record {
	r.Value = bytes.Clone(r.Value)
	fields := r.Fields
	r.Fields = nil
	for _, f := range fields {
		r.Fields = append(r.Fields, refstore.Field{Name: f.Name, Value: bytes.Clone(f.Value)})
	}
	return r
}

// List implements [refstore.Store].
func (r *Records) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	if q.KeysOnly {
		return r.store.List(ctx, q)
	}
	return func(yield func(refstore.Record, error) bool) {
		for rec, err := range r.store.List(ctx, q) {
			if err == nil {
				copied := cloned(rec)
				r.memory.note(read{key: rec.Key, record: &copied, asked: q.Fields})
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// Offline are the records of a memory, in place of a store that is not asked. Nothing can be written, nothing is held,
// and there are no streams.
type Offline struct{ records refstore.Store }

var (
	_ refstore.Store   = (*Offline)(nil)
	_ refstore.Streams = (*Offline)(nil)
	_ refstore.Locker  = (*Offline)(nil)
)

// Offline returns what is remembered.
func (m *Memory) Offline() *Offline { return &Offline{m.records} }

// as is a remembered record as the store had it.
func as(r refstore.Record) refstore.Record {
	r.Version, _ = seen(r)
	r.Fields = slices.DeleteFunc(r.Fields, func(f refstore.Field) bool { return f.Name == seenField })
	return r
}

// Get implements [refstore.Store].
func (o *Offline) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	r, err := o.records.Get(ctx, key, append(slices.Clone(fields), seenField)...)
	return as(r), err
}

// List implements [refstore.Store].
func (o *Offline) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	if q.KeysOnly {
		return o.records.List(ctx, q)
	}
	q.Fields = append(slices.Clone(q.Fields), seenField)
	return func(yield func(refstore.Record, error) bool) {
		for r, err := range o.records.List(ctx, q) {
			if !yield(as(r), err) {
				return
			}
		}
	}
}

func offline(what string, key refstore.Key) error {
	return fmt.Errorf("%s %q while offline: %w", what, key, refstore.ErrReadOnly)
}

// Put implements [refstore.Store].
func (o *Offline) Put(_ context.Context, r refstore.Record) (refstore.Version, error) {
	return refstore.Absent, offline("put", r.Key)
}

// Delete implements [refstore.Store].
func (o *Offline) Delete(_ context.Context, key refstore.Key, _ refstore.Version) error {
	return offline("delete", key)
}

// Append implements [refstore.Streams].
func (o *Offline) Append(_ context.Context, key refstore.Key, _ int64, _ []byte) error {
	return offline("append to", key)
}

// Open implements [refstore.Streams].
func (o *Offline) Open(_ context.Context, key refstore.Key, _ int64) (io.ReadCloser, error) {
	return nil, fmt.Errorf("open %q: %w", key, refstore.ErrNotFound)
}

// Size implements [refstore.Streams].
func (o *Offline) Size(_ context.Context, key refstore.Key) (refstore.StreamInfo, error) {
	return refstore.StreamInfo{}, fmt.Errorf("size of %q: %w", key, refstore.ErrNotFound)
}

// Cut implements [refstore.Streams].
func (o *Offline) Cut(_ context.Context, key refstore.Key, _ int64) error { return offline("cut", key) }

// Seal implements [refstore.Streams].
func (o *Offline) Seal(_ context.Context, key refstore.Key) error { return offline("seal", key) }

// Remove implements [refstore.Streams].
func (o *Offline) Remove(_ context.Context, key refstore.Key) error { return offline("remove", key) }

// Follow implements [refstore.Streams].
func (o *Offline) Follow(_ context.Context, key refstore.Key, _ int64) (io.ReadCloser, error) {
	return nil, fmt.Errorf("follow %q: %w", key, refstore.ErrNotFound)
}

// ListStreams implements [refstore.Streams].
func (o *Offline) ListStreams(context.Context, refstore.Query) iter.Seq2[refstore.Key, error] {
	return func(func(refstore.Key, error) bool) {}
}

// ListPartitions implements [refstore.Streams].
func (o *Offline) ListPartitions(context.Context, string) iter.Seq2[string, error] {
	return func(func(string, error) bool) {}
}

// WatchStreams implements [refstore.Streams]: nothing changes.
func (o *Offline) WatchStreams(ctx context.Context, _ string) (<-chan struct{}, error) {
	ended := make(chan struct{})
	context.AfterFunc(ctx, func() { close(ended) })
	return ended, nil
}

// TryLock implements [refstore.Locker].
func (o *Offline) TryLock(_ context.Context, name string, _ refstore.Mode, _ []byte) (refstore.Lock, error) {
	return nil, fmt.Errorf("lock %q while offline: %w", name, refstore.ErrReadOnly)
}

// Holder implements [refstore.Locker]: nothing is known to be held.
func (o *Offline) Holder(context.Context, string) (holder []byte, held bool, err error) {
	return nil, false, nil
}

// TryClaim implements [refstore.Locker].
func (o *Offline) TryClaim(context.Context, [32]byte, []byte) (refstore.Lock, error) {
	return nil, fmt.Errorf("claim while offline: %w", refstore.ErrReadOnly)
}
