package workspace

import (
	"context"
	"fmt"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
)

// Images finds the images that package files refer to.
type Images interface {
	// Resolve returns the hashes of the images' manifests by their references, and a text of what they depend on
	// (State). base is the folder of the package file. It fetches images that the repository lacks, unless dry says
	// that nothing may be written.
	Resolve(ctx context.Context, base string, refs []string, dry bool) (hashes map[string]string, state string, err error)
	// State returns the present text for the images of an earlier one. If the texts are equal, so are the images.
	State(base, before string) string
}

// images resolves the references of a definition.
func (w *Deployer) images(ctx context.Context, def *manifest.Definition, base string, link *record.Link) error {
	refs := def.ImageReferences()
	if len(refs) == 0 {
		return nil
	}
	if w.states.Images == nil {
		return fmt.Errorf("image %s: images cannot be read here", refs[0])
	}
	_, dry := w.states.Objects.(*keeping)
	hashes, state, err := w.states.Images.Resolve(ctx, base, refs, dry)
	if err != nil {
		return err
	}
	def.Resolve(hashes)
	link.Images = state
	return nil
}

// sameImages reports whether the images of a package file are the same as when the package was built.
func sameImages(images Images, base string, link *record.Link) bool {
	return link.Images == "" || images != nil && images.State(base, link.Images) == link.Images
}
