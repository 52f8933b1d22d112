package ui

import (
	"context"
	"sync"

	"e3/executions"
	"e3/objectstore"
)

// remembered are objects of which those that were read last stay in memory: a page of experiments reads the same files at each view,
// and what a hash names never changes.
type remembered struct {
	executions.Objects

	mu     sync.Mutex
	recent map[objectstore.Hash][]byte
	before map[objectstore.Hash][]byte // forgotten when recent is full
	size   int                         // of recent
}

// Bounds of what is remembered, in bytes: of both maps together, and of one object.
const (
	mostRemembered = 24 << 20
	maxRemembered  = 4 << 20
	perRemembered  = 200 // that an entry takes beside its content
)

// remembering returns the objects with a memory.
func remembering(objects executions.Objects) *remembered { return &remembered{Objects: objects} }

// ReadAll returns the bytes of an object, which the caller does not change.
func (r *remembered) ReadAll(ctx context.Context, h objectstore.Hash, limit int64) ([]byte, error) {
	r.mu.Lock()
	data, known := r.recent[h]
	if !known {
		data, known = r.before[h]
	}
	r.mu.Unlock()
	if !known {
		var err error
		if data, err = objectstore.ReadAll(ctx, r.Objects, h, limit); err != nil {
			return nil, err
		}
	}
	if int64(len(data)) > limit {
		return nil, &objectstore.TooLargeError{Hash: h, Limit: limit}
	}
	r.keep(h, data)
	return data, nil
}

// keep remembers an object as the one that was read last.
func (r *remembered) keep(h objectstore.Hash, data []byte) {
	if len(data) > maxRemembered {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.recent[h]; known {
		return
	}
	more := len(data) + perRemembered
	if r.recent == nil || r.size+more > mostRemembered/2 {
		r.before, r.recent, r.size = r.recent, map[objectstore.Hash][]byte{}, 0
	}
	r.recent[h] = data
	r.size += more
}
