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

// Rooms are the rooms that are given outside of a package file for tasks that name none. A task's own room always
// counts; otherwise Said counts, then the package file's room, then Set.
type Rooms struct {
	Said manifest.Room // for one command
	Set  manifest.Room // the repository's setting
	Lost bool          // the setting cannot be read: a package file keeps the one with which it was built
}

// RoomsOf returns the rooms with these names; "" means that no room is given.
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

// apply sets a definition's room for tasks that name none.
func (r Rooms) apply(def *manifest.Definition) {
	if room := cmp.Or(r.Said, def.Room, r.Set); room != manifest.OpenRoom || def.Room == manifest.ClosedRoom {
		def.Room = room // else the package equals one of a file that names no room
	}
}

// text is the form of the rooms in a link; "" if they change nothing.
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

// rooms returns the rooms that count now.
func (w *States) rooms(ctx context.Context) (Rooms, error) {
	if w.Rooms == nil {
		return Rooms{}, nil
	}
	return w.Rooms(ctx)
}

// ErrRoomOfFile is wrapped if a command names a room for a workspace whose tasks are already built.
var ErrRoomOfFile = errors.New("it follows no package file here, so its tasks keep their rooms")

// roomsOf returns the rooms for the tasks of a workspace that follows the file of link; link is nil if it follows
// none.
func (w *States) roomsOf(ctx context.Context, ws string, link *record.Link) (Rooms, error) {
	r, err := w.rooms(ctx)
	if err == nil && r.Said != manifest.NoRoom && (link == nil || folderGone(link.File)) {
		err = fmt.Errorf("workspace %s: a room cannot be given: %w", ws, ErrRoomOfFile)
	}
	return r.known(link), err
}
