package record

import "e3/internal/format/beast2"

// linkRoomSchema is that of a link whose package was built with a room for tasks that name none, other than what the
// package file says. Older programs refuse it: they would take the package for what the file says.
var linkRoomSchema = newSchema("link", func() beast2.Type {
	return linkTypeOf(sourceType(FromParams), beast2.F("home", beast2.String), beast2.F("room", beast2.String))
})

// linkImagesSchema is that of a link whose package was built with images. Older programs refuse it: they would not see
// that another image counts now.
var linkImagesSchema = newSchema("link", func() beast2.Type {
	return linkTypeOf(sourceType(FromParams), beast2.F("home", beast2.String), beast2.F("room", beast2.String), beast2.F("images", beast2.String))
})

// readLinkImages reads a link with images, which may have a room.
func readLinkImages(r *beast2.Reader, l *Link) error {
	l.Home, l.Room = r.String(), r.String()
	at := r.Offset()
	if l.Images = r.String(); l.Images == "" {
		r.Failf(at, "there are no images")
	}
	return readLink(r, l, int(FromParams)+1)
}
