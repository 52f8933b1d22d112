package git_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"e3/internal/host/git"
)

// Edits are those that git itself tells, for each form of the index, in the folder that is asked for.
func TestModified(t *testing.T) {
	for _, version := range []string{"2", "3", "4"} {
		t.Run("version "+version, func(t *testing.T) {
			top := made(t)
			tell := func(args ...string) string { t.Helper(); return run(t, top, args...) }
			write := func(name, text string) { t.Helper(); write(t, filepath.Join(top, name), text) }
			for _, name := range []string{"a", "p/a.txt", "p/a.tx2", "p/long/name/of/a/file.txt", "p/long/name/of/b", "q/c"} {
				write(name, name)
			}
			if err := os.Symlink("a", filepath.Join(top, "p", "link")); err != nil {
				t.Fatal(err)
			}
			tell("add", "-A")
			tell("commit", "-q", "-m", "one")
			tell("update-index", "--index-version", version)
			project := filepath.Join(top, "p")
			wants := func(what string, want git.Edits) {
				t.Helper()
				got, err := git.Modified(project)
				if err != nil || got != want {
					t.Errorf("%s: got %+v, %v, want %+v", what, got, err, want)
				}
				told := len(strings.FieldsFunc(tell("status", "--porcelain", "-uno", "--", "p"), func(c rune) bool { return c == '\n' }))
				if !want.Staged && told != want.Modified {
					t.Errorf("%s: git tells %d, want %d", what, told, want.Modified)
				}
			}
			wants("nothing", git.Edits{})
			write("a", "edited outside")
			write("p/untracked", "")
			wants("outside of the project", git.Edits{})
			write("p/a.txt", "p/b.txt") // of the same size
			wants("one edit", git.Edits{Modified: 1})
			write("p/a.txt", "p/a.txt")
			wants("as it was", git.Edits{})
			if err := os.Remove(filepath.Join(project, "long/name/of/b")); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(project, "a.tx2"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(project, "link")); err != nil {
				t.Fatal(err)
			}
			write("p/link", "a")
			wants("gone, executable, and no link any more", git.Edits{Modified: 3})
			write("p/new", "n")
			tell("add", "p/new")
			wants("staged", git.Edits{Modified: 3, Staged: true})
			tell("commit", "-q", "-a", "-m", "two")
			wants("committed", git.Edits{})
		})
	}
}

// A damaged index is an error, and nothing worse.
func TestModifiedDamaged(t *testing.T) {
	top := made(t)
	if err := os.WriteFile(filepath.Join(top, "a"), []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, top, "add", "-A")
	index := filepath.Join(top, ".git", "index")
	whole, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) {
		if err := os.WriteFile(index, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		_, _ = git.Modified(top) // it must end
		for _, b := range []byte{0, 0x7f, 0xff} {
			bad := append([]byte(nil), whole...)
			bad[cut] = b
			if err := os.WriteFile(index, bad, 0o644); err != nil {
				t.Fatal(err)
			}
			_, _ = git.Modified(top)
		}
	}
	if err := os.WriteFile(index, whole[:20], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := git.Modified(top); err == nil {
		t.Error("half an index: got no error")
	}
}

// A project of 20,000 files, which a run that executes something looks at once, beside its commands.
func BenchmarkModified(b *testing.B) {
	top := made(b)
	run(b, top, "config", "gc.auto", "0")
	for i := range 20_000 {
		write(b, filepath.Join(top, "p", strconv.Itoa(i%100), strconv.Itoa(i)), strconv.Itoa(i))
	}
	run(b, top, "add", "-A")
	run(b, top, "commit", "-q", "-m", "many")
	for b.Loop() {
		if _, err := git.Modified(top); err != nil {
			b.Fatal(err)
		}
	}
}
