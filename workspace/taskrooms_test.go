package workspace_test

import (
	"fmt"
	"testing"

	"e3/internal/format/manifest"
	"e3/workspace"
)

// TestTaskRooms: what is said of a task's room is what the package that is built from the file has.
func TestTaskRooms(t *testing.T) {
	const tasks = `
inputs: {list: {file: list.json}}
tasks:
  plain: {out: o, run: 'touch "$out"'}
  shut: {room: closed, out: o, run: 'touch "$out"'}
  free: {room: open, out: o, run: 'touch "$out"'}
  grows: {matrix: {i: list}, out: o, run: 'touch "$out"'}
  many: {matrix: {n: [1, 2]}, out: o, run: 'touch "$out"'}
`
	for _, c := range []struct{ head, said, set, want string }{
		{"", "", "", "[plain grows many] open by the default; [shut] closed by the task's room; [free] open by the task's room; "},
		{"", "", "closed", "[plain grows many] closed by the setting room; [shut] closed by the task's room; [free] open by the task's room; "},
		{"", "", "open", "[plain grows many] open by the setting room; [shut] closed by the task's room; [free] open by the task's room; "},
		{"room: closed\n", "", "open", "[plain grows many] closed by the package's room; [shut] closed by the task's room; [free] open by the task's room; "},
		{"room: open\n", "", "closed", "[plain grows many] open by the package's room; [shut] closed by the task's room; [free] open by the task's room; "},
		{"room: closed\n", "open", "closed", "[plain grows many] open by --room or E3_ROOM; [shut] closed by the task's room; [free] open by the task's room; "},
		{"image: box:1\n", "open", "", "[plain shut grows many] closed by the package's image (box:1); [free] open by the task's room; "},
	} {
		def, err := manifest.Parse("e3.yaml", []byte("e3: 1\nname: demo\n"+c.head+tasks))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, r := range workspace.RoomsOf(c.said, c.set).Of(def) {
			got += fmt.Sprintf("%s %s by %s", r.Tasks, map[bool]string{true: "closed", false: "open"}[r.Closed], r.By)
			if r.Image != "" {
				got += " (" + r.Image + ")"
			}
			got += "; "
		}
		if got != c.want {
			t.Errorf("%q, --room %q, setting %q: %s\nwant %s", c.head, c.said, c.set, got, c.want)
		}
	}
}
