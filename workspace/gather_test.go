package workspace_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/workspace"
)

// gathered is a Gathering over a store on this machine: puts are stored at once, and send receives the calls of Send.
type gathered struct {
	*farObjects
	send func(held func(objectstore.Hash) bool) error
}

func (g *gathered) Send(_ context.Context, held func(objectstore.Hash) bool) error {
	return g.send(held)
}

// gatherer begins gatherings.
type gatherer struct {
	*farObjects
	send func(held func(objectstore.Hash) bool) error
}

func (g *gatherer) Gather() workspace.Gathering { return &gathered{g.farObjects, g.send} }

// gathers returns the workspaces of an office whose deployments gather their objects.
func (o *office) gathers(send func(held func(objectstore.Hash) bool) error) *workspace.Workspaces {
	stores := o.ws.Stores
	stores.Objects = &gatherer{o.s.objects, send}
	return workspace.New(stores)
}

// protected returns the names that all live sessions protect.
func (o *office) protected() (names []string) {
	o.s.t.Helper()
	live, err := o.leases.LiveSessions(o.s.t.Context())
	if err != nil {
		o.s.t.Fatal(err)
	}
	for _, s := range live {
		names = append(names, s.Protected...)
	}
	return names
}

func (s *site) package_(name string) (state *workspace.State, pkg *record.Package) {
	s.t.Helper()
	o := s.office()
	state, err := o.ws.State(s.t.Context(), name)
	if err == nil {
		pkg, err = o.ws.Packages.Load(s.t.Context(), state.PackageHash)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return state, pkg
}

func parse(t *testing.T, hash string) objectstore.Hash {
	t.Helper()
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestDeployBeside: objects that another workspace of the package names are not put, and are protected by then. New
// objects, and those that may be absent, are put.
func TestDeployBeside(t *testing.T) {
	s := newSite(t, 10)
	o, ctx := s.office(), t.Context()
	state, pkg := s.package_("w")
	clone := t.TempDir()
	writeFile(t, filepath.Join(clone, "a.txt"), "a")
	text, err := os.ReadFile(filepath.Join(s.dir, "e3.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(clone, "e3.yaml")
	writeFile(t, file, string(text)+"  new: {in: [a], out: o, run: cat $a}\n")

	var held func(objectstore.Hash) bool
	var during []string
	ws := o.gathers(func(h func(objectstore.Hash) bool) error {
		held, during = h, o.protected()
		return nil
	})
	_, built, err := ws.Deployer.DeployNew(ctx, "v", file, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node " + state.RootHash, "package " + state.PackageHash} {
		if !slices.Contains(during, name) {
			t.Errorf("%q were protected, and not %q", during, name)
		}
	}
	if left := o.protected(); len(left) > 0 {
		t.Errorf("%q are protected afterwards", left)
	}
	was := map[string]bool{pkg.Inputs[0].Default.Hash: true}
	for i := range pkg.Tasks {
		was[pkg.Tasks[i].Task] = true
	}
	for i := range built.Package.Tasks {
		if task := &built.Package.Tasks[i]; held(parse(t, task.Task)) != was[task.Task] {
			t.Errorf("%s is held: %v", task.Name, !was[task.Task])
		}
	}
	if !held(parse(t, pkg.Inputs[0].Default.Hash)) || held(parse(t, built.Hash)) || !held(parse(t, state.PackageHash)) {
		t.Error("the input and the other package are held, and the new package is not")
	}

	// The same package is searched for first.
	writeFile(t, file, string(text))
	if _, built, err = ws.Deployer.DeployNew(ctx, "u", file, nil); err != nil {
		t.Fatal(err)
	}
	if built.Hash != state.PackageHash || !held(parse(t, built.Hash)) {
		t.Errorf("package %s is not held", built.Hash)
	}

	// An input that exports leave out may be absent.
	writeFile(t, file, "e3: 1\nname: q\ninputs: {a: {file: a.txt, export: false}}\ntasks: {t: {in: [a], out: o, run: cat $a}}\n")
	for i, ws := range []string{"q1", "q2"} {
		d := o.gathers(func(h func(objectstore.Hash) bool) error { held = h; return nil })
		if _, built, err = d.Deployer.DeployNew(ctx, ws, file, nil); err != nil {
			t.Fatal(err)
		}
		if held(parse(t, built.Package.Inputs[0].Default.Hash)) || held(parse(t, built.Package.Tasks[0].Task)) != (i > 0) {
			t.Errorf("%s: the input is held, or the task: %v", ws, i == 0)
		}
	}
}

// TestDeployUnsent puts objects again that were lost on this machine before they were sent.
func TestDeployUnsent(t *testing.T) {
	s := newSite(t, 10)
	o := s.office()
	ws := o.gathers(func(func(objectstore.Hash) bool) error {
		s.objects.take()
		return fmt.Errorf("send: %w", objectstore.ErrUnsent)
	})
	if _, _, err := ws.Deployer.DeployNew(t.Context(), "v", filepath.Join(s.dir, "e3.yaml"), nil); err != nil {
		t.Fatal(err)
	}
	if n := s.objects.take()["put object"]; n < 12 { // tasks and the package
		t.Errorf("got %d puts", n)
	}
}

// TestHeldTrees: of a changed directory, only objects that the old one names are held, including all that have not
// moved.
func TestHeldTrees(t *testing.T) {
	s := newSite(t, 1)
	o, ctx := s.office(), t.Context()
	names := []string{"a", "b", "c/a", "c/b", "c/d/a", "e/a"}
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		dir, err := os.MkdirTemp(s.dir, "tree")
		if err != nil {
			rt.Fatal(err)
		}
		file := filepath.Join(dir, "e3.yaml")
		writeFile(t, file, fmt.Sprintf("e3: 1\nname: p%d\ninputs: {d: {dir: d}}\ntasks: {t: {in: [d], out: o, run: cat $d}}\n", round))
		draw := func(label string) (leaf objectstore.Hash, has map[string]objectstore.Hash) {
			has = map[string]objectstore.Hash{}
			root := filepath.Join(dir, "d")
			if err := os.RemoveAll(root); err != nil {
				rt.Fatal(err)
			}
			if err := os.Mkdir(root, 0o755); err != nil {
				rt.Fatal(err)
			}
			for _, name := range names {
				content := rapid.IntRange(0, 3).Draw(rt, label+name)
				if content == 0 {
					continue
				}
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					rt.Fatal(err)
				}
				writeFile(t, path, fmt.Sprintf("%d %d", round, content))
			}
			leaf, _, err = tree.Put(ctx, s.objects, root, tree.PutOptions{})
			if err == nil {
				err = tree.Walk(ctx, s.objects, leaf, func(rel string, e tree.Entry) error {
					has[rel] = e.Hash
					return nil
				})
			}
			if err != nil {
				rt.Fatal(err)
			}
			has[""] = leaf
			return leaf, has
		}
		_, before := draw("before ")
		var held func(objectstore.Hash) bool
		ws := o.gathers(func(h func(objectstore.Hash) bool) error { held = h; return nil })
		if _, _, err := ws.Deployer.DeployNew(ctx, fmt.Sprintf("before%d", round), file, nil); err != nil {
			rt.Fatal(err)
		}
		_, after := draw("after ")
		if _, _, err := ws.Deployer.DeployNew(ctx, fmt.Sprintf("after%d", round), file, nil); err != nil {
			rt.Fatal(err)
		}
		named := map[objectstore.Hash]bool{}
		for _, h := range before {
			named[h] = true
		}
		for rel, h := range after {
			if held(h) && !named[h] {
				rt.Errorf("%q is held, and the former directory does not name it", rel)
			}
			if before[rel] == h && !held(h) {
				rt.Errorf("%q is where it was, and is not held", rel)
			}
		}
	})
}

// TestProofOfAnotherWorkspace: a workspace without a proof uses one of another workspace with the same package, as long
// as it is valid, and gets the answers that lookups would find.
func TestProofOfAnotherWorkspace(t *testing.T) {
	const tasks = 150
	s := newSite(t, tasks)
	ctx := t.Context()
	start := func(name string) *workspace.RunResult {
		t.Helper()
		o := s.office()
		if _, _, err := o.ws.Deployer.DeployNew(ctx, name, filepath.Join(s.dir, "e3.yaml"), nil); err != nil {
			t.Fatal(err)
		}
		s.records.take()
		res, err := o.ws.Runner.Start(ctx, name, workspace.StartOptions{Executor: o.executor, Concurrency: 2, FileNamed: true})
		if err != nil || res.Run.State != record.RunCompleted || res.Run.Summary.Cached != tasks+1 {
			t.Fatalf("%s: %v, %+v", name, err, res)
		}
		return res
	}
	lookups := func(name string, want int) {
		t.Helper()
		if got := s.records.take()["list EXECUTION"]; got != want {
			t.Errorf("%s: %d lookups, want %d", name, got, want)
		}
	}
	looked := start("w")
	lookups("w", tasks+1)
	plan := func(name string, want int) {
		t.Helper()
		o := s.office()
		if _, err := o.ws.Planner.PlanFile(ctx, name, filepath.Join(s.dir, "e3.yaml"), workspace.PlanOptions{Concurrency: 2}); err != nil {
			t.Fatal(err)
		}
		lookups("plan of "+name, want)
	}
	s.records.take()
	plan("v", 0)
	proven := start("v")
	lookups("v", 0)
	has := map[string]string{}
	for e := range looked.Run.Tasks.All() {
		has[e.Task] = e.ExecutionID
	}
	for e := range proven.Run.Tasks.All() {
		if has[e.Task] != e.ExecutionID {
			t.Errorf("%s is answered by %s, and a lookup finds %s", e.Task, e.ExecutionID, has[e.Task])
		}
	}
	// Each task has its own event, since the other run's log belongs to another workspace.
	n := 0
	for e, err := range events.Query(ctx, s.records, events.Filter{Workspace: "v", Task: "t[7]"}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != events.TaskCached || e.Execution != has["t[7]"] {
			t.Errorf("t[7] has the event %+v", e)
		}
		n++
	}
	if n != 1 {
		t.Errorf("t[7] has %d events", n)
	}

	o := s.office()
	end, err := executions.NewGeneration(s.records, o.leases).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	end()
	s.records.take()
	plan("u", tasks+1)
	start("u")
	lookups("u", tasks+1)
}
