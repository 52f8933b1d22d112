package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/refstore"
	"e3/workspace"
)

// A holding is a workspace w in which inputs may be set, and something may be lost.
type holding struct {
	*place
	rnd    *rand.Rand
	named  bool // a registered package is deployed
	edited int
	want   map[string]string // outputs of the tasks that read the inputs
	did    []string
}

func newHolding(t *testing.T, seed int64) *holding {
	h := &holding{place: newPlace(t), rnd: rand.New(rand.NewSource(seed)), want: map[string]string{"n": "3", "m": "4", "f": "file"}}
	h.run = func(ctx context.Context, script, dir string) int {
		if words := strings.Fields(script); words[0] == "say" {
			if os.WriteFile(filepath.Join(dir, "o"), []byte(words[1]), 0o644) != nil {
				return 9
			}
			return 0
		}
		return shell(ctx, script, dir)
	}
	h.named = h.rnd.Intn(3) == 0
	h.write("f.txt", "file")
	h.write("g.txt", "set")
	h.write("e3.yaml", h.text())
	if err := h.ws.Create(h.ctx, "w"); err != nil {
		t.Fatal(err)
	}
	h.must(h.deployed())
	return h
}

func (h *holding) text() string {
	return fmt.Sprintf(`e3: 1
name: p
version: 1.0.%d
inputs: {n: {value: 3}, m: {value: 4}, f: {file: f.txt}}
tasks:
  n1: {in: {x: n}, out: o, run: say $x}
  m1: {in: {x: m}, out: o, run: say $x}
  f1: {in: {x: f}, out: o, run: cat $x}
  more: {out: o, run: say %[1]d}
`, h.edited)
}

func (h *holding) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("%s: %v", strings.Join(h.did, ", "), err)
	}
}

func (h *holding) does(what string) { h.did = append(h.did, what) }

// deployed deploys the present package file, or registers its package and deploys that.
func (h *holding) deployed() error {
	file := filepath.Join(h.dir, "e3.yaml")
	if !h.named {
		_, err := h.ws.Deployer.DeployFile(h.ctx, "w", file)
		return err
	}
	built, err := h.ws.Deployer.Build(h.ctx, file, nil)
	h.must(err)
	ref := workspace.PackageRef{Name: "p", Version: built.Package.Version, Hash: built.Hash}
	h.must(h.ws.Packages.Add(h.ctx, ref))
	return h.ws.Deployer.Deploy(h.ctx, "w", ref)
}

func (h *holding) started() error {
	res, err := h.ws.Runner.Start(h.ctx, "w", startOptions(h.place, ""))
	if err == nil && res.Run.State != record.RunCompleted {
		err = errors.New(res.Run.Error)
	}
	return err
}

// give sets an input, or sets a lost value again.
func (h *holding) give(name string) {
	var leaf record.Leaf
	var err error
	if name == "f" {
		leaf, err = h.ws.Datasets.PutPath(h.ctx, record.FromFile, filepath.Join(h.dir, "g.txt"))
		h.want["f"] = "set"
	} else {
		leaf, err = h.ws.Datasets.PutValue(h.ctx, int64(7))
		h.want[name] = "7"
	}
	h.must(err)
	h.must(h.ws.Datasets.Set(h.ctx, "w", name, leaf))
}

func (h *holding) isSet(name string) bool {
	return h.want[name] != map[string]string{"n": "3", "m": "4", "f": "file"}[name]
}

// spoil removes or damages a part of the state's objects, or the link.
func (h *holding) spoil() (part string) {
	s, err := h.ws.State(h.ctx, "w")
	h.must(err)
	node := func(hash string) record.Node {
		data, err := os.ReadFile(h.objectFile(hash))
		h.must(err)
		n, err := record.DecodeNode(data)
		h.must(err)
		return n
	}
	root := node(s.RootHash)
	in, _ := root.Get("inputs")
	out, _ := root.Get("tasks")
	parts := map[string]string{"root": s.RootHash, "inputs": in.Hash, "outputs": out.Hash, "package": s.PackageHash}
	part = []string{"root", "inputs", "outputs", "package", "link"}[h.rnd.Intn(5)]
	if part == "link" {
		h.must(h.repo.Workspaces.Local.Delete(h.ctx, refstore.Key{Partition: "INDEX/links", Sort: "w"}, h.linkVersion()))
		if h.rnd.Intn(2) == 0 {
			part = "link damaged"
			_, err := h.ws.Local.Put(h.ctx, refstore.Record{Key: refstore.Key{Partition: "INDEX/links", Sort: "w"}, Value: []byte("x")})
			h.must(err)
		}
		h.does(part + " lost")
		return part
	}
	file := h.objectFile(parts[part])
	data, err := os.ReadFile(file)
	h.must(err)
	h.must(os.Remove(file))
	how := []string{"gone", "damaged", "cut"}[h.rnd.Intn(3)]
	switch how {
	case "damaged":
		data[h.rnd.Intn(len(data))] ^= 1
		h.must(os.WriteFile(file, data, 0o444))
	case "cut":
		h.must(os.WriteFile(file, data[:len(data)-1], 0o444))
	}
	h.does(part + " " + how)
	return part
}

func (h *holding) linkVersion() refstore.Version {
	rec, err := h.ws.Local.Get(h.ctx, refstore.Key{Partition: "INDEX/links", Sort: "w"})
	h.must(err)
	return rec.Version
}

func (h *holding) objectFile(hash string) string {
	return filepath.Join(h.repo.Root, "objects", hash[:2], hash[2:])
}

func (h *holding) edit() {
	h.edited++
	h.write("e3.yaml", h.text())
	h.does("edited")
}

// answered checks that the outputs match the inputs.
func (h *holding) answered(what string) {
	h.t.Helper()
	for name, want := range h.want {
		if got := h.read(name + "1"); got != want {
			h.t.Errorf("%s, %s: the output of %s is %q, want %q", strings.Join(h.did, ", "), what, name, got, want)
		}
	}
}

// Whatever part of a workspace is lost: a start, also after a deployment, uses the set values, or fails and names them;
// after they are set again it uses them.
func TestSetValuesSurvive(t *testing.T) {
	checks := testChecks(t, "E3_SALVAGE_CHECKS", 60)
	for seed := range checks {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := newHolding(t, int64(seed))
			for _, name := range []string{"n", "m", "f"} {
				if h.rnd.Intn(3) == 0 {
					h.give(name)
					h.does("set " + name)
				}
			}
			if h.rnd.Intn(3) > 0 {
				h.must(h.started())
				h.does("started")
			}
			part := h.spoil()
			if h.rnd.Intn(2) == 0 {
				h.edit()
			}
			act, what := h.started, "start"
			if h.rnd.Intn(2) == 0 {
				act, what = func() error {
					if err := h.deployed(); err != nil {
						return err
					}
					return h.started()
				}, "deploy"
			}
			if what == "start" {
				_, planErr := h.reader().Planner.Plan(h.ctx, "w", workspace.PlanOptions{})
				err := act()
				if (planErr == nil) != (err == nil) && !(h.named && part == "package") { // an unchanged start does not read the package
					t.Errorf("%s: the plan says %v, the start %v", strings.Join(h.did, ", "), planErr, err)
				}
				h.checked(part, what, err, act)
				return
			}
			h.checked(part, what, act(), act)
		})
	}
}

func (h *holding) checked(part, what string, err error, act func() error) {
	h.t.Helper()
	var values *workspace.LostValuesError
	switch {
	case err == nil && (part == "link damaged" || part == "link") && what == "start" && h.edited > 0:
		return // the workspace follows no file, or no clone here
	case err == nil:
		h.answered(what)
	case errors.As(err, &values):
		for name := range h.want {
			if h.isSet(name) && !slices.Contains(values.Inputs, name) {
				if d, err := h.ws.Datasets.Dataset(h.ctx, "w", workspace.DatasetPath{Name: name}); err != nil && !errors.As(err, new(*workspace.PartError)) {
					h.t.Errorf("%s: %s is not named in %v, and holds %+v, %v", strings.Join(h.did, ", "), name, values, d, err)
				}
			}
		}
		h.goOn(what, values, act)
	case part == "link damaged" && what == "start", part == "package" && h.named:
	default:
		h.t.Errorf("%s, %s: %v", strings.Join(h.did, ", "), what, err)
	}
}

// goOn follows an error's advice.
func (h *holding) goOn(what string, values *workspace.LostValuesError, act func() error) {
	h.t.Helper()
	if values.Package != "" {
		return // TestRegisteredAgain
	}
	for _, name := range values.Inputs {
		if h.isSet(name) && !values.Linked {
			h.give(name)
			continue
		}
		_, err := h.ws.Datasets.Unset(h.ctx, "w", name)
		h.must(err)
		h.want[name] = map[string]string{"n": "3", "m": "4", "f": "file"}[name]
	}
	if err := act(); err != nil {
		h.t.Errorf("%s, %s, after %v: %v", strings.Join(h.did, ", "), what, values, err)
		return
	}
	h.answered(what + " again")
}

// testChecks is how many cases a test plays, which an environment variable may override.
func testChecks(t *testing.T, variable string, checks int) int {
	t.Helper()
	if text := os.Getenv(variable); text != "" {
		if _, err := fmt.Sscan(text, &checks); err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
	}
	return checks
}
