package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/refstore"
)

// Rooms are the rooms, given outside of a package file, of tasks that name none. A task's own room always counts. Then
// Said counts, then that of the package file, then Set.
type Rooms struct {
	Said manifest.Room // for one command
	Set  manifest.Room // the repository's setting
	Lost bool          // the setting cannot be read: a package file keeps the one with which it was built
}

// RoomsOf are the rooms with these names; "" for one that is not given.
func RoomsOf(said, set string) (r Rooms) {
	r.Said, _ = manifest.ParseRoom(said)
	r.Set, _ = manifest.ParseRoom(set)
	return r
}

// known fills in a lost setting from the link of an earlier build, which may be nil.
func (r Rooms) known(before *record.Link) Rooms {
	if r.Lost && before != nil {
		r.Set, _ = manifest.ParseRoom(before.Room)
	}
	return r
}

// apply gives a definition the room of tasks that name none.
func (r Rooms) apply(def *manifest.Definition) {
	if room := cmp.Or(r.Said, def.Room, r.Set); room != manifest.OpenRoom || def.Room == manifest.ClosedRoom {
		def.Room = room // else the package is that of a file which says nothing
	}
}

// text is what a link says of the rooms; "" if they change nothing.
func (r Rooms) text() string {
	switch {
	case r.Said != manifest.NoRoom:
		return "start " + r.Said.String()
	case r.Set == manifest.ClosedRoom:
		return r.Set.String()
	}
	return ""
}

// Followed returns the package files that workspaces follow on this machine.
func (w *Deployer) Followed(ctx context.Context) ([]string, error) {
	var files []string
	for rec, err := range (refstore.Unreadable{Store: w.states.Local}).List(ctx, refstore.Query{Partition: linkKey("").Partition}) {
		if err != nil {
			return nil, err
		}
		if l, err := w.states.links.readLink(rec.Key.Sort, rec.Value); err == nil && l.File != "" { // a start reports a bad one
			files = append(files, l.File)
		}
	}
	return files, nil
}

// rooms are those that count now.
func (w *States) rooms(ctx context.Context) (Rooms, error) {
	if w.Rooms == nil {
		return Rooms{}, nil
	}
	return w.Rooms(ctx)
}

// ErrRoomOfFile is wrapped if a room was said for a workspace whose tasks have been built already.
var ErrRoomOfFile = errors.New("it follows no package file here, so its tasks keep their rooms")

// roomsOf are the rooms for the tasks of a workspace that follows the file of a link; nil if it follows none.
func (w *States) roomsOf(ctx context.Context, ws string, link *record.Link) (Rooms, error) {
	r, err := w.rooms(ctx)
	if err == nil && r.Said != manifest.NoRoom && (link == nil || folderGone(link.File)) {
		err = fmt.Errorf("workspace %s: a room cannot be given: %w", ws, ErrRoomOfFile)
	}
	return r.known(link), err
}
