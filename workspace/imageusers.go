package workspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// An ImageUser is a workspace, or a registered package, whose tasks run in an image.
type ImageUser struct {
	Image     string   `json:"-"`                   // the hash of its manifest
	Workspace string   `json:"workspace,omitempty"` // absent: the package is registered
	Package   string   `json:"package"`             // name@version
	Tasks     []string `json:"tasks"`               // a matrix is one
}

// ImageUsers lists the users of images: workspaces in the order of their names, then registered packages. faults
// joins the errors of workspaces and packages that cannot be read; they are left out, and may use more images.
func (w *Planner) ImageUsers(ctx context.Context) (list []ImageUser, faults, err error) {
	known := map[string][]ImageUser{} // by the hash of a package
	add := func(ws string, ref PackageRef) error {
		users, ok := known[ref.Hash]
		if !ok {
			var err error
			if users, err = w.imagesOf(ctx, ref); err != nil {
				if lost, _ := objectstore.IsLost(err); !lost {
					return err
				}
				faults = errors.Join(faults, err)
			}
			known[ref.Hash] = users
		}
		for _, u := range users {
			u.Workspace, u.Package = ws, ref.String()
			list = append(list, u)
		}
		return nil
	}
	damaged, err := w.states.each(ctx, func(name string, s *State) error {
		if !s.Deployed {
			return nil
		}
		return add(name, s.Package())
	})
	if err != nil {
		return nil, nil, err
	}
	faults = errors.Join(faults, damaged)
	registered, err := w.states.Packages.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, ref := range registered {
		if err := add("", ref); err != nil {
			return nil, nil, err
		}
	}
	return list, faults, nil
}

// imagesOf lists the images of a package, each with its tasks. The items of a matrix have one definition, so only the
// first item is read.
func (w *Planner) imagesOf(ctx context.Context, ref PackageRef) ([]ImageUser, error) {
	pkg, err := w.states.Packages.Load(ctx, ref.Hash)
	if errors.Is(err, record.ErrType) { // of the TypeScript e3, which has no images
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("package %s: %w", ref, err)
	}
	of := map[string]*ImageUser{}
	seen := map[string]bool{}
	for i := range pkg.Tasks {
		base, _, _ := strings.Cut(pkg.Tasks[i].Name, "[")
		if seen[base] {
			continue
		}
		seen[base] = true
		h, err := objectstore.ParseHash(pkg.Tasks[i].Task)
		if err != nil {
			return nil, fmt.Errorf("package %s: task %s: %w", ref, pkg.Tasks[i].Name, err)
		}
		task, err := executions.LoadTask(ctx, w.states.Objects, h)
		if err != nil {
			return nil, fmt.Errorf("package %s: task %s: %w", ref, pkg.Tasks[i].Name, err)
		}
		if task.Image == "" {
			continue
		}
		if of[task.Image] == nil {
			of[task.Image] = &ImageUser{Image: task.Image}
		}
		of[task.Image].Tasks = append(of[task.Image].Tasks, base)
	}
	var list []ImageUser
	for _, hash := range slices.Sorted(maps.Keys(of)) {
		list = append(list, *of[hash])
	}
	return list, nil
}
