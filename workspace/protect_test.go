package workspace_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// protected returns the names that all live sessions protect, in order.
func (p *place) protected() []string {
	p.t.Helper()
	live, err := p.repo.Records.LiveSessions(p.ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	var names []string
	for _, s := range live {
		names = append(names, s.Protected...)
	}
	slices.Sort(names)
	return names
}

// state reads the workspace w.
func (p *place) state() *workspace.State {
	p.t.Helper()
	s, err := p.ws.State(p.ctx, "w")
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// collected removes an object, as a collector removes an unnamed one.
func (p *place) collected(h objectstore.Hash) {
	p.t.Helper()
	if err := p.repo.Objects.Delete(p.ctx, h); err != nil {
		p.t.Fatal(err)
	}
}

// aged makes all objects older than any session.
func (p *place) aged() {
	p.t.Helper()
	for e, err := range p.repo.Objects.Walk(p.ctx) {
		if err != nil {
			p.t.Fatal(err)
		}
		p.makeOld(e.Hash)
	}
}

func (p *place) makeOld(h objectstore.Hash) {
	p.t.Helper()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(filepath.Join(p.repo.Root, "objects"), h.String()[:2], h.String()[2:]), old, old); err != nil {
		p.t.Fatal(err)
	}
}

// wantFresh checks that no collection removes the contents that a state is about to name.
func (p *place) wantFresh(contents ...string) {
	p.t.Helper()
	began, err := p.repo.Records.SessionBegan(p.ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range contents {
		h := objectstore.Sum([]byte(c))
		info, err := os.Lstat(filepath.Join(filepath.Join(p.repo.Root, "objects"), h.String()[:2], h.String()[2:]))
		if err != nil || info.ModTime().Before(began) {
			p.t.Errorf("content %q: got %v, %v, want an object that is not older than the session", c, info, err)
		}
	}
}

func TestStartProtects(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	before := p.state()
	var during []string
	p.run = func(ctx context.Context, script, dir string) int {
		during = p.protected()
		return shell(ctx, script, dir)
	}
	p.start()
	want := []string{"node " + before.RootHash, "package " + before.PackageHash}
	if !slices.Equal(during, want) {
		t.Errorf("during the run %q were protected, want %q", during, want)
	}
	if names := p.protected(); len(names) > 0 {
		t.Errorf("after the run %q are protected, want nothing", names)
	}

	// A changed input is protected before the run works from it.
	p.write("a.txt", "edited")
	p.start()
	after := p.state()
	if slices.Contains(during, "node "+after.RootHash) || len(during) != 4 {
		t.Errorf("during the run %q were protected, want the trees of before and after the edit", during)
	}
}

// stale is a store that has the workspace changed after the first answer about it.
type stale struct {
	workspace.Records
	change func()
	asked  atomic.Int32
}

func (s *stale) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	rec, err := s.Records.Get(ctx, key, fields...)
	if key.Partition == "WORKSPACE" && s.asked.Add(1) == 1 {
		s.change()
	}
	return rec, err
}

// TestStateReplacedAndCollected has the tree replaced, and the old one collected, right after the state was read.
func TestStateReplacedAndCollected(t *testing.T) {
	for name, do := range map[string]func(p *place, ws *workspace.Workspaces) error{
		"start": func(p *place, ws *workspace.Workspaces) error {
			_, err := ws.Runner.Start(p.ctx, "w", workspace.StartOptions{Concurrency: 1, Durability: workspace.None, Executor: p.executor})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.write("a.txt", "a")
			p.write("b.txt", "b")
			p.deploy(twoInputs)
			old := p.state().RootHash
			r := &stale{Records: p.repo.Records}
			ws := workspace.New(workspace.Stores{
				Records: r, Locks: p.repo.Records, Objects: p.repo.Objects, Local: p.repo.Records, Sessions: p.repo.Records,
				Now: p.ws.Now, Holder: p.ws.Holder, Sweep: p.ws.Sweep,
			})
			leaf := p.file("set")
			r.asked.Store(-1) // skip the check that the workspace exists
			r.change = func() {
				if err := p.ws.Datasets.Set(p.ctx, "w", "a", leaf); err != nil {
					t.Fatal(err)
				}
				h, err := objectstore.ParseHash(old)
				if err != nil {
					t.Fatal(err)
				}
				p.collected(h)
			}
			if err := do(p, ws); err != nil {
				t.Fatal(err)
			}
			if got := p.read("a"); got != "set" {
				t.Errorf("input a holds %q, want what was set", got)
			}
		})
	}
	t.Run("set", func(t *testing.T) {
		p := newPlace(t)
		p.write("a.txt", "a")
		p.write("b.txt", "b")
		p.deploy(twoInputs)
		old := p.state().RootHash
		one, two := p.file("one"), p.file("two")
		r := &stale{Records: p.repo.Records}
		r.change = func() {
			if err := p.ws.Datasets.Set(p.ctx, "w", "a", one); err != nil {
				t.Fatal(err)
			}
			h, err := objectstore.ParseHash(old)
			if err != nil {
				t.Fatal(err)
			}
			p.collected(h)
		}
		ws := workspace.New(workspace.Stores{Records: r, Locks: p.repo.Records, Objects: p.repo.Objects, Local: p.repo.Records, Now: p.ws.Now, Holder: p.ws.Holder})
		if err := ws.Datasets.Set(p.ctx, "w", "b", two); err != nil {
			t.Fatal(err)
		}
		if a, b := p.read("a"), p.read("b"); a != "one" || b != "two" {
			t.Errorf("the inputs hold %q and %q, want what both have set", a, b)
		}
	})
}

// sources makes inputs of all sources, with a nested directory.
func (p *place) sources() {
	p.t.Helper()
	for _, dir := range []string{"d/sub", "g"} {
		if err := os.MkdirAll(filepath.Join(p.dir, dir), 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
	p.write("a.txt", "a")
	p.write("d/1", "d1")
	p.write("d/sub/2", "d2")
	p.write("g/3.csv", "g3")
	p.age("a.txt", "d/1", "d/sub/2", "g/3.csv") // so that they are known not to have changed
	p.deploy("inputs: {a: {file: a.txt}, d: {dir: d}, g: {glob: g/*.csv}}",
		"tasks: {t: {in: [a, d, g], out: o, run: cat $a}}")
}

// put stores a directory of one file as a dataset.
func (p *place) put(text string) record.Leaf {
	p.t.Helper()
	dir := p.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x"), []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
	leaf, err := p.ws.Datasets.PutPath(p.ctx, record.FromDir, dir)
	if err != nil {
		p.t.Fatal(err)
	}
	return leaf
}

// TestUnsetNamesWhatIsThere unsets inputs after the stored content of their files has become old or was lost.
func TestUnsetNamesWhatIsThere(t *testing.T) {
	all := []string{"a", "d1", "d2", "g3"}
	for name, gone := range map[string][]string{"old": nil, "all gone": all, "a part gone": {"d2"}} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.sources()
			set := map[string]record.Leaf{"a": p.file("set"), "d": p.put("set d"), "g": p.put("set g")}
			for name, leaf := range set {
				if err := p.ws.Datasets.Set(p.ctx, "w", name, leaf); err != nil {
					t.Fatal(err)
				}
			}
			p.aged()
			for _, c := range gone {
				p.collected(objectstore.Sum([]byte(c)))
			}
			for name := range set {
				if changed, err := p.ws.Datasets.Unset(p.ctx, "w", name); err != nil || !changed {
					t.Fatalf("unset %s: %v, %v", name, changed, err)
				}
			}
			p.wantFresh(all...)
			if res := p.start(); res.Run.State != record.RunCompleted {
				t.Errorf("the run has %v", res.Run.State)
			}
		})
	}
	t.Run("the file is gone too", func(t *testing.T) {
		p := newPlace(t)
		p.sources()
		p.set("a", "set")
		p.collected(objectstore.Sum([]byte("a")))
		if err := os.Remove(filepath.Join(p.dir, "a.txt")); err != nil {
			t.Fatal(err)
		}
		var bad *workspace.InputError
		if _, err := p.ws.Datasets.Unset(p.ctx, "w", "a"); !errors.As(err, &bad) || bad.Input != "a" {
			t.Errorf("unset: got %v, want an *InputError for a", err)
		}
		if got := p.read("a"); got != "set" {
			t.Errorf("input a holds %q, want what was set", got)
		}
	})
}

// TestBuildNamesWhatIsThere deploys the file again when its inputs look unchanged but are old in the store, or lost.
func TestBuildNamesWhatIsThere(t *testing.T) {
	all := []string{"a", "d1", "d2", "g3"}
	for name, gone := range map[string][]string{"old": nil, "all gone": all, "a part gone": {"d2"}} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.sources()
			p.aged()
			for _, c := range gone {
				p.collected(objectstore.Sum([]byte(c)))
			}
			p.deploy("inputs: {a: {file: a.txt}, d: {dir: d}, g: {glob: g/*.csv}}",
				"tasks: {t: {in: [a, d, g], out: o, run: cat $a $a}}")
			p.wantFresh(all...)
		})
	}
}

// TestStartMakesUnsetGood: the tree is behind the link, because an unset was interrupted after its mark.
func TestStartMakesUnsetGood(t *testing.T) {
	for name, gone := range map[string][]string{"old": nil, "gone": {"d2"}} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.sources()
			p.start()
			if err := p.ws.Datasets.Set(p.ctx, "w", "d", p.put("set")); err != nil {
				t.Fatal(err)
			}
			p.unmark()
			p.aged()
			for _, c := range gone {
				p.collected(objectstore.Sum([]byte(c)))
			}
			p.start()
			p.wantFresh("d1", "d2")
			d, err := p.ws.Datasets.Dataset(p.ctx, "w", workspace.DatasetPath{Name: "d", Entry: "sub/2"})
			if err != nil || d.Hash != objectstore.Sum([]byte("d2")).String() {
				t.Errorf("d/sub/2 is %+v, %v, want the file's content", d, err)
			}
		})
	}
}

// unmark removes the marks of set inputs from the link.
func (p *place) unmark() {
	p.t.Helper()
	key := refstore.Key{Partition: "INDEX/links", Sort: "w"}
	rec, err := p.repo.Records.Get(p.ctx, key)
	if err != nil {
		p.t.Fatal(err)
	}
	link, err := record.DecodeLink(rec.Value)
	if err != nil {
		p.t.Fatal(err)
	}
	link.Set = nil
	rec.Value = link.Encode()
	if _, err := p.repo.Records.Put(p.ctx, rec); err != nil {
		p.t.Fatal(err)
	}
}

// TestEditOfOldDirectory reads a directory of which one file has changed. The new directory names old files, which the state
// holds until the new one is written, so they are left alone. One that is lost is read again.
func TestEditOfOldDirectory(t *testing.T) {
	for name, gone := range map[string]bool{"old": false, "gone": true} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.sources()
			d2 := objectstore.Sum([]byte("d2"))
			began, err := p.repo.Records.SessionBegan(p.ctx)
			if err != nil {
				t.Fatal(err)
			}
			untouched := func() bool {
				info, err := os.Lstat(filepath.Join(p.repo.Root, "objects", d2.String()[:2], d2.String()[2:]))
				return err == nil && info.ModTime().Before(began)
			}
			for p.start(); !untouched(); p.start() { // until the files are so old that their times prove them unchanged
				p.aged()
			}
			if gone {
				p.collected(d2)
			}
			p.write("d/1", "edited")
			p.start()
			p.wantFresh("edited")
			if gone {
				p.wantFresh("d2")
				return
			}
			if !untouched() {
				t.Error("the unchanged file was touched")
			}
		})
	}
}

// TestDeployOfPackageThatGoes removes a package from the register before it is deployed.
func TestDeployOfPackageThatGoes(t *testing.T) {
	p := newPlace(t)
	p.sources()
	r := workspace.PackageRef{Name: "p", Version: "1", Hash: p.state().PackageHash}
	if err := p.ws.Packages.Add(p.ctx, r); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ws.Packages.Remove(p.ctx, "p", "1"); err != nil {
		t.Fatal(err)
	}
	p.aged()
	if err := p.ws.Create(p.ctx, "other"); err != nil {
		t.Fatal(err)
	}
	if err := p.ws.Deployer.Deploy(p.ctx, "other", r); err != nil {
		t.Fatal(err)
	}
	p.wantFresh("a", "d1", "d2", "g3")
	p.collected(objectstore.Sum([]byte("d2")))
	var bad *workspace.InputError
	if err := p.ws.Deployer.Deploy(p.ctx, "other", r); !errors.Is(err, objectstore.ErrNotFound) || !errors.As(err, &bad) || bad.Input != "d" {
		t.Errorf("a part is gone: got %v, want ErrNotFound for input d", err)
	}
	if names := p.protected(); len(names) > 0 {
		t.Errorf("%q are protected after the deploys, want nothing", names)
	}
}
