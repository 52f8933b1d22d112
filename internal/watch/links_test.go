package watch_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/watch"
)

// An edit of what a link points to is told, and so is another target, wherever on the way the link is.
func TestBehindLinks(t *testing.T) {
	type edit struct{ what, path, to, want string } // to: the path becomes a link to it; else the file gets another content
	for _, poll := range []bool{false, true} {
		for _, test := range []struct {
			inputs string
			links  []string // path -> target
			edits  []edit
		}{
			{"{file: in.txt}", []string{"in.txt -> ../far/a.txt"}, []edit{
				{"the target", "../far/a.txt", "", "in.txt"}, {"the link", "in.txt", "../far/b.txt", "in.txt"}, {"the new target", "../far/b.txt", "", "in.txt"}}},
			{"{file: in.txt}", []string{"in.txt -> two", "two -> ../far/a.txt"}, []edit{
				{"the target of the target", "../far/a.txt", "", "in.txt"}, {"the second link", "two", "../far/b.txt", "in.txt"}}},
			{"{file: data/a.txt}", []string{"data -> ../far"}, []edit{
				{"a file in a linked folder", "../far/a.txt", "", "data/a.txt"}, {"the folder", "data", "../other", "data/a.txt"}}},
			{"{file: gone.txt}", []string{"gone.txt -> ../far/late.txt"}, []edit{{"a target that comes", "../far/late.txt", "", "gone.txt"}}},
			{"{params: params.yaml}", []string{"params.yaml -> ../far/params.yaml"}, []edit{{"parameters", "../far/params.yaml", "", "params.yaml"}}},
			{"{dir: data}", []string{"data -> ../far"}, []edit{{"a file of a linked folder", "../far/a.txt", "", "../far/a.txt"}}},
			{"{dir: data}", []string{"data/one -> ../x"}, []edit{{"a link in a folder", "data/one", "../y", "data/one"}}},
			{`{glob: "raw/*.txt"}`, []string{"raw/a.txt -> ../../far/a.txt"}, []edit{
				{"a linked sample", "../far/a.txt", "", "raw/a.txt"}, {"another target", "raw/a.txt", "../../far/b.txt", "raw/a.txt"}}},
			{`{glob: "raw/*/a.txt"}`, []string{"raw/s1 -> ../../far"}, []edit{
				{"a sample in a linked folder", "../far/a.txt", "", "raw/s1/a.txt"}, {"another folder", "raw/s1", "../../other", "raw/s1/a.txt"}}},
		} {
			top := t.TempDir()
			dir := filepath.Join(top, "project")
			for _, name := range []string{"far/a.txt", "far/b.txt", "other/a.txt"} {
				write(t, filepath.Join(top, name), name)
			}
			write(t, filepath.Join(top, "far/params.yaml"), "a: 1\n")
			for _, l := range test.links {
				path, target, _ := strings.Cut(l, " -> ")
				path = filepath.Join(dir, path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)); err != nil {
					t.Fatal(err)
				}
			}
			// The package file is a link too.
			write(t, filepath.Join(top, "far/e3.yaml"), "e3: 1\nname: p\ninputs: {in: "+test.inputs+"}\ntasks: {t: {out: o, run: [x]}}\n")
			file := filepath.Join(dir, "e3.yaml")
			if err := os.Symlink("../far/e3.yaml", file); err != nil {
				t.Fatal(err)
			}
			w, err := watch.New(file, watch.Options{Poll: poll, Quiet: 20 * time.Millisecond, Every: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range append(test.edits, edit{"the package file", "../far/e3.yaml", "", "e3.yaml"}) {
				path := filepath.Join(dir, e.path)
				if e.to == "" {
					old, _ := os.ReadFile(path)
					write(t, path, string(old)+" # edited\n")
				} else if err := errors.Join(os.Symlink(e.to, path+".new"), os.Rename(path+".new", path)); err != nil {
					t.Fatal(err)
				}
				if got := next(t, w, dir); !slices.Contains(got, e.want) {
					t.Errorf("poll %t, %s: after a change of %s: %q, want %q", poll, test.inputs, e.what, got, e.want)
				}
			}
			w.Close()
		}
	}
}
