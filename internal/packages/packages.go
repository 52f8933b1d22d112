// Package packages keeps the register of a repository's packages, and reads package objects.
package packages

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"e3/internal/pkgref"
	"e3/objectstore"
	"e3/refstore"
)

// Conditions that callers branch on.
var (
	ErrExists      = errors.New("exists already")         // the name of a package is taken by other content
	ErrNotDeployed = errors.New("no package is deployed") // in a workspace
)

// Records is the store of the register.
type Records interface {
	refstore.Durable
	// Sync makes everything written before durable.
	Sync(ctx context.Context) error
}

// A Registry holds the packages of a repository: their registered names, and their objects. All methods are safe for
// concurrent use, by any number of processes.
type Registry struct {
	Records Records
	Locks   refstore.Locker
	Objects objectstore.Store

	kept *kept // nil: each call reads anew
}

// Ref is a package by its name in the register.
type Ref struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Hash    string `json:"hash"` // of the package object
}

func (p Ref) String() string { return pkgref.Join(p.Name, p.Version) }

// Registered is a package in a list.
type Registered struct {
	Ref
	NotRunnable string `json:"notRunnable,omitempty"` // why it cannot run here
}

// eastCode is why a package of the TypeScript e3 cannot be run here.
const eastCode = "East code"

// RegisteredOf is the row of a package; east says that the TypeScript e3 made it.
func RegisteredOf(p Ref, east bool) Registered {
	if east {
		return Registered{p, eastCode}
	}
	return Registered{Ref: p}
}

// Key is the key of a package's record in the register.
func Key(name, version string) refstore.Key {
	return refstore.Key{Partition: "PACKAGE", Sort: pkgref.Key(name, version)}
}

// Add enters a package under its name@version. Registering the same content again is
// fine; other content under a name that exists is refused with ErrExists.
func (r *Registry) Add(ctx context.Context, p Ref) error {
	// An object that the register names must be durable before its record.
	if err := r.Records.Sync(ctx); err != nil {
		return err
	}
	_, err := r.Records.PutSync(ctx, refstore.Record{Key: Key(p.Name, p.Version), Value: []byte(p.Hash + "\n")})
	if !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrInDoubt) { // in doubt, read the record
		return err
	}
	have, err := r.Find(ctx, p.Name, p.Version)
	if err != nil {
		return err
	}
	if have.Hash != p.Hash {
		return fmt.Errorf("package %s holds other content (%s): %w", p, have.Hash[:8], ErrExists)
	}
	return nil
}

// List returns the registered packages by name and version.
func (r *Registry) List(ctx context.Context) ([]Ref, error) {
	var all []Ref
	for rec, err := range r.Records.List(ctx, refstore.Query{Partition: "PACKAGE"}) {
		if err != nil {
			return nil, fmt.Errorf("list packages: %w", err)
		}
		name, version, ok := pkgref.SplitKey(rec.Key.Sort)
		hash := strings.TrimSuffix(string(rec.Value), "\n")
		if _, err := objectstore.ParseHash(hash); err != nil || !ok {
			return nil, fmt.Errorf("package %s: its record does not hold a hash", rec.Key.Sort)
		}
		all = append(all, Ref{Name: name, Version: version, Hash: hash})
	}
	return all, nil
}

// ListAll is List, and says whether each package can be run here.
func (r *Registry) ListAll(ctx context.Context) ([]Registered, error) {
	all, err := r.List(ctx)
	rows := make([]Registered, len(all))
	for i, p := range all {
		east, bad := r.IsEast(ctx, p.Hash)
		if bad != nil {
			return nil, fmt.Errorf("package %s: %w", p, bad)
		}
		rows[i] = RegisteredOf(p, east)
	}
	return rows, err
}

// Remove removes a package from the register: without a version, the only one of its name. Workspaces that have it
// deployed keep it.
func (r *Registry) Remove(ctx context.Context, name, version string) (Ref, error) {
	p, err := r.only(ctx, name, version)
	if err != nil {
		return p, err
	}
	return p, refstore.Forget(ctx, r.Records, r.Locks, Key(p.Name, p.Version))
}
