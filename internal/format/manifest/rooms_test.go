package manifest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/format/manifest"
)

func TestMayNameRooms(t *testing.T) {
	long := strings.Repeat("# nothing here\n", 10_000)
	for _, tt := range []struct {
		text string
		want bool
	}{
		{"e3: 1\ntasks: {t: {out: o, run: cat}}\n", false},
		{"e3: 1\nroom: closed\n", true},
		{"e3: 1\ntasks: {t: {out: o, run: cat, image: i}}\n", true},
		{"e3: 1\n\"r\\x6fom\": closed\n", true},
		{long, false},
		{long + "room: closed\n", true},
		{strings.Repeat(" ", 64<<10-2) + "room: closed\n", true}, // in two reads
		{strings.Repeat(" ", 64<<10-4) + "image", true},
		{"roo", false},
		{"", false},
	} {
		file := filepath.Join(t.TempDir(), "e3.yaml")
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := manifest.MayNameRooms(file); got != tt.want {
			t.Errorf("%.60q of %d bytes may name rooms: %v, want %v", tt.text, len(tt.text), got, tt.want)
		}
	}
	if dir := t.TempDir(); !manifest.MayNameRooms(dir) || !manifest.MayNameRooms(filepath.Join(dir, "none")) {
		t.Error("a folder and a missing file name no rooms, want that they are in doubt")
	}
}

// A file that names a room or an image is never taken for one that does not.
func TestNamedRoomsAreSeen(t *testing.T) {
	files, err := filepath.Glob("testdata/valid/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are %d valid files, %v", len(files), err)
	}
	seen := 0
	for _, file := range files {
		def, err := manifest.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		named := def.Room != manifest.NoRoom || def.Image != ""
		for i := range def.Tasks {
			named = named || def.Tasks[i].Spec.Room != manifest.NoRoom || def.Tasks[i].Spec.Image != ""
		}
		if named {
			seen++
		}
		if named && !manifest.MayNameRooms(file) {
			t.Errorf("%s names a room, want that it may", file)
		}
	}
	if seen == 0 {
		t.Error("no valid file names a room")
	}
}
