package workspace

import (
	"cmp"
	"context"
	"slices"

	"e3/internal/format/manifest"
)

// A TaskRoom is the room of some tasks of a package file, and the source of that decision.
type TaskRoom struct {
	Tasks []string      `json:"tasks"`           // in the order of the file; a matrix is one
	Room  manifest.Room `json:"room"`            // open or closed
	Image string        `json:"image,omitempty"` // a reference; absent: the machine's files
	By    RoomSource    `json:"by"`              // what decided the room
}

// A RoomSource is the source of the decision about a room: words for people, which programs may compare.
type RoomSource string

// The sources of rooms, the strongest first.
const (
	ByTaskImage    RoomSource = "the task's image"
	ByPackageImage RoomSource = "the package's image"
	ByTask         RoomSource = "the task's room"
	ByCommand      RoomSource = "--room or E3_ROOM"
	ByPackage      RoomSource = "the package's room"
	BySetting      RoomSource = "the setting room"
	ByDefault      RoomSource = "the default"
)

// Rooms tells in which rooms a start of the workspace would run the tasks of a package file. Tasks with the same room
// and source share an entry. There are no entries if all tasks run in the open by default.
func (w *Planner) Rooms(ctx context.Context, ws string, def *manifest.Definition) ([]TaskRoom, error) {
	rooms, err := w.roomsGiven(ctx, ws)
	if err != nil {
		return nil, err
	}
	list := rooms.Of(def)
	if len(list) == 1 && list[0].By == ByDefault {
		list = nil
	}
	return list, nil
}

// roomsIn is Rooms for a package file that is parsed only if a task may have another room than the default.
func (w *Planner) roomsIn(ctx context.Context, ws, file string) ([]TaskRoom, error) {
	rooms, err := w.roomsGiven(ctx, ws)
	if err != nil || rooms.Said == manifest.NoRoom && rooms.Set == manifest.NoRoom && !manifest.MayNameRooms(file) {
		return nil, err
	}
	def, err := manifest.ParseFile(file)
	if err != nil {
		return nil, err
	}
	return w.Rooms(ctx, ws, def)
}

// roomsGiven are the rooms that are given outside of the workspace's package file.
func (w *Planner) roomsGiven(ctx context.Context, ws string) (Rooms, error) {
	rooms, err := w.states.rooms(ctx)
	if err != nil {
		return rooms, err
	}
	before, err := w.states.links.remembered(ctx, ws)
	return rooms.known(before), ignoreBadLink(err)
}

// Of tells the rooms of the tasks of a package file, as Planner.Rooms does.
func (r Rooms) Of(def *manifest.Definition) []TaskRoom {
	var specs []*manifest.Spec
	for i := range def.Tasks {
		if s := def.Tasks[i].Spec; len(specs) == 0 || specs[len(specs)-1] != s {
			specs = append(specs, s)
		}
	}
	for i := range def.Families { // tasks of families too, which may have no items yet
		specs = append(specs, def.Families[i].Spec)
	}
	slices.SortStableFunc(specs, func(a, b *manifest.Spec) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column))
	})
	var list []TaskRoom
	for i, s := range specs {
		if i > 0 && s.Base == specs[i-1].Base {
			continue
		}
		is := r.of(def, s)
		at := slices.IndexFunc(list, func(t TaskRoom) bool { return t.Room == is.Room && t.Image == is.Image && t.By == is.By })
		if at < 0 {
			at, list = len(list), append(list, is)
		}
		list[at].Tasks = append(list[at].Tasks, s.Base)
	}
	return list
}

// of decides as apply and the build of a task do together.
func (r Rooms) of(def *manifest.Definition, s *manifest.Spec) TaskRoom {
	switch {
	case s.Image != "":
		return TaskRoom{Room: manifest.ClosedRoom, Image: s.Image, By: ByTaskImage}
	case def.Image != "" && s.Room != manifest.OpenRoom:
		return TaskRoom{Room: manifest.ClosedRoom, Image: def.Image, By: ByPackageImage}
	case s.Room != manifest.NoRoom:
		return TaskRoom{Room: s.Room, By: ByTask}
	case r.Said != manifest.NoRoom:
		return TaskRoom{Room: r.Said, By: ByCommand}
	case def.Room != manifest.NoRoom:
		return TaskRoom{Room: def.Room, By: ByPackage}
	case r.Set != manifest.NoRoom:
		return TaskRoom{Room: r.Set, By: BySetting}
	}
	return TaskRoom{Room: manifest.OpenRoom, By: ByDefault}
}

// String is "closed, in ubuntu:24.04 (the task's image)".
func (t *TaskRoom) String() string {
	text := t.Room.String()
	if t.Image != "" {
		text += ", in " + t.Image
	}
	return text + " (" + string(t.By) + ")"
}
