package packages

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/pkgref"
	"e3/objectstore"
)

// An AmbiguousError says that a name without a version fits several packages.
type AmbiguousError struct {
	Name  string
	Why   string
	Known []string // name@version of the packages that fit
}

func (e *AmbiguousError) Error() string {
	const most = 12
	known := e.Known
	if len(known) > most {
		known = append(known[:most:most], fmt.Sprintf("and %d more", len(e.Known)-most))
	}
	return fmt.Sprintf("package %s without a version is not clear: %s; name one: %s", e.Name, e.Why, strings.Join(known, ", "))
}

// Find looks a package up. A name without a version means the greatest release of that name by pkgref.Greatest. A
// package that an export has made from a workspace is found only by its full name.
func (r *Registry) Find(ctx context.Context, name, version string) (Ref, error) {
	all, err := r.named(ctx, name, version)
	if err != nil || version != "" {
		return first(all), err
	}
	var releases []Ref
	for _, p := range all {
		snapshot, err := r.IsSnapshot(ctx, p)
		if err != nil {
			return Ref{}, err
		}
		if !snapshot {
			releases = append(releases, p)
		}
	}
	if len(releases) == 0 {
		return Ref{}, ambiguous(name, "no release of it is here, only what exports have made of workspaces", all)
	}
	versions := make([]string, len(releases))
	for i, p := range releases {
		versions[i] = p.Version
	}
	best, err := pkgref.Greatest(versions)
	if err != nil {
		return Ref{}, ambiguous(name, err.Error(), releases)
	}
	for _, p := range releases {
		if p.Version == best {
			return p, nil
		}
	}
	return Ref{}, ambiguous(name, "none is the greatest", releases)
}

// only looks up the package to remove: without a version, the only package of that name.
func (r *Registry) only(ctx context.Context, name, version string) (Ref, error) {
	all, err := r.named(ctx, name, version)
	if err == nil && len(all) > 1 {
		err = ambiguous(name, fmt.Sprintf("it has %d versions", len(all)), all)
	}
	return first(all), err
}

// named lists the packages of a name, and of a version unless that is "". The list has at least one element.
func (r *Registry) named(ctx context.Context, name, version string) ([]Ref, error) {
	all, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	var found []Ref
	var known []string
	seen := map[string]bool{}
	for _, p := range all {
		text := p.Name
		if version != "" {
			text = p.String()
		}
		if !seen[text] {
			seen[text], known = true, append(known, text)
		}
		if p.Name == name && (version == "" || p.Version == version) {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		if version != "" {
			name = pkgref.Join(name, version)
		}
		return nil, &human.UnknownError{What: "package", Name: name, Known: known}
	}
	return found, nil
}

func first(list []Ref) Ref {
	if len(list) == 0 {
		return Ref{}
	}
	return list[0]
}

func ambiguous(name, why string, list []Ref) error {
	e := &AmbiguousError{Name: name, Why: why}
	for _, p := range list {
		e.Known = append(e.Known, p.String())
	}
	return e
}

// maxVersion is the greatest length of a version.
const maxVersion = 64

// SnapshotVersion is the version of a package whose defaults an export has replaced by a workspace's datasets: the
// version of the original package, "+", and the beginning of a hash of the content. The same datasets give the same
// version, even if the export started from an earlier snapshot.
func SnapshotVersion(pkg *record.Package) string {
	bare := *pkg
	if base, marked := pkgref.Mark(pkg.Version); strings.HasPrefix(marked, "+") {
		bare.Version = base
	}
	suffix := "+" + objectstore.Sum(bare.Encode()).String()[:8]
	return bare.Version[:min(len(bare.Version), maxVersion-len(suffix))] + suffix
}

// IsSnapshot reports whether an export has made a registered package from a workspace. The form of the version must
// say so, and the content must match, since a release may have a version such as 1.0.0+1a2b3c4d too. If the content
// is gone, the form decides.
func (r *Registry) IsSnapshot(ctx context.Context, p Ref) (bool, error) {
	_, marked := pkgref.Mark(p.Version)
	if marked == "" {
		return false, nil
	}
	pkg, err := r.Load(ctx, p.Hash)
	switch {
	case err == nil:
		// A version that was shortened to the greatest length cannot be checked against the content.
		return marked[0] == '+' && (len(p.Version) == maxVersion || SnapshotVersion(pkg) == p.Version), nil
	case errors.Is(err, objectstore.ErrNotFound):
		return true, nil
	case !errors.Is(err, record.ErrType):
		return false, fmt.Errorf("package %s: %w", p, err)
	}
	east, err := r.LoadEast(ctx, p.Hash)
	if errors.Is(err, record.ErrType) {
		return true, nil // e3 verify reports the fault
	}
	if err != nil {
		return false, fmt.Errorf("package %s: %w", p, err)
	}
	return marked[0] == '-' && east.Root.String()[:8] == marked[1:], nil
}
