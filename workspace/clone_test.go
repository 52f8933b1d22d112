package workspace_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"e3/internal/repo"
	"e3/workspace"
)

// TestClones copies, moves, edits and starts clones that share a repository, or were copied with one, in random order.
// Each start must give the result that a fresh repository would give for the clone in the working folder.
func TestClones(t *testing.T) {
	if _, err := exec.LookPath("cp"); err != nil {
		t.Skipf("cp is missing: install it (Debian: apt-get install coreutils): %v", err)
	}
	rapid.Check(t, func(t *rapid.T) {
		base := "/dev/shm" // tmpfs, since a disk would be slow
		if _, err := os.Stat(base); err != nil {
			base = ""
		}
		dir, err := os.MkdirTemp(base, "e3-clones-*")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		c := &clones{t: t, dir: dir}
		c.add("c0")
		c.make("shared")
		if rapid.Bool().Draw(t, "own repository") {
			c.make("c0")
		}
		for range rapid.IntRange(4, 12).Draw(t, "steps") {
			rapid.SampledFrom([]func(){c.edit, c.edit, c.copy, c.move, c.remove, c.startFile, c.startFile, c.startFile, c.startHere, c.startHere, c.startOutside}).Draw(t, "step")()
		}
	})
}

// clones are directories with a package file, each with a repository of its own in it or none.
type clones struct {
	t     *rapid.T
	dir   string
	names []string
	made  int
	edits int
}

func (c *clones) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

func (c *clones) check(err error) {
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *clones) add(name string) {
	c.names = append(c.names, name)
	c.check(os.MkdirAll(c.path(name, "sub"), 0o755))
	for file, text := range map[string]string{"e3.yaml": packageFile("$a"), "a.txt": "first"} {
		c.check(os.WriteFile(c.path(name, file), []byte(text), 0o644))
	}
}

func packageFile(reads string) string {
	return "e3: 1\nname: p\ninputs: {a: {file: a.txt}}\ntasks: {t: {in: [a], out: o, run: cat " + reads + "}}\n"
}

func (c *clones) make(in string) {
	_, err := repo.Create(c.path(in, repo.DirName))
	c.check(err)
}

func (c *clones) some() string { return rapid.SampledFrom(c.names).Draw(c.t, "clone") }

// fresh returns a name that no clone has now; an earlier clone may have had it.
func (c *clones) fresh() string {
	for {
		if name := fmt.Sprintf("c%d", rapid.IntRange(0, c.made+1).Draw(c.t, "name")); !slices.Contains(c.names, name) {
			c.made++
			return name
		}
	}
}

func (c *clones) edit() {
	name := c.some()
	if rapid.Bool().Draw(c.t, "the package file") {
		c.check(os.WriteFile(c.path(name, "e3.yaml"), []byte(packageFile(rapid.SampledFrom([]string{"$a", "$a $a"}).Draw(c.t, "reads"))), 0o644))
		return
	}
	c.edits++
	c.check(os.WriteFile(c.path(name, "a.txt"), fmt.Appendf(nil, "text%03d", c.edits), 0o644))
}

func (c *clones) copy() {
	from, to := c.some(), c.fresh()
	out, err := exec.Command("cp", "-a", c.path(from), c.path(to)).CombinedOutput()
	if err != nil {
		c.t.Fatalf("cp: %v: %s", err, out)
	}
	c.names = append(c.names, to)
}

func (c *clones) move() {
	from, to := c.some(), c.fresh()
	c.check(os.Rename(c.path(from), c.path(to)))
	c.names[slices.Index(c.names, from)] = to
}

func (c *clones) remove() {
	if len(c.names) > 1 {
		name := c.some()
		c.check(os.RemoveAll(c.path(name)))
		c.names = slices.DeleteFunc(c.names, func(n string) bool { return n == name })
	}
}

// open opens the clone's own repository or the shared one: the one that "." means in the clone's folder.
func (c *clones) open(name, from string) *place {
	root := c.path("shared", repo.DirName)
	if own := c.path(name, repo.DirName); name != "" && rapid.Bool().Draw(c.t, "its own") {
		if _, err := os.Stat(own); err == nil {
			root = own
		}
	}
	r, err := repo.Open(context.Background(), root, repo.Options{Version: "test", From: from})
	c.check(err)
	return placeIn(r)
}

// content is the result that a fresh repository would give for a clone.
func (c *clones) content(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "a.txt"))
	c.check(err)
	file, err := os.ReadFile(filepath.Join(dir, "e3.yaml"))
	c.check(err)
	if string(file) == packageFile("$a $a") {
		return string(text) + string(text)
	}
	return string(text)
}

func (c *clones) startFile() {
	name := c.some()
	p := c.open(name, c.path(name))
	defer p.repo.Close()
	ctx := context.Background()
	file, ws := c.path(name, "e3.yaml"), rapid.SampledFrom([]string{"", "", "prod", "p"}).Draw(c.t, "workspace")
	linked, err := "", error(nil)
	if ws == "" {
		linked, err = p.ws.Deployer.WorkspaceFor(ctx, file)
	} else if follows, e := p.ws.Deployer.Follows(ctx, ws, file); follows || e != nil {
		linked, err = ws, e
	}
	c.check(err)
	named := ws != ""
	if ws = cmp.Or(linked, ws); linked == "" {
		held := map[string]string{} // the followed clones of this machine, by workspace
		c.check(c.eachLink(p, func(ws, file string) { held[ws] = file }))
		var built *workspace.Built
		ws, built, err = p.ws.Deployer.DeployNew(ctx, ws, file, nil)
		c.check(err)
		if was := held[ws]; !named && was != "" && was != built.Link.File {
			if _, err := os.Stat(was); err == nil {
				c.t.Fatalf("workspace %s was not named, and is taken from %s", ws, was)
			}
		}
	}
	c.answers(p, ws, c.path(name), true)
}

// startHere starts any workspace in a clone.
func (c *clones) startHere() {
	name := c.some()
	from := c.path(name)
	if rapid.Bool().Draw(c.t, "below") {
		from = c.path(name, "sub")
	}
	p := c.open(name, from)
	defer p.repo.Close()
	if ws := c.workspace(p); ws != "" {
		c.answers(p, ws, c.path(name), false)
	}
}

// startOutside starts any workspace from a folder outside of all clones.
func (c *clones) startOutside() {
	p := c.open("", c.dir)
	defer p.repo.Close()
	ws := c.workspace(p)
	if ws == "" {
		return
	}
	linked, err := p.ws.Deployer.LinkedTo(context.Background(), ws)
	c.check(err)
	if _, err := os.Stat(linked); err == nil {
		c.answers(p, ws, filepath.Dir(linked), false)
	}
}

func (c *clones) workspace(p *place) string {
	names, err := p.ws.List(context.Background())
	c.check(err)
	if len(names) == 0 {
		return ""
	}
	return rapid.SampledFrom(names).Draw(c.t, "of")
}

func (c *clones) eachLink(p *place, yield func(ws, file string)) error {
	names, err := p.ws.List(context.Background())
	for _, ws := range names {
		file, e := p.ws.Deployer.LinkedTo(context.Background(), ws)
		err = errors.Join(err, e)
		yield(ws, file)
	}
	return err
}

// answers starts a workspace. The start either runs the clone's package file, or says that the workspace follows
// another; a plan must agree.
func (c *clones) answers(p *place, ws, dir string, named bool) {
	ctx := context.Background()
	plan, planErr := p.ws.Planner.Plan(ctx, ws, workspace.PlanOptions{Concurrency: 1, FileNamed: named})
	_, err := p.ws.Runner.Start(ctx, ws, workspace.StartOptions{Concurrency: 1, Durability: workspace.None, Executor: p.executor, FileNamed: named})
	var other *workspace.UnfollowedError
	if errors.As(err, &other) {
		own := p.repo.Root == filepath.Join(dir, repo.DirName) // no other clone has ever been started in it
		if linked, _ := p.ws.Deployer.LinkedTo(ctx, ws); named || own || linked == filepath.Join(dir, "e3.yaml") {
			c.t.Fatalf("in the clone that it follows: %v", err)
		}
		if !errors.As(planErr, &other) {
			c.t.Fatalf("the start fails with %v, the plan with %v", err, planErr)
		}
		return
	}
	c.check(errors.Join(err, planErr))
	d, err := p.ws.Datasets.Dataset(ctx, ws, workspace.DatasetPath{Name: "t"})
	c.check(err)
	got, err := os.ReadFile(filepath.Join(p.repo.Root, "objects", d.Hash[:2], d.Hash[2:]))
	c.check(err)
	if want := c.content(dir); string(got) != want {
		c.t.Fatalf("a start of %s in %s answers %q, and its files say %q (planned: %d hits)", ws, dir, got, want, plan.Hits)
	}
}
