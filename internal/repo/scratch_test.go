package repo_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/internal/repo"
	"e3/internal/testing/suite"
)

// scratchOf opens a new repository in root, with these variables, and returns it with the folder of this process.
func scratchOf(t *testing.T, root string, env map[string]string, warn func(error)) (*repo.Repo, string) {
	t.Helper()
	if _, err := os.Lstat(root); err != nil {
		if _, err := repo.Create(root); err != nil {
			t.Fatal(err)
		}
	}
	r, err := repo.Open(t.Context(), root, repo.Options{Getenv: func(name string) string { return env[name] }, Warn: warn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	dir, err := r.Scratch()
	if err != nil {
		t.Fatal(err)
	}
	return r, dir
}

// Commands run outside of the repository and of the project, in folders that only their user can enter, and the sweep
// of another process finds what a dead one has left there.
func TestScratch(t *testing.T) {
	work := t.TempDir()
	cache := filepath.Join(work, "cache")
	root := filepath.Join(work, "project", ".e3")
	quiet := func(err error) { t.Errorf("warning: %v", err) }
	r, dir := scratchOf(t, root, map[string]string{repo.CacheDirVariable: cache}, quiet)
	if !strings.HasPrefix(dir, cache+"/") {
		t.Errorf("commands run in %s, want a folder in %s", dir, cache)
	}
	for at := dir; at != cache; at = filepath.Dir(at) {
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v; want mode 0700", at, info.Mode(), err)
		}
	}
	if found, _ := filepath.Glob(filepath.Join(root, "tmp", "*", "w*")); len(found) > 0 {
		t.Errorf("sandboxes in the repository: %v", found)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is there after its process has closed the repository: %v", dir, err)
	}
	if err := os.MkdirAll(filepath.Join(filepath.Dir(dir), "session-1-dead", "w1", "room"), 0o700); err != nil {
		t.Fatal(err)
	}
	again, _ := scratchOf(t, root, map[string]string{repo.CacheDirVariable: cache}, quiet)
	if n, err := again.Records.Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("a sweep removes %d dead sessions, %v; want 1", n, err)
	}
}

// A sweep removes nothing that the repository leads to: a member could put a link there.
func TestSweepFollowsNothing(t *testing.T) {
	work := t.TempDir()
	root := filepath.Join(work, ".e3")
	r, _ := scratchOf(t, root, map[string]string{repo.CacheDirVariable: filepath.Join(work, "cache")}, nil)
	private := filepath.Join(work, "private", "w1", "room")
	if err := os.MkdirAll(private, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(work, "private"), filepath.Join(root, "tmp", "session-1-dead")); err != nil {
		t.Fatal(err)
	}
	_, _ = r.Records.Sweep(t.Context())
	if _, err := os.Lstat(private); err != nil {
		t.Errorf("a sweep went through a link: %v", err)
	}
}

// A cache that others may write in is not used.
func TestScratchIsAlone(t *testing.T) {
	work := suite.OpenFolder(t)
	shared := filepath.Join(work, "shared")
	if err := os.Mkdir(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", filepath.Join(shared, "tmp"))
	env := map[string]string{repo.CacheDirVariable: filepath.Join(shared, "cache")}
	var warnings []string
	root := filepath.Join(work, ".e3")
	_, dir := scratchOf(t, root, env, func(err error) { warnings = append(warnings, err.Error()) })
	if !strings.HasPrefix(dir, root+"/") {
		t.Errorf("commands run in %s, want a folder in %s: all others can be renamed by others", dir, root)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "below the project") {
		t.Errorf("warnings %q; want one that says that the project is above", warnings)
	}
	if scratchOf(t, root, env, func(err error) { warnings = append(warnings, err.Error()) }); len(warnings) != 1 {
		t.Errorf("warnings %q; want no second one: each start would have it", warnings)
	}

	r, err := repo.Open(t.Context(), func() string {
		at, err := repo.Create(filepath.Join(shared, "project", ".e3"))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}(), repo.Options{Getenv: func(name string) string { return env[name] }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if dir, err := r.Scratch(); err == nil || !strings.Contains(err.Error(), "set "+repo.CacheDirVariable) {
		t.Errorf("got %s, %v; want an error that names %s: others can rename every folder", dir, err, repo.CacheDirVariable)
	}
}

// The scratch of a repository that is gone is removed and counted; that of a disk which may not be mounted goes only later.
func TestSweepGone(t *testing.T) {
	work := t.TempDir()
	env := map[string]string{repo.CacheDirVariable: filepath.Join(work, "cache")}
	t.Setenv("TMPDIR", filepath.Join(work, "tmp"))
	here, _ := scratchOf(t, filepath.Join(work, "here", ".e3"), env, nil)
	leave := func(name string) (root, scratch string) {
		root = filepath.Join(work, name, ".e3")
		r, dir := scratchOf(t, root, env, nil)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		scratch = filepath.Dir(filepath.Dir(dir))
		if err := os.WriteFile(filepath.Join(scratch, "tmp", "left"), make([]byte, 1000), 0o600); err != nil {
			t.Fatal(err)
		}
		return root, scratch
	}
	there, kept := leave("there")
	gone, left := leave("gone")
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	unmounted, waits := leave("unmounted")
	if err := os.RemoveAll(filepath.Dir(unmounted)); err != nil {
		t.Fatal(err)
	}
	_ = there
	sweep := func(dry bool, want int, size int64) {
		t.Helper()
		n, bytes, err := here.SweepGone(context.Background(), dry)
		if n != want || bytes < size || bytes > size+1000 || err != nil {
			t.Errorf("dry %v: %d repositories, %d bytes, %v; want %d, and some %d bytes", dry, n, bytes, err, want, size)
		}
	}
	sweep(true, 1, 1000)
	sweep(false, 1, 1000)
	sweep(false, 0, 0)
	for path, want := range map[string]bool{kept: true, left: false, waits: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v; want it there: %v", path, err, want)
		}
	}
	old := time.Now().Add(-8 * 24 * time.Hour)
	if err := os.Chtimes(filepath.Join(waits, "tmp"), old, old); err != nil {
		t.Fatal(err)
	}
	sweep(false, 1, 1000)
}
