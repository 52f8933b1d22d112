package workspace_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/workspace"
)

// flip changes a byte of a file but not its size.
func flip(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := errors.Join(os.Chmod(file, 0o644), os.WriteFile(file, data, 0)); err != nil {
		t.Fatal(err)
	}
}

// Set and unset name nodes that may have been stored long ago and not been read since. Whichever object is damaged:
// everything that was readable before is readable afterwards.
func TestSetOverDamage(t *testing.T) {
	setUp := func() (p *place, unused []string) {
		p = newPlace(t)
		p.write("a.txt", "text")
		p.deploy("inputs: {a: {file: a.txt}, n: {value: 4}}", "tasks:", "  b: {in: {x: a}, out: o, run: 'cat $x'}")
		p.start()
		before := p.objects()
		p.set("a", "other")
		p.start()
		return p, before
	}
	_, files := setUp()
	healed := 0
	for _, name := range files {
		p, _ := setUp()
		file := filepath.Join(p.repo.Root, "objects", name)
		if fi, err := os.Stat(file); err != nil || fi.Size() == 0 {
			continue // contains a time or an id of the first repository
		}
		flip(t, file)
		if err := p.ws.Datasets.Set(p.ctx, "w", "a", p.file("other")); err != nil {
			continue // the damage is reported
		}
		if _, err := p.ws.Datasets.Unset(p.ctx, "w", "a"); err != nil {
			continue // the damage is reported
		}
		for _, input := range []string{"a", "n"} {
			if _, err := p.ws.Datasets.Dataset(p.ctx, "w", workspace.DatasetPath{Name: input}); err != nil {
				t.Errorf("after unset over a damaged %s: %v", name, err)
			}
		}
		if res := p.start(); res.Run.State != record.RunCompleted {
			t.Errorf("after unset over a damaged %s, the run is %v: %s", name, res.Run.State, res.Run.Error)
		}
		if err := objectstore.Check(p.ctx, p.repo.Objects, mustHash(t, name)); err == nil {
			healed++
		}
	}
	if healed < 2 {
		t.Errorf("%d of %d damaged objects are whole again, want the inputs' nodes at least", healed, len(files))
	}
}

// objects are the files of all objects.
func (p *place) objects() []string {
	p.t.Helper()
	root := filepath.Join(p.repo.Root, "objects")
	var names []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			rel, _ := filepath.Rel(root, path)
			names = append(names, rel)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return names
}

func mustHash(t *testing.T, name string) objectstore.Hash {
	t.Helper()
	h, err := objectstore.ParseHash(name[:2] + name[3:])
	if err != nil {
		t.Fatal(err)
	}
	return h
}
