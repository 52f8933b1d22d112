package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/internal/record"
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

func (p PackageRef) String() string { return p.Name + "@" + p.Version }

func packageKey(name, version string) refstore.Key {
	return refstore.Key{Partition: "PACKAGE", Sort: name + "/" + version}
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

// Package looks a package up. Without a version, the only one that is registered, or
// the greatest by the order of version numbers.
func (w *Workspaces) Package(ctx context.Context, name, version string) (PackageRef, error) {
	all, err := w.Packages(ctx)
	if err != nil {
		return PackageRef{}, err
	}
	var best *PackageRef
	var known []string
	for i := range all {
		p := &all[i]
		if version == "" && !slices.Contains(known, p.Name) {
			known = append(known, p.Name)
		} else if version != "" {
			known = append(known, p.String())
		}
		if p.Name == name && (p.Version == version || version == "" && (best == nil || compareVersions(p.Version, best.Version) > 0)) {
			best = p
		}
	}
	if best == nil {
		if version != "" {
			name += "@" + version
		}
		return PackageRef{}, &UnknownError{What: "package", Name: name, Known: known}
	}
	return *best, nil
}

// Packages lists the registered packages by name and version.
func (w *Workspaces) Packages(ctx context.Context) ([]PackageRef, error) {
	var all []PackageRef
	for rec, err := range w.Records.List(ctx, refstore.Query{Partition: "PACKAGE"}) {
		if err != nil {
			return nil, fmt.Errorf("list packages: %w", err)
		}
		name, version, ok := strings.Cut(rec.Key.Sort, "/")
		hash := strings.TrimSuffix(string(rec.Value), "\n")
		if _, err := objectstore.ParseHash(hash); err != nil || !ok {
			return nil, fmt.Errorf("package %s: its record does not hold a hash", rec.Key.Sort)
		}
		all = append(all, PackageRef{Name: name, Version: version, Hash: hash})
	}
	return all, nil
}

// RemovePackage takes a package out of the register. Workspaces that have it deployed keep it.
func (w *Workspaces) RemovePackage(ctx context.Context, name, version string) (PackageRef, error) {
	p, err := w.Package(ctx, name, version)
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
		return nil, fmt.Errorf("package object: %w", err)
	}
	return record.DecodePackage(data)
}

// compareVersions orders 1.9.0 before 1.10.0: runs of digits as numbers, all else as text. As in Semantic Versioning 2.0.0 a
// pre-release, 1.0.0-rc.1, comes before its release; what follows a + decides last.
func compareVersions(a, b string) int {
	mainA, preA, buildA := cutVersion(a)
	mainB, preB, buildB := cutVersion(b)
	if c := compareRuns(mainA, mainB); c != 0 {
		return c
	}
	if (preA == "") != (preB == "") {
		return len(preB) - len(preA)
	}
	return cmp.Or(compareRuns(preA, preB), compareRuns(buildA, buildB))
}

// cutVersion divides a version at its + and, if it has three numbers before it or a letter after it, at its first hyphen: a date
// is no pre-release.
func cutVersion(v string) (main, pre, build string) {
	v, build, _ = strings.Cut(v, "+")
	main, pre, ok := strings.Cut(v, "-")
	if ok && strings.Count(main, ".") != 2 && (pre == "" || digits(pre)) {
		return v, "", build
	}
	return main, pre, build
}

// compareRuns compares texts run by run.
func compareRuns(a, b string) int {
	for a != "" && b != "" {
		x, restA := versionPart(a)
		y, restB := versionPart(b)
		if x != y {
			if digits(x) && digits(y) {
				x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
				if len(x) != len(y) {
					return len(x) - len(y)
				}
			}
			if c := strings.Compare(x, y); c != 0 {
				return c
			}
		}
		a, b = restA, restB
	}
	return len(a) - len(b)
}

func versionPart(s string) (part, rest string) {
	number := digits(s[:1])
	i := 1
	for i < len(s) && digits(s[i:i+1]) == number {
		i++
	}
	return s[:i], s[i:]
}

func digits(s string) bool { return s == "" || s[0] >= '0' && s[0] <= '9' }
