package packages

import (
	"context"
	"sync"

	"e3/internal/format/record"
)

// maxKept is the number of packages that a registry remembers.
const maxKept = 8

// kept are packages that were read. Package objects never change, so they need not be read again.
type kept struct {
	mu   sync.Mutex
	all  map[string]*record.Package
	maps map[string]map[string]*record.PackageTask
}

// Remembering returns a registry that remembers the last few packages, for an answer that needs them in several
// places. Its packages are shared, and must not be changed.
func (r *Registry) Remembering() *Registry {
	if r.kept != nil {
		return r
	}
	c := *r
	c.kept = &kept{all: map[string]*record.Package{}, maps: map[string]map[string]*record.PackageTask{}}
	return &c
}

// load is Load. Two callers that ask for a package at the same time may both read it.
func (k *kept) load(ctx context.Context, r *Registry, hash string) (*record.Package, error) {
	k.mu.Lock()
	pkg := k.all[hash]
	k.mu.Unlock()
	if pkg != nil {
		return pkg, nil
	}
	pkg, err := r.load(ctx, hash)
	if err == nil {
		k.mu.Lock()
		keep(k.all, hash, pkg)
		k.mu.Unlock()
	}
	return pkg, err
}

func (k *kept) tasks(ctx context.Context, r *Registry, hash string) (map[string]*record.PackageTask, error) {
	k.mu.Lock()
	tasks := k.maps[hash]
	k.mu.Unlock()
	if tasks != nil {
		return tasks, nil
	}
	tasks, err := r.tasks(ctx, hash)
	if err == nil && tasks != nil {
		k.mu.Lock()
		keep(k.maps, hash, tasks)
		k.mu.Unlock()
	}
	return tasks, err
}

func keep[T any](in map[string]T, hash string, value T) {
	if len(in) >= maxKept {
		clear(in)
	}
	in[hash] = value
}
