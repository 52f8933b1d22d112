package resultdir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/resultdir"
)

// Lines for what was left are added to .gitignore and go with it. A line of the user's stays as it is, even if it says
// the same.
func TestIgnore(t *testing.T) {
	on := resultdir.Options{Ignore: true, Plain: true}
	for _, test := range []struct{ name, before, after, less string }{
		{"no file", "", "+", ""},
		{"lines", "*.log\n", "*.log\n+", "*.log\n"},
		{"no last newline", "*.log", "*.log\n+", "*.log\n"},
		{"the same line", "/b.txt\n#x\n", "/b.txt\n#x\n/d/\n", "/b.txt\n#x\n"},
		{"of Windows", "*.log\r\n", "*.log\r\n/b.txt\r\n/d/\r\n", "*.log\r\n"},
	} {
		b := newBench(t)
		at := filepath.Join(b.dir, "m", ".gitignore")
		if test.before != "" {
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at, []byte(test.before), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		b.leave(on, b.file("m/b.txt", "b"), b.folder("m/d", map[string]string{"x": "x"}))
		want := strings.ReplaceAll(test.after, "+", "/b.txt\n/d/\n")
		same(t, test.name, at, want)
		first, err := os.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		if test.before != "" && first.Mode().Perm() != 0o640 {
			t.Errorf("%s: mode %v, want 0640", test.name, first.Mode())
		}
		b.leave(on, b.file("m/b.txt", "b2"), b.folder("m/d", map[string]string{"x": "x"}))
		same(t, test.name+", again", at, want)
		if again, err := os.Stat(at); err != nil || !os.SameFile(first, again) {
			t.Errorf("%s: the file was written again without a change: %v", test.name, err)
		}
		b.leave(on)
		same(t, test.name+", without outputs", at, test.less)
	}
}

// same fails unless a file has this content; none may be there if that is empty.
func same(t *testing.T, what, file, want string) {
	t.Helper()
	got, err := os.ReadFile(file)
	if string(got) != want || want == "" && err == nil {
		t.Errorf("%s: %s holds %q (%v), want %q", what, filepath.Base(file), got, err, want)
	}
}

// A name is a name, whatever git reads into its characters.
func TestIgnoreLine(t *testing.T) {
	b := newBench(t)
	b.leave(resultdir.Options{Ignore: true}, b.file("a*b?", "1"), b.file("[x] ", "2"), b.file(`back\slash`, "3"), b.file("#!", "4"))
	same(t, "names", filepath.Join(b.dir, ".gitignore"), "/a\\*b\\?\n/\\[x]\\ \n/back\\\\slash\n/#!\n")
}

// A file that cannot be a list of names is left as it is, and so is what was there before in an output's place.
func TestIgnoreKept(t *testing.T) {
	b := newBench(t)
	at := filepath.Join(b.dir, ".gitignore")
	if err := os.Symlink("far", at); err != nil {
		t.Fatal(err)
	}
	r := b.leave(resultdir.Options{Ignore: true}, b.file("a", "1"))
	if len(r.Kept) != 1 || r.Kept[0].Path != ".gitignore" || !strings.Contains(r.Kept[0].Why, "no regular file") {
		t.Errorf("kept %v, want .gitignore, which is a link", r.Kept)
	}
	if _, err := os.Lstat(filepath.Join(b.dir, "far")); err == nil {
		t.Error("the link was followed")
	}
	b = newBench(t)
	if err := os.WriteFile(filepath.Join(b.dir, "mine"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.leave(resultdir.Options{Ignore: true}, b.file("a", "1"), b.file("mine", "2"))
	same(t, "beside a kept file", filepath.Join(b.dir, ".gitignore"), "/a\n")
}

// In place, a link on the way of a path is not followed, neither to write nor to remove.
func TestPlain(t *testing.T) {
	b := newBench(t)
	plain := resultdir.Options{Plain: true}
	b.leave(plain, b.file("m/a", "1"))
	for _, do := range []func() error{
		func() error { return os.Rename(filepath.Join(b.dir, "m"), filepath.Join(b.dir, "far")) },
		func() error { return os.Symlink("far", filepath.Join(b.dir, "m")) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	r := b.leave(plain, b.file("m/a", "2"), b.file("m/x/y", "2"))
	if len(r.Kept) != 2 || !strings.Contains(r.Kept[0].Why, "a symbolic link on its way") {
		t.Errorf("kept %v, want m/a and m/x/y behind a link", r.Kept)
	}
	b.leave(plain)
	b.holds("far/a=1", "m->far")
}
