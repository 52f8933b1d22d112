package manifest

import (
	"strings"

	"e3/internal/format/image"
)

// readImage reads a reference to an image.
func readImage(d *decoder, where string, n *node) string {
	text := d.text(where, n)
	if n.kind != stringNode {
		return ""
	}
	if _, err := image.ParseReference(text); err != nil {
		d.report.add(n.pos, "", "%s: %v", where, err)
		return ""
	}
	return d.intern(text)
}

// checkImages checks images against rooms and tools, once the whole file is known.
func checkImages(d *decoder) {
	if d.def.Image != "" && d.def.Room == OpenRoom {
		d.report.add(d.seen["image"], "leave out room: a task in an image has a closed room", "image: the room of the package is open")
	}
	for i := range d.bases {
		s := d.bases[i].spec
		switch {
		case s.Image != "" && s.Room == OpenRoom:
			d.report.add(s.Pos, "leave out room: a task in an image has a closed room", "task %s: it has an image, and its room is open", s.Base)
		case d.def.imageOf(s) != "" && s.Env != nil && len(s.Env.Tools) > 0:
			d.report.add(s.Pos, "leave them out of tools", "task %s: its programs are those of the image, whose digest is in the key", s.Base)
		}
	}
}

// imageOf returns the reference to the image in which the command of a task runs; "" for none.
func (d *Definition) imageOf(s *Spec) string {
	if s.Image == "" && s.Room != OpenRoom {
		return d.Image
	}
	return s.Image
}

// ImageOf returns the resolved hash of the image in which the command of a task runs; "" for none.
func (d *Definition) ImageOf(s *Spec) string {
	ref := d.imageOf(s)
	if hash, ok := strings.CutPrefix(ref, "sha256:"); ok {
		return hash
	}
	return d.Images[ref]
}

// ImageReferences returns the file's references to images, each once, in file order.
func (d *Definition) ImageReferences() []string {
	var list []string
	seen := map[string]bool{"": true}
	add := func(ref string) {
		if !seen[ref] {
			seen[ref] = true
			list = append(list, ref)
		}
	}
	add(d.Image)
	for _, ref := range d.images {
		add(ref)
	}
	return list
}

// Resolve notes the images to which the references lead. It must come before Expand and Encode.
func (d *Definition) Resolve(images map[string]string) { d.Images = images }

// nameImages replaces references in the tree of a file by the resolved images.
func (n *node) nameImages(images map[string]string) {
	n.member("image").resolve(images)
	tasks := n.member("tasks")
	for i := 1; i < len(tasks.list); i += 2 {
		tasks.list[i].member("image").resolve(images)
	}
}

func (n *node) resolve(images map[string]string) {
	if hash := images[n.text]; hash != "" {
		n.text = "sha256:" + hash
	}
}
