package beneath_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"e3/internal/host/beneath"
)

// secret is a folder outside, with content that nobody may read or remove through a Dir.
func secret(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "sub", "key"), []byte("secret"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "key"), []byte("secret"), 0o600))
	t.Cleanup(func() {
		for _, name := range []string{"key", "sub/key"} {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != "secret" {
				t.Errorf("%s outside has become %q, %v", name, text, err)
			}
		}
	})
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, path string) *beneath.Dir {
	t.Helper()
	d, err := beneath.Open(path)
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

// Each call through a link, or upwards, fails.
func TestNothingLeadsOut(t *testing.T) { eachWay(t, testNothingLeadsOut) }

func testNothingLeadsOut(t *testing.T) {
	outside, dir := secret(t), t.TempDir()
	must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	must(t, os.Symlink(filepath.Join(outside, "key"), filepath.Join(dir, "file")))
	must(t, os.Mkdir(filepath.Join(dir, "in"), 0o700))
	must(t, os.Symlink(outside, filepath.Join(dir, "in", "link")))
	must(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	d, other := open(t, dir), open(t, t.TempDir())
	read := func(rel string) error {
		f, err := d.OpenFile(rel, os.O_RDONLY, 0)
		if err == nil {
			f.Close()
		}
		return err
	}
	sub := func(rel string) error {
		s, err := d.Sub(rel)
		if err == nil {
			s.Close()
		}
		return err
	}
	up := "../" + filepath.Base(outside)
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"read a link":               {read("file"), beneath.ErrLink},
		"read below a link":         {read("link/key"), beneath.ErrLink},
		"read below a deep link":    {read("in/link/key"), beneath.ErrLink},
		"read upwards":              {read(up + "/key"), beneath.ErrName},
		"read upwards from below":   {read("in/../mine"), beneath.ErrName},
		"read an absolute name":     {read(outside + "/key"), beneath.ErrName},
		"read nothing":              {read(""), beneath.ErrName},
		"enter a link":              {sub("link"), beneath.ErrLink},
		"enter below a link":        {sub("link/sub"), beneath.ErrLink},
		"make a folder":             {d.Mkdir("link/new", 0o700), beneath.ErrLink},
		"change a mode":             {d.Chmod("link/key", 0o777), beneath.ErrLink},
		"rename from there":         {d.Rename("link/key", other, "key"), beneath.ErrLink},
		"rename to there":           {d.Rename("mine", d, "link/key"), beneath.ErrLink},
		"rename to elsewhere there": {other.Rename("mine", d, "link/key"), beneath.ErrLink},
		"link":                      {d.Link("link/key", d, "stolen"), beneath.ErrLink},
		"link up":                   {d.Link(up+"/key", d, "stolen"), beneath.ErrName},
		"remove":                    {d.Remove("link/key"), beneath.ErrLink},
		"unlink":                    {d.Unlink("link/key"), beneath.ErrLink},
		"remove all":                {d.RemoveAll("link/sub"), beneath.ErrLink},
		"remove all upwards":        {d.RemoveAll(up), beneath.ErrName},
		"remove the folder itself":  {d.RemoveAll("."), beneath.ErrName},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if _, err := d.Lstat("link/key"); !errors.Is(err, beneath.ErrLink) {
		t.Errorf("lstat: %v", err)
	}
	if info, err := d.Lstat("link"); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("lstat of the link: %v, %v", info, err)
	}
	must(t, d.RemoveAll("link"))
	must(t, d.RemoveAll("in"))
	must(t, d.Remove("file"))
	must(t, d.RemoveAll("missing/too"))
}

// A folder that was renamed is still the one that was opened, and another in its place is not.
func TestReplacedFolder(t *testing.T) { eachWay(t, testReplacedFolder) }

func testReplacedFolder(t *testing.T) {
	outside, dir := secret(t), t.TempDir()
	d := open(t, dir)
	must(t, d.Mkdir("work", 0o700))
	work, err := d.Sub("work")
	must(t, err)
	defer work.Close()
	must(t, os.WriteFile(filepath.Join(dir, "work", "a"), []byte("mine"), 0o600))
	if same, err := d.Sub("work"); err != nil || !work.InPlace() || same.Identity() != work.Identity() {
		t.Fatal("the folder is not itself")
	} else {
		same.Close()
	}
	must(t, d.Rename("work", d, "w2"))
	for _, replace := range []func() error{
		func() error { return d.Symlink(outside, "work") },
		func() error { return d.Mkdir("work", 0o700) },
		func() error { return nil },
	} {
		must(t, d.RemoveAll("work"))
		must(t, replace())
		if work.InPlace() {
			t.Error("another folder passes for the one that was opened")
		}
		if info, err := work.Lstat("a"); err != nil || info.Size() != 4 {
			t.Errorf("the file of the folder that was opened: %v, %v", info, err)
		}
	}
	list, err := work.ReadDir()
	if err != nil || len(list) != 1 || list[0].Name() != "a" || list[0].IsDir() || !work.HasEntries(1) || work.HasEntries(0) || work.HasEntries(2) {
		t.Errorf("entries: %v, %v", list, err)
	}
	again, err := d.Lstat("w2")
	must(t, err)
	if !work.Same(again) || !d.IsDir("w2") || d.IsDir("w2/a") {
		t.Error("it is not the same folder")
	}
}

// Removal goes on where permissions are gone, however deep, and leaves what links name.
func TestRemoveAll(t *testing.T) { eachWay(t, testRemoveAll) }

func testRemoveAll(t *testing.T) {
	outside, dir := secret(t), t.TempDir()
	d := open(t, dir)
	must(t, d.Mkdir("top", 0o700))
	at, deep := open(t, filepath.Join(dir, "top")), strings.Repeat("d", 40)
	for range 300 { // longer than a path may be
		must(t, at.Mkdir(deep, 0o700))
		must(t, at.Symlink(outside, "link"))
		sub, err := at.Sub(deep)
		must(t, err)
		t.Cleanup(func() { sub.Close() })
		at = sub
	}
	for _, name := range []string{"closed", "readonly", "blind"} {
		must(t, os.MkdirAll(filepath.Join(dir, "top", name, "x", "y"), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, "top", name, "file"), nil, 0o400))
	}
	must(t, d.Chmod("top/closed", 0))
	must(t, d.Chmod("top/readonly", 0o500))
	must(t, d.Chmod("top/blind", 0o300))
	must(t, d.RemoveAll("top"))
	if !d.HasEntries(0) {
		t.Error("something is left")
	}
	must(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "c"), nil, 0o600))
	must(t, d.Empty())
	if !d.HasEntries(0) {
		t.Error("something is left after Empty")
	}
}

// A stamp says the same as Lstat, of every kind of entry, in confined folders too.
func TestStamp(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o750))
	must(t, os.WriteFile(filepath.Join(dir, "sub", "file"), []byte("text"), 0o640))
	must(t, os.Link(filepath.Join(dir, "sub", "file"), filepath.Join(dir, "again")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "link")))
	for what, d := range map[string]*beneath.Dir{"free": open(t, dir), "confined": open(t, dir).Confine()} {
		for _, rel := range []string{"sub", "sub/file", "again", "link"} {
			info, err := d.Lstat(rel)
			must(t, err)
			got, err := d.Stamp(rel)
			if err != nil || got.Mode != info.Mode() || got.Size != info.Size() || got.Modified != info.ModTime().UnixNano() {
				t.Errorf("%s, the stamp of %s: %+v, %v, want mode %v, size %d, time %v", what, rel, got, err, info.Mode(), info.Size(), info.ModTime())
			}
		}
		for _, rel := range []string{"none", "../" + filepath.Base(dir), "link/x", ""} {
			if got, err := d.Stamp(rel); err == nil {
				t.Errorf("%s, the stamp of %q: %+v, want an error", what, rel, got)
			}
		}
	}
}

// A listing tells kinds.
func TestReadDirTellsKinds(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	must(t, d.Mkdir("folder", 0o700))
	must(t, d.Symlink("folder", "link"))
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o640))
	list, err := d.ReadDir()
	must(t, err)
	var got []string
	for _, e := range list {
		info, err := e.Info()
		must(t, err)
		if info.Mode().Type() != e.Type() {
			t.Errorf("%s: %v and %v", e.Name(), info.Mode(), e.Type())
		}
		want, err := os.Lstat(filepath.Join(dir, e.Name()))
		must(t, err)
		if info.Mode() != want.Mode() || info.Size() != want.Size() || !info.ModTime().Equal(want.ModTime()) || !beneath.SameFile(info, want) {
			t.Errorf("%s: %v, and os says %v", e.Name(), fs.FormatFileInfo(info), fs.FormatFileInfo(want))
		}
		got = append(got, e.Name()+" "+e.Type().String()[:1])
	}
	slices.Sort(got)
	if want := []string{"file -", "folder d", "link L"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	var walked []string
	must(t, d.Mkdir("folder/sub", 0o700))
	must(t, d.Mkdir("folder/sub/deep", 0o700))
	must(t, d.Walk(func(rel string, e fs.DirEntry, err error) error {
		walked = append(walked, rel)
		if rel == "folder/sub" {
			return fs.SkipDir
		}
		return err
	}))
	slices.Sort(walked)
	if want := []string{"file", "folder", "folder/sub", "link"}; !slices.Equal(walked, want) {
		t.Errorf("walked %q", walked)
	}
	target, err := d.Readlink("link")
	if err != nil || target != "folder" {
		t.Errorf("%q, %v", target, err)
	}
}

// While a folder is closed, calls are under way. They find it open or closed: never the file that got its descriptor.
func TestClose(t *testing.T) { eachWay(t, testClose) }

func testClose(t *testing.T) {
	top := t.TempDir()
	for _, name := range []string{"own", "other"} {
		must(t, os.MkdirAll(filepath.Join(top, name, "in"), 0o755))
		must(t, os.WriteFile(filepath.Join(top, name, "in", "file"), []byte(name), 0o644))
	}
	for range 300 {
		d, err := beneath.Open(filepath.Join(top, "own"))
		must(t, err)
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				for {
					f, err := d.OpenFile("in/file", os.O_RDONLY, 0)
					if errors.Is(err, fs.ErrClosed) {
						return
					}
					if err != nil {
						t.Errorf("a file of a folder that is being closed: %v, want the file or %v", err, fs.ErrClosed)
						return
					}
					text, err := io.ReadAll(f)
					f.Close()
					if string(text) != "own" || err != nil {
						t.Errorf("a file of a folder that is being closed: %q, %v; want its own", text, err)
						return
					}
					if _, err := d.Lstat("in"); err != nil && !errors.Is(err, fs.ErrClosed) {
						t.Errorf("look at an entry of a folder that is being closed: %v", err)
					}
				}
			})
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		other, err := beneath.Open(filepath.Join(top, "other")) // gets the descriptor, if it is free
		must(t, err)
		calls.Wait()
		if err := errors.Join(other.Close(), d.Close()); err != nil {
			t.Errorf("closed again: %v", err)
		}
	}
}
