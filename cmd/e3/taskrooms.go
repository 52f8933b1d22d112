package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"e3/internal/format/manifest"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/workspace"
)

// roomJSON is the room of tasks of a package file, for programs.
type roomJSON struct {
	Tasks []string `json:"tasks"` // of the file: the items of a matrix are one
	Room  string   `json:"room"`
	Image string   `json:"image,omitempty"`
	By    string   `json:"by"`
}

// taskRooms tells in which rooms a workspace runs the tasks of a package file, and why. It is empty if all are in the open and
// nothing says so.
func taskRooms(ctx context.Context, r *repo.Repo, ws string, def *manifest.Definition) ([]roomJSON, error) {
	list, err := r.Workspaces.Planner.Rooms(ctx, ws, def)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(list, func(t workspace.TaskRoom) bool { return t.Closed || t.By != workspace.ByDefault }) {
		return nil, nil
	}
	doc := make([]roomJSON, 0, len(list))
	for _, t := range list {
		room := manifest.OpenRoom
		if t.Closed {
			room = manifest.ClosedRoom
		}
		doc = append(doc, roomJSON{Tasks: t.Tasks, Room: room.String(), Image: t.Image, By: string(t.By)})
	}
	return doc, nil
}

// writeRooms prints a line for each room.
func writeRooms(w io.Writer, rooms []roomJSON) {
	for _, r := range rooms {
		text := r.Room
		if r.Image != "" {
			text += ", in " + r.Image
		}
		fmt.Fprintf(w, "Room of %s: %s\n", human.Line(human.Few(r.Tasks)), human.Line(text+" ("+r.By+")"))
	}
}

// roomsOfPlan are the rooms of the package file of a plan; none if it follows none here.
func roomsOfPlan(ctx context.Context, r *repo.Repo, p *workspace.Plan) ([]roomJSON, error) {
	if p.File == "" || p.Elsewhere != nil && !p.Elsewhere.Here {
		return nil, nil
	}
	def, err := manifest.ParseFile(p.File)
	if err != nil {
		return nil, err
	}
	return taskRooms(ctx, r, p.Workspace, def)
}
