package packages

import (
	"context"
	"errors"
	"fmt"
	"io"

	"e3/internal/format/eastref"
	"e3/internal/format/record"
	"e3/objectstore"
)

// maxEast is the greatest size in bytes of a package object of the TypeScript e3.
const maxEast = 64 << 20

// A PartError says that an object that a workspace's state names is lost: a node of its tree, or its package.
type PartError struct {
	Part string // such as "workspace node"
	Err  error
}

func (e *PartError) Error() string { return e.Part + ": " + e.Err.Error() }

func (e *PartError) Unwrap() error { return e.Err }

// Part wraps err, the error of reading a part of a workspace, in a PartError if the part is lost.
func Part(part string, err error) error {
	if lost, _ := objectstore.IsLost(err); lost {
		return &PartError{Part: part, Err: err}
	}
	return fmt.Errorf("%s: %w", part, err)
}

// Load reads a package object. A lost package is a *PartError; a package of the TypeScript e3 is record.ErrType.
func (r *Registry) Load(ctx context.Context, hash string) (*record.Package, error) {
	if r.kept != nil {
		return r.kept.load(ctx, r, hash)
	}
	return r.load(ctx, hash)
}

func (r *Registry) load(ctx context.Context, hash string) (*record.Package, error) {
	data, err := r.read(ctx, hash, record.MaxPackage)
	if err != nil {
		return nil, err
	}
	return record.DecodePackage(data)
}

// LoadEast reads a package object of the TypeScript e3.
func (r *Registry) LoadEast(ctx context.Context, hash string) (*eastref.Package, error) {
	data, err := r.read(ctx, hash, maxEast)
	if err != nil {
		return nil, err
	}
	return eastref.DecodePackage(data)
}

func (r *Registry) read(ctx context.Context, hash string, most int64) ([]byte, error) {
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return nil, fmt.Errorf("package: %w", err)
	}
	data, err := objectstore.ReadAll(ctx, r.Objects, h, most)
	if err != nil {
		return nil, Part("package object", err)
	}
	return data, nil
}

// IsEast reports whether a package object was made by the TypeScript e3; false if it is gone.
func (r *Registry) IsEast(ctx context.Context, hash string) (bool, error) {
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return false, fmt.Errorf("package: %w", err)
	}
	object, err := r.Objects.Open(ctx, h)
	if errors.Is(err, objectstore.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("package object: %w", err)
	}
	defer object.Close()
	head, err := io.ReadAll(io.LimitReader(object, eastref.PackageHeader))
	if err != nil {
		return false, fmt.Errorf("package object: %w", err)
	}
	return eastref.IsPackage(head), nil
}

// Tasks returns the tasks of a package by name, whichever program made it: tasks of the TypeScript e3 have only a name
// and an object. nil means that the package is lost, or that the object is no package.
func (r *Registry) Tasks(ctx context.Context, hash string) (map[string]*record.PackageTask, error) {
	if r.kept != nil {
		return r.kept.tasks(ctx, r, hash)
	}
	return r.tasks(ctx, hash)
}

func (r *Registry) tasks(ctx context.Context, hash string) (map[string]*record.PackageTask, error) {
	pkg, err := r.Load(ctx, hash)
	if errors.Is(err, record.ErrType) {
		var east *eastref.Package
		if east, err = r.LoadEast(ctx, hash); err == nil {
			pkg = &record.Package{Tasks: make([]record.PackageTask, len(east.Tasks))}
			for i, t := range east.Tasks {
				pkg.Tasks[i] = record.PackageTask{Name: t.Name, Task: t.Task.String()}
			}
		}
	}
	if errors.Is(err, record.ErrType) {
		return nil, nil
	}
	if lost, err := objectstore.IsLost(err); lost || err != nil {
		return nil, err
	}
	tasks := make(map[string]*record.PackageTask, len(pkg.Tasks))
	for i := range pkg.Tasks {
		tasks[pkg.Tasks[i].Name] = &pkg.Tasks[i]
	}
	return tasks, nil
}

// NotRunnableError says that a package holds code that this program does not run.
type NotRunnableError struct{ Package string }

func (e *NotRunnableError) Error() string {
	return fmt.Sprintf("package %s cannot be run here: it was made by the TypeScript e3 and holds East code", e.Package)
}
