package workspace

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"e3/internal/format/record"
	"e3/internal/pkgref"
	"e3/objectstore"
	"e3/refstore"
)

// maxPackage bounds a package object that is read into memory.
const maxPackage = 1 << 30

// PackageRef is a registered package.
type PackageRef struct {
	Name    string
	Version string
	Hash    string
}

func (p PackageRef) String() string { return pkgref.Join(p.Name, p.Version) }

func packageKey(name, version string) refstore.Key {
	return refstore.Key{Partition: "PACKAGE", Sort: pkgref.Key(name, version)}
}

// Register enters a package under its name@version. Registering the same content again is
// fine; other content under a name that exists is refused with ErrExists.
func (w *Workspaces) Register(ctx context.Context, p PackageRef) error {
	// What the register names must not be less durable than the register.
	if err := w.Records.Sync(ctx); err != nil {
		return err
	}
	_, err := w.Records.PutSync(ctx, refstore.Record{Key: packageKey(p.Name, p.Version), Value: []byte(p.Hash + "\n")})
	if !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrInDoubt) { // in doubt: what is there tells
		return err
	}
	have, err := w.Package(ctx, p.Name, p.Version)
	if err != nil {
		return err
	}
	if have.Hash != p.Hash {
		return fmt.Errorf("package %s holds other content (%s): %w", p, have.Hash[:8], ErrExists)
	}
	return nil
}

// Packages lists the registered packages by name and version.
func (w *Workspaces) Packages(ctx context.Context) ([]PackageRef, error) {
	var all []PackageRef
	for rec, err := range w.Records.List(ctx, refstore.Query{Partition: "PACKAGE"}) {
		if err != nil {
			return nil, fmt.Errorf("list packages: %w", err)
		}
		name, version, ok := pkgref.SplitKey(rec.Key.Sort)
		hash := strings.TrimSuffix(string(rec.Value), "\n")
		if _, err := objectstore.ParseHash(hash); err != nil || !ok {
			return nil, fmt.Errorf("package %s: its record does not hold a hash", rec.Key.Sort)
		}
		all = append(all, PackageRef{Name: name, Version: version, Hash: hash})
	}
	return all, nil
}

// RemovePackage takes a package out of the register: without a version, the only one of its name. Workspaces that have it deployed keep it.
func (w *Workspaces) RemovePackage(ctx context.Context, name, version string) (PackageRef, error) {
	p, err := w.only(ctx, name, version)
	if err != nil {
		return p, err
	}
	return p, w.forget(ctx, w.Records, packageKey(p.Name, p.Version))
}

// LoadPackage reads a package object.
func (w *Workspaces) LoadPackage(ctx context.Context, hash string) (*record.Package, error) {
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return nil, fmt.Errorf("package: %w", err)
	}
	data, err := objectstore.ReadAll(ctx, w.Objects, h, maxPackage)
	if err != nil {
		return nil, partError("package object", err)
	}
	return record.DecodePackage(data)
}
