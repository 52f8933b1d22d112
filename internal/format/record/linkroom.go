package record

import "e3/internal/format/beast2"

// linkRoomSchema is that of a link whose package was built with a room for tasks that name none, other than what the
// package file says. Older programs refuse it: they would take the package for what the file says.
var linkRoomSchema = newSchema("link", func() beast2.Type {
	return linkTypeOf(sourceType(FromParams), beast2.F("home", beast2.String), beast2.F("room", beast2.String))
})
