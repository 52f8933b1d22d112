package main

import (
	"fmt"
	"io"

	"e3/internal/human"
	"e3/workspace"
)

// writeRooms prints a line for each room.
func writeRooms(w io.Writer, rooms []workspace.TaskRoom) {
	for i := range rooms {
		fmt.Fprintf(w, "Room of %s: %s\n", human.Line(human.Few(rooms[i].Tasks)), human.Line(rooms[i].String()))
	}
}
