package remains_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"e3/internal/host/beneath"
	"e3/internal/host/remains"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// sandbox makes the folder of a command, with one file.
func sandbox(t *testing.T, text string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "room", "work"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "room", "work", "file"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func keep(t *testing.T, k *remains.Folders, f remains.Folder) *remains.Folder {
	t.Helper()
	if f.At.IsZero() {
		f.At = noon
	}
	in, name := opened(t, sandbox(t, f.Task))
	kept, err := k.Keep(in, name, f)
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

// opened opens the folder around a sandbox.
func opened(t *testing.T, root string) (in *beneath.Dir, name string) {
	t.Helper()
	in, err := beneath.Open(filepath.Dir(root))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in, filepath.Base(root)
}

func names(k *remains.Folders, ws string) []string {
	var list []string
	for _, f := range k.List(ws) {
		list = append(list, f.Workspace+"."+f.Task+" "+f.Execution)
	}
	slices.Sort(list)
	return list
}

func wants(t *testing.T, k *remains.Folders, want ...string) {
	t.Helper()
	if got := names(k, ""); !slices.Equal(got, want) {
		t.Errorf("kept are %q, want %q", got, want)
	}
}

// The latest attempt of each task of the latest run of each workspace is kept.
func TestKeep(t *testing.T) {
	k := remains.In(t.TempDir())
	wants(t, k)
	keep(t, k, remains.Folder{Workspace: "a", Task: "x", Run: "1", Execution: "e1"})
	keep(t, k, remains.Folder{Workspace: "a", Task: "y", Run: "1", Execution: "e2"})
	keep(t, k, remains.Folder{Workspace: "a", Task: "x", Run: "1", Execution: "e3"})
	keep(t, k, remains.Folder{Workspace: "b", Task: "x", Run: "1", Execution: "e4"})
	wants(t, k, "a.x e3", "a.y e2", "b.x e4")
	f := k.Find("e3")
	if f == nil {
		t.Fatal("the folder of e3 is not found")
	}
	if text, err := os.ReadFile(filepath.Join(f.Work(), "file")); err != nil || string(text) != "x" {
		t.Errorf("it holds %q, %v", text, err)
	}
	info, err := os.Stat(filepath.Dir(f.Root))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("other users can enter: %v, %v", info.Mode(), err)
	}
	keep(t, k, remains.Folder{Workspace: "a", Task: "z", Run: "2", Execution: "e5"})
	wants(t, k, "a.z e5", "b.x e4")
	k.Drop("a", "z")
	k.Clear("b")
	wants(t, k)
	if k.Find("e5") != nil || k.Find("../x") != nil || k.Find("") != nil {
		t.Error("something is found that is not there")
	}
}

// A folder that a person keeps replaces nothing, and goes with the next start.
func TestKeepVisit(t *testing.T) {
	k := remains.In(t.TempDir())
	keep(t, k, remains.Folder{Workspace: "a", Task: "x", Run: "2", Execution: "e1"})
	keep(t, k, remains.Folder{Workspace: "a", Task: "x", Run: "1", Execution: "e2", Visit: true})
	wants(t, k, "a.x e1", "a.x e2")
	k.Clear("a")
	wants(t, k)
}

// Number, size and age are bounded. A folder that is not kept stays where it is.
func TestKeepBounds(t *testing.T) {
	k := remains.In(t.TempDir())
	keep(t, k, remains.Folder{Workspace: "old", Task: "x", Run: "1", Execution: "old", At: noon.Add(-remains.MaxAge - time.Second)})
	for i := range remains.MaxFolders {
		keep(t, k, remains.Folder{Workspace: "a", Task: fmt.Sprint("t", i), Run: "1", Execution: fmt.Sprint("e", i)})
	}
	if k.Find("old") != nil {
		t.Error("an old folder is kept for ever")
	}
	for range 2 {
		root := sandbox(t, "more")
		in, name := opened(t, root)
		if _, err := k.Keep(in, name, remains.Folder{Workspace: "a", Task: "more", Run: "1", Execution: "more", At: noon}); !errors.Is(err, remains.ErrFull) {
			t.Errorf("one more: got %v, want ErrFull", err)
		}
		if _, err := os.Stat(filepath.Join(root, "room", "work", "file")); err != nil {
			t.Error(err)
		}
	}
	k.Clear("a")
	keep(t, k, remains.Folder{Workspace: "a", Task: "more", Run: "1", Execution: "more"})

	root := sandbox(t, "")
	if err := os.Truncate(filepath.Join(root, "room", "work", "file"), remains.MaxBytes+1); err != nil {
		t.Fatal(err)
	}
	in, name := opened(t, root)
	if _, err := k.Keep(in, name, remains.Folder{Workspace: "b", Task: "large", Run: "1", Execution: "large", At: noon}); !errors.Is(err, remains.ErrTooLarge) {
		t.Errorf("a large one: got %v, want ErrTooLarge", err)
	}
}

// The folder of a failure that fails the run finds a place, though allowed failures have taken all: the oldest of them
// gives way. It takes none from another failure, nor from a person.
func TestKeepMildGivesWay(t *testing.T) {
	k := remains.In(t.TempDir())
	for i := range remains.MaxFolders {
		keep(t, k, remains.Folder{
			Workspace: "a", Task: fmt.Sprint("t", i), Run: "1", Execution: fmt.Sprint("e", i), Mild: i != 0, At: noon.Add(-time.Duration(i) * time.Minute),
		})
	}
	full := func(f remains.Folder) {
		t.Helper()
		in, name := opened(t, sandbox(t, "more"))
		if _, err := k.Keep(in, name, f); !errors.Is(err, remains.ErrFull) {
			t.Errorf("%s: got %v, want ErrFull", f.Execution, err)
		}
	}
	full(remains.Folder{Workspace: "a", Task: "mild", Run: "1", Execution: "mild", Mild: true, At: noon})
	for i := range remains.MaxFolders - 1 {
		keep(t, k, remains.Folder{Workspace: "a", Task: fmt.Sprint("hard", i), Run: "1", Execution: fmt.Sprint("hard", i)})
		if oldest := fmt.Sprint("e", remains.MaxFolders-1-i); k.Find(oldest) != nil {
			t.Errorf("the oldest, %s, is still there after %d failures", oldest, i+1)
		}
	}
	full(remains.Folder{Workspace: "a", Task: "more", Run: "1", Execution: "more", At: noon})
	if k.Find("e0") == nil {
		t.Error("the folder of a failure that is not allowed has given way")
	}
}

// Rests of a removal that was killed are removed by the next one, and are no folders.
func TestKeepAfterCrash(t *testing.T) {
	tmp := t.TempDir()
	k := remains.In(tmp)
	f := keep(t, k, remains.Folder{Workspace: "a", Task: "x", Run: "1", Execution: "e1"})
	if err := os.Remove(filepath.Join(f.Root, "about.json")); err != nil {
		t.Fatal(err)
	}
	wants(t, k)
	if err := os.Chmod(f.Work(), 0o500); err != nil { // as commands leave folders
		t.Fatal(err)
	}
	remains.In(tmp).Clear("b")
	if _, err := os.Lstat(f.Root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the rest is still there: %v", err)
	}
}

// A folder in which a person works stays until that person has left.
func TestKeepOccupied(t *testing.T) {
	k := remains.In(t.TempDir())
	f := keep(t, k, remains.Folder{Workspace: "a", Task: "x", Run: "1", Execution: "e1"})
	shell := exec.Command("cat")
	shell.Dir = f.Work()
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	k.Clear("a")
	if _, err := os.Stat("/proc/self"); err == nil {
		wants(t, k, "a.x e1")
	}
	in.Close()
	if err := shell.Wait(); err != nil {
		t.Fatal(err)
	}
	k.Clear("a")
	wants(t, k)
}
