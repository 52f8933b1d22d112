package objectstoretest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"e3/objectstore"
)

// Mem is a store in memory. The zero value is empty and ready.
type Mem struct {
	mu      sync.Mutex
	objects map[objectstore.Hash][]byte
}

var _ objectstore.Store = (*Mem)(nil)

// Put stores the bytes of r.
func (m *Mem) Put(ctx context.Context, r io.Reader) (objectstore.Info, error) {
	if err := ctx.Err(); err != nil {
		return objectstore.Info{}, err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("store object: read: %w", err)
	}
	h := objectstore.Sum(b)
	m.Set(h, b)
	return objectstore.Info{Hash: h, Size: int64(len(b))}, nil
}

// Open returns the bytes of h.
func (m *Mem) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	b, ok := m.objects[h]
	m.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("object %s: %w", h, objectstore.ErrNotFound)
	}
	return objectstore.Checking(h, io.NopCloser(bytes.NewReader(b)), int64(len(b))), nil
}

// Missing returns the absent hashes of hs.
func (m *Mem) Missing(ctx context.Context, hs []objectstore.Hash) ([]objectstore.Hash, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var missing []objectstore.Hash
	seen := map[objectstore.Hash]bool{}
	for _, h := range hs {
		if _, ok := m.objects[h]; !ok && !seen[h] {
			seen[h] = true
			missing = append(missing, h)
		}
	}
	return missing, nil
}

// Set puts b under the name h, right or wrong, so that a test can make a corrupt object.
func (m *Mem) Set(h objectstore.Hash, b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		m.objects = map[objectstore.Hash][]byte{}
	}
	m.objects[h] = b
}

// Delete removes h.
func (m *Mem) Delete(h objectstore.Hash) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, h)
}

// Hashes returns the names of all objects, in order.
func (m *Mem) Hashes() []objectstore.Hash {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Keys(m.objects), objectstore.Hash.Compare)
}
