package projectfiles_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/format/manifest"
	"e3/internal/projectfiles"
)

// nothing is left out beside the usual.
var nothing = manifest.NewExcept(nil, "")

// project makes a folder with files; a name with " -> " is a link.
func project(t *testing.T, names ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "project")
	for _, name := range names {
		name, target, link := strings.Cut(name, " -> ")
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if link {
			err = errors.Join(err, os.Symlink(target, path))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(name), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func paths(found *projectfiles.Find) (list []string) {
	for _, f := range found.Files {
		list = append(list, f.Path)
	}
	return list
}

// A match finds all files of a pattern, and reads no folder that cannot hold any.
func TestMatch(t *testing.T) {
	dir := project(t, "z.py", "src/b.py", "src/a.py", "src/a/x.py", "src/a/y.txt", "src/a.d/x.py", "src/.hidden/x.py", "src/.x.py",
		"src/.e3/objects/x.py", "data/1/raw/x.csv", "data/1/other/deep/x.csv", "data/2/raw/y.csv", ".e3/x.py", "big/1/2/3.py")
	for _, test := range []struct {
		pattern                  string
		want, mayNotRead, hidden []string
	}{
		{"src/**/*.py", []string{"src/a.d/x.py", "src/a.py", "src/a/x.py", "src/b.py"}, []string{".", "big", "src/.hidden", "src/.e3"}, []string{"src/.x.py"}},
		{"src/**", []string{"src/a.d/x.py", "src/a.py", "src/a/x.py", "src/a/y.txt", "src/b.py"}, []string{"src/.hidden"}, nil},
		{"*.py", []string{"z.py"}, []string{"src", "big"}, nil},
		{"data/*/raw/*.csv", []string{"data/1/raw/x.csv", "data/2/raw/y.csv"}, []string{"data/1/other", "."}, nil},
		{".e3/*", nil, []string{".e3"}, nil},
		{"src/.hidden/*", []string{"src/.hidden/x.py"}, []string{"src", "src/a"}, nil},
	} {
		found, err := projectfiles.Match(dir, test.pattern, nothing)
		if got := paths(found); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, %v; want %q", test.pattern, got, err, test.want)
		}
		if !slices.Equal(found.Hidden, test.hidden) {
			t.Errorf("%s: hidden %q, want %q", test.pattern, found.Hidden, test.hidden)
		}
		for _, folder := range test.mayNotRead {
			if slices.Contains(found.Folders, filepath.Join(dir, folder)) {
				t.Errorf("%s: %s was read", test.pattern, folder)
			}
		}
	}
	for pattern, want := range map[string]error{"none/**": fs.ErrNotExist, "z.py/*": nil} {
		if found, err := projectfiles.Match(dir, pattern, nothing); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %q, %v; want an error", pattern, paths(found), err)
		}
	}
}

// Links count as what they point to, within the project and out of it, unless ** alone stands before them. None is left
// out in silence.
func TestLinks(t *testing.T) {
	dir := project(t, "raw/a.fq", "raw/b.fq -> a.fq", "raw/c.fq -> ../../storage/c.fq", "raw/notes -> gone", "raw/up.txt -> ..",
		"lab/s1/r.fq", "lab/s2 -> ../../storage", "lab/s3 -> s1", "../storage/c.fq", "../storage/r.fq", "../storage/deep/r.fq", "all -> raw",
		"src/x.py", "src/vendor -> ../../storage", "src/.hidden -> ../../storage")
	for _, test := range []struct {
		pattern      string
		want, passed []string
	}{
		{"raw/*.fq", []string{"raw/a.fq", "raw/b.fq", "raw/c.fq"}, nil},
		{"all/*.fq", []string{"all/a.fq", "all/b.fq", "all/c.fq"}, nil},
		{"lab/*/r.fq", []string{"lab/s1/r.fq", "lab/s2/r.fq", "lab/s3/r.fq"}, nil},
		{"lab/*/**/r.fq", []string{"lab/s1/r.fq", "lab/s2/deep/r.fq", "lab/s2/r.fq", "lab/s3/r.fq"}, nil},
		{"lab/**/r.fq", []string{"lab/s1/r.fq"}, []string{"lab/s2", "lab/s3"}},
		{"lab/**/s2/r.fq", []string{"lab/s2/r.fq"}, []string{"lab/s3"}},
		{"src/**", []string{"src/x.py"}, []string{"src/vendor"}},
	} {
		found, err := projectfiles.Match(dir, test.pattern, nothing)
		if got := paths(found); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, %v; want %q", test.pattern, got, err, test.want)
		}
		if !slices.Equal(found.Passed, test.passed) {
			t.Errorf("%s: passed over %q, want %q", test.pattern, found.Passed, test.passed)
		}
		for _, f := range found.Files {
			if _, err := os.ReadFile(f.At); err != nil {
				t.Errorf("%s: %v", test.pattern, err)
			}
		}
	}
}

// A link that leads nowhere or in circles is an error with its name where it matters, and none elsewhere.
func TestBadLinks(t *testing.T) {
	for _, test := range []struct{ link, pattern, want string }{
		{"raw/b.fq -> ../lost/b.fq", "raw/*.fq", "raw/b.fq is a link to ../lost/b.fq, which is not there"},
		{"raw/b -> /not/mounted", "raw/*/x.fq", "raw/b is a link to /not/mounted, which is not there"},
		{"raw/b.fq -> b.fq", "raw/*", "raw/b.fq is a link to b.fq, which cannot be followed"},
		{"raw/b -> .", "raw/*/*", "raw/b is a link to ., a folder around it"},
		{"raw/b -> ..", "raw/*/raw/*", "raw/b is a link to .., a folder around it"},
		{"raw/b -> /", "raw/*/*", "raw/b is a link to /, a folder around it"},
		{"raw/b -> ../.e3/objects", "raw/*/*", "raw/b is a link to ../.e3/objects, in a repository"},
		{"raw/b -> ../.e3/objects", "raw/**/*", ""},
		{"raw/b -> gone", "raw/**/*.fq", ""},
		{"raw/b -> .", "raw/**/*.fq", ""},
		{"raw/b -> gone", "raw/*.fq", ""},
	} {
		dir := project(t, "raw/a.fq", "raw/sub/x.fq", ".e3/objects/x.fq", test.link)
		found, err := projectfiles.Match(dir, test.pattern, nothing)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s with %s: %v, want no error", test.pattern, test.link, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s with %s: %q, %v; want an error: %s", test.pattern, test.link, paths(found), err, test.want)
		}
	}
	dir := project(t, "a/x/1", "b/y/1", "a/to -> ../b", "b/to -> ../a") // in circles by two links
	if found, err := projectfiles.Match(dir, "*/*/*/1", nothing); err == nil || !strings.Contains(err.Error(), "a folder around it") {
		t.Errorf("%q, %v; want an error", paths(found), err)
	}
}

// A path of except is neither a file nor a hidden one, and a folder of except is not read.
func TestExcept(t *testing.T) {
	dir := project(t, "src/a.py", "src/a.py~", "src/.#a.py -> nowhere", "src/__pycache__/b.py", "src/old/c.py", "src/old/keep.py", "src/link -> old", "src/x/d.tmp.py")
	for _, test := range []struct {
		patterns     string
		files, usual string
		folders      int
	}{
		{"", "src/a.py src/old/c.py src/old/keep.py src/x/d.tmp.py", "src/__pycache__", 3},
		{"old/ *.tmp.*", "src/a.py", "src/__pycache__", 2},
		{"src/old/c.py !__pycache__", "src/__pycache__/b.py src/a.py src/old/keep.py src/x/d.tmp.py", "", 4},
	} {
		found, err := projectfiles.Match(dir, "src/**/*.py", manifest.NewExcept(strings.Fields(test.patterns), ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(paths(found), " "); got != test.files {
			t.Errorf("%q: files %s, want %s", test.patterns, got, test.files)
		}
		if got := strings.Join(found.Usual, " "); got != test.usual {
			t.Errorf("%q: left out as usual %s, want %s", test.patterns, got, test.usual)
		}
		if len(found.Hidden) > 0 || len(found.Folders) != test.folders {
			t.Errorf("%q: hidden %q, want none; folders %q, want %d", test.patterns, found.Hidden, found.Folders, test.folders)
		}
	}
}

// A folder has its hidden files too, and what links to files point to.
func TestBelow(t *testing.T) {
	dir := project(t, "far/a", "far/.hidden", "far/sub/b", "far/sub/b~", "far/.e3/x", "far/link -> ../other", "other")
	found, err := projectfiles.Below(dir, "far", nothing)
	if got := strings.Join(paths(&projectfiles.Find{Files: found}), " "); err != nil || got != "far/.hidden far/a far/link far/sub/b" {
		t.Errorf("got %s, %v", got, err)
	}
	for _, link := range []string{"far/gone -> nowhere", "far/round -> ."} {
		dir := project(t, "far/a", link)
		if found, err := projectfiles.Below(dir, "far", nothing); !errors.As(err, new(*projectfiles.LinkError)) {
			t.Errorf("%s: got %v, %v, want a *LinkError", link, found, err)
		}
	}
}
