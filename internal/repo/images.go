package repo

import (
	"cmp"

	"e3/internal/images"
	"e3/internal/images/registry"
)

// resolver finds the images of package files.
func resolver(r *Repo) *images.Resolver {
	return &images.Resolver{Objects: r.stores.objects, Registry: registry.Client{Agent: "e3/" + cmp.Or(r.opts.Version, "dev")}, Watch: r.opts.Fetching}
}

// ImagesOf brings images into a repository.
func ImagesOf(r *Repo) *images.Resolver { return resolver(r) }
