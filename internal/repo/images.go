package repo

import (
	"cmp"
	"context"
	"slices"

	"e3/internal/images"
	"e3/internal/images/registry"
	"e3/workspace"
)

// resolver finds the images of package files.
func resolver(r *Repo) *images.Resolver {
	return &images.Resolver{Objects: r.stores.objects, Registry: registry.Client{Agent: "e3/" + cmp.Or(r.opts.Version, "dev")}, Watch: r.opts.Fetching}
}

// ImagesOf brings images into a repository.
func ImagesOf(r *Repo) *images.Resolver { return resolver(r) }

// A UsedImage is an image with what uses it.
type UsedImage struct {
	images.Image
	UsedBy []workspace.ImageUser `json:"usedBy,omitempty"` // workspaces first
}

// ListImages lists the images of references and, with others, the further images that the repository's workspaces and
// packages use. unread says whose images are not known.
func ListImages(ctx context.Context, r *Repo, base string, refs []string, others bool) (used []UsedImage, unread, err error) {
	users, unread, err := r.Workspaces.Planner.ImageUsers(ctx)
	if err != nil {
		return nil, nil, err
	}
	list, err := resolver(r).List(ctx, base, refs)
	if err != nil {
		return nil, nil, err
	}
	if others {
		var more []string
		for _, u := range users {
			digest := images.Digest(u.Image)
			if !slices.Contains(more, digest) && !slices.ContainsFunc(list, func(l images.Image) bool { return l.Digest == digest }) {
				more = append(more, digest)
			}
		}
		slices.Sort(more)
		rest, err := resolver(r).List(ctx, base, more)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, rest...)
	}
	used = make([]UsedImage, len(list))
	for i, l := range list {
		used[i].Image = l
		for _, u := range users {
			if digest := images.Digest(u.Image); digest == l.Digest || digest == l.Reference {
				used[i].UsedBy = append(used[i].UsedBy, u)
			}
		}
	}
	return used, unread, nil
}
