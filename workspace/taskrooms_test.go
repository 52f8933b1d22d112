package workspace_test

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"e3/executions"
	"e3/internal/format/manifest"
	"e3/objectstore"
	"e3/workspace"
)

// knownImages are workspace.Images in which every reference leads to an image.
type knownImages struct{}

func hashOfImage(ref string) string { return objectstore.Sum([]byte(ref)).String() }

func (knownImages) Resolve(_ context.Context, _ string, refs []string, _ bool) (map[string]string, string, error) {
	hashes := map[string]string{}
	for _, ref := range refs {
		hashes[ref] = hashOfImage(ref)
	}
	return hashes, strings.Join(refs, "\n"), nil
}

func (knownImages) State(_, before string) string { return before }

// TestTaskRooms: what is said of a task's room is what the package that is built from the file has.
func TestTaskRooms(t *testing.T) {
	p := newPlace(t)
	p.ws.Images = knownImages{}
	p.write("list.json", `["a", "b"]`)
	const tasks = `
inputs: {list: {file: list.json}}
tasks:
  plain: {out: o, run: 'touch "$out"'}
  shut: {room: closed, out: o, run: 'touch "$out"'}
  free: {room: open, out: o, run: 'touch "$out"'}
  grows: {matrix: {i: list}, out: o, run: 'touch "$out"'}
  boxed: {image: box:2, out: o, run: 'touch "$out"'}
  many: {matrix: {n: [1, 2]}, out: o, run: 'touch "$out"'}
`
	for _, c := range []struct{ head, said, set, want string }{
		{"", "", "", "[plain grows many] open by the default; [shut] closed by the task's room; [free] open by the task's room; [boxed] closed by the task's image (box:2); "},
		{"", "", "closed", "[plain grows many] closed by the setting room; [shut] closed by the task's room; [free] open by the task's room; [boxed] closed by the task's image (box:2); "},
		{"", "", "open", "[plain grows many] open by the setting room; [shut] closed by the task's room; [free] open by the task's room; [boxed] closed by the task's image (box:2); "},
		{"room: closed\n", "", "open", "[plain grows many] closed by the package's room; [shut] closed by the task's room; [free] open by the task's room; [boxed] closed by the task's image (box:2); "},
		{"room: open\n", "", "closed", "[plain grows many] open by the package's room; [shut] closed by the task's room; [free] open by the task's room; [boxed] closed by the task's image (box:2); "},
		{"room: closed\n", "open", "closed", "[plain grows many] open by --room or E3_ROOM; [shut] closed by the task's room; [free] open by the task's room; [boxed] closed by the task's image (box:2); "},
		{"image: box:1\n", "open", "", "[plain shut grows many] closed by the package's image (box:1); [free] open by the task's room; [boxed] closed by the task's image (box:2); "},
	} {
		p.write("e3.yaml", "e3: 1\nname: demo\n"+c.head+tasks)
		def, err := manifest.ParseFile(filepath.Join(p.dir, "e3.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		rooms := workspace.RoomsOf(c.said, c.set)
		p.ws.Rooms = func(context.Context) (workspace.Rooms, error) { return rooms, nil }
		list, err := p.ws.Planner.Rooms(p.ctx, "w", def)
		if err != nil {
			t.Fatal(err)
		}
		got, said := "", map[string]workspace.TaskRoom{}
		for _, r := range list {
			got += fmt.Sprintf("%s %s by %s", r.Tasks, r.Room, r.By)
			if r.Image != "" {
				got += " (" + r.Image + ")"
			}
			got += "; "
			for _, task := range r.Tasks {
				said[task] = r
			}
		}
		if got != c.want {
			t.Errorf("%q, --room %q, setting %q: %s\nwant %s", c.head, c.said, c.set, got, c.want)
		}
		built, err := p.ws.Deployer.Build(p.ctx, filepath.Join(p.dir, "e3.yaml"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(built.Package.Tasks); n != 8 {
			t.Errorf("%q: %d tasks are built, want 8", c.head, n)
		}
		for _, task := range built.Package.Tasks {
			h, err := objectstore.ParseHash(task.Task)
			if err != nil {
				t.Fatal(err)
			}
			has, err := executions.LoadTask(p.ctx, p.repo.Objects, h)
			if err != nil {
				t.Fatal(err)
			}
			base, _, _ := strings.Cut(task.Name, "[")
			r, image := said[base], ""
			if r.Image != "" {
				image = hashOfImage(r.Image)
			}
			if has.Room.Closed != (r.Room == manifest.ClosedRoom) || has.Image != image {
				t.Errorf("%q, --room %q, setting %q: %s has the room %v and the image %q, and is said to have %+v", c.head, c.said, c.set, task.Name, has.Room, cmp.Or(has.Image, "none"), r)
			}
		}
	}
}
