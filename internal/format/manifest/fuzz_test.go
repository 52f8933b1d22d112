package manifest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/manifest"
)

// FuzzParse checks that Parse never panics and is deterministic, that reading in pieces gives the same result as
// reading whole, and that every index of an accepted Definition is valid.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/valid/*", "testdata/invalid/*.yaml"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			f.Fatalf("no files match %s: %v", pattern, err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			if len(data) < 4<<10 && filepath.Base(name) != "alias_bomb.yaml" {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 64<<10 {
			return
		}
		sameInPieces(t, data)
		d, err := manifest.Parse("f", data)
		if err != nil {
			return
		}
		again, err := manifest.Parse("f", data)
		if err != nil {
			t.Fatalf("refused the second time: %v", err)
		}
		if diff := cmp.Diff(d, again, ignoreText); diff != "" {
			t.Fatalf("not deterministic:\n%s", diff)
		}
		wiring(d)
		manifest.Lint(d)
		names := map[string]bool{}
		for _, task := range d.Tasks {
			if names[task.Name] {
				t.Fatalf("two tasks are named %q", task.Name)
			}
			names[task.Name] = true
			manifest.Expand(task.Command.Argv, func(string) (string, bool) { return "", true })
		}
	})
}
