package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/record"
	"e3/workspace"
)

func TestParseDatasetPath(t *testing.T) {
	for _, test := range []struct {
		in, name, entry string
		bad             bool
	}{
		{in: "train", name: "train"},
		{in: "train.model", name: "train", entry: "model"},
		{in: "train/sub/file.txt", name: "train", entry: "sub/file.txt"},
		{in: "train.model/x", name: "train", entry: "model/x"},
		{in: "train/", name: "train"},
		{in: "train/sub/", name: "train", entry: "sub"},
		{in: "train[4]", name: "train[4]"},
		{in: "train[lr=0.1,depth=4].model", name: "train[lr=0.1,depth=4]", entry: "model"},
		{in: "train[a.b]/c", name: "train[a.b]", entry: "c"},
		{in: "train[4", bad: true},
		{in: "train[4]x", bad: true},
		{in: ".model", bad: true},
		{in: "/model", bad: true},
		{in: "train/../x", bad: true},
		{in: "train//x", bad: true},
		{in: "train/./x", bad: true},
	} {
		got, err := workspace.ParseDatasetPath(test.in)
		if (err != nil) != test.bad || err == nil && got != (workspace.DatasetPath{Name: test.name, Entry: test.entry}) {
			t.Errorf("ParseDatasetPath(%q) = %+v, %v", test.in, got, err)
		}
	}
}

func FuzzParseDatasetPath(f *testing.F) {
	for _, s := range []string{"a", "a.b", "a[x.y].b/c", "a[", "a/../b", ".", "/", "[", "]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := workspace.ParseDatasetPath(s)
		if err != nil {
			return
		}
		if !strings.HasPrefix(s, p.Name) || strings.Contains("/"+p.Entry+"/", "/../") {
			t.Fatalf("%q gives %+v", s, p)
		}
	})
}

const twoInputs = "inputs: {a: {file: a.txt}, b: {file: b.txt}}\ntasks: {t: {in: [a, b], out: o, run: cat $a $b}}"

// A value that is set while a run updates linked inputs is kept by that run and by all later ones.
func TestSetDuringRuns(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a0")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	var done sync.WaitGroup
	for round := range 40 {
		p.write("a.txt", fmt.Sprintf("a%d", round+1))
		text := fmt.Sprintf("set %d", round)
		done.Go(func() { p.start() })
		p.set("a", text)
		done.Wait()
		if got := p.read("a"); got != text {
			t.Fatalf("round %d: a is %q, want %q", round, got, text)
		}
		p.start()
		if got, want := p.read("t"), text+"b"; got != want {
			t.Fatalf("round %d: the output is %q, want %q", round, got, want)
		}
		if set, err := p.ws.Datasets.Unset(p.ctx, "w", "a"); !set || err != nil {
			t.Fatalf("round %d: Unset = %v, %v", round, set, err)
		}
	}
	p.start()
	if got, want := p.read("t"), "a40b"; got != want {
		t.Errorf("once all is unset the output is %q, want %q", got, want)
	}
}

// Concurrent sets lose no write.
func TestSetConcurrently(t *testing.T) {
	p := newPlace(t)
	const n = 8
	inputs := make([]string, n)
	for i := range inputs {
		p.write(fmt.Sprintf("f%d", i), "")
		inputs[i] = fmt.Sprintf("i%d: {file: f%d}", i, i)
	}
	p.deploy("inputs: {" + strings.Join(inputs, ", ") + "}")
	var done sync.WaitGroup
	for i := range n {
		leaf := p.file(fmt.Sprint("v", i))
		done.Go(func() {
			if err := p.ws.Datasets.Set(p.ctx, "w", fmt.Sprint("i", i), leaf); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	st, err := p.ws.Planner.Status(p.ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range st.Datasets {
		if got, want := p.read(d.Name), fmt.Sprint("v", i); got != want || !d.Set {
			t.Errorf("%s is %q, set %v; want %q, true", d.Name, got, d.Set, want)
		}
	}
}

func TestSetRefuses(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.deploy("inputs: {a: {file: a.txt}, n: {value: 1}}\ntasks: {t: {in: [a], out: o, run: cat $a}}")
	leaf := p.file("x")
	var unknown *workspace.UnknownError
	if err := p.ws.Datasets.Set(p.ctx, "w", "nope", leaf); !errors.As(err, &unknown) || !slices.Equal(unknown.Known, []string{"a", "n"}) {
		t.Errorf("Set of an unknown input: %v", err)
	}
	if err := p.ws.Datasets.Set(p.ctx, "w", "t", leaf); !errors.As(err, &unknown) || !strings.Contains(err.Error(), "a task makes it") {
		t.Errorf("Set of an output: %v", err)
	}
	if err := p.ws.Datasets.Set(p.ctx, "w", "n", leaf); err == nil || !strings.Contains(err.Error(), "is a value now, not a file") {
		t.Errorf("Set of a value to a file: %v", err)
	}
	if err := p.ws.Datasets.Set(p.ctx, "nope", "a", leaf); !errors.As(err, &unknown) || unknown.What != "workspace" {
		t.Errorf("Set in an unknown workspace: %v", err)
	}
	// A refused set leaves no mark: the file is still followed.
	p.write("a.txt", "edited")
	p.start()
	if got := p.read("a"); got != "edited" {
		t.Errorf("a is %q, want %q", got, "edited")
	}
	if set, err := p.ws.Datasets.Unset(p.ctx, "w", "n"); set || err != nil {
		t.Errorf("Unset of what was never set = %v, %v", set, err)
	}
}

func setInputs(p *place, ws string) []string {
	p.t.Helper()
	st, err := p.ws.Planner.Status(p.ctx, ws)
	if err != nil {
		p.t.Fatal(err)
	}
	var names []string
	for _, d := range st.Datasets {
		if d.Set {
			names = append(names, d.Name)
		}
	}
	return names
}

// A redeploy keeps set values whose name and kind remain, and forgets the others.
func TestRedeployKeepsSetValues(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	p.set("a", "set a")
	p.set("b", "set b")
	p.deploy("inputs: {a: {file: b.txt}, b: {value: 1}, c: {file: a.txt}}\ntasks: {t: {in: [a, c], out: o, run: cat $a $c}}")
	if got := p.read("a"); got != "set a" {
		t.Errorf("a is %q, want the value that was set", got)
	}
	if diff := cmp.Diff([]string{"a"}, setInputs(p, "w")); diff != "" {
		t.Errorf("set inputs differ (-want +got):\n%s", diff)
	}
	// b is a file again: its earlier set value is dropped, and the file is followed.
	p.deploy(twoInputs)
	p.write("b.txt", "new b")
	p.start()
	if got, want := p.read("t"), "set anew b"; got != want {
		t.Errorf("the output is %q, want %q", got, want)
	}
}

// Set values survive a change from a registered package to a file and back.
func TestSetSurvivesLinking(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	s, err := p.ws.State(p.ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	ref := workspace.PackageRef{Name: "p", Version: "0.0.0", Hash: s.PackageHash}
	for range 2 {
		if err := p.ws.Deployer.Deploy(p.ctx, "w", ref); err != nil {
			t.Fatal(err)
		}
		p.set("a", "set")
		if diff := cmp.Diff([]string{"a"}, setInputs(p, "w")); diff != "" {
			t.Errorf("from a package: set inputs differ (-want +got):\n%s", diff)
		}
		p.deploy(twoInputs)
		p.write("a.txt", "edited")
		p.start()
		if got := p.read("a"); got != "set" {
			t.Errorf("from the file: a is %q, want what was set", got)
		}
	}
}

// An entry is found through directories; the error for a missing one lists similar names.
func TestDatasetEntry(t *testing.T) {
	p := newPlace(t)
	if err := p.ws.Create(p.ctx, "empty"); err != nil {
		t.Fatal(err)
	}
	p.write("a.txt", "a")
	if err := os.MkdirAll(filepath.Join(p.dir, "d", "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.write("d/a.txt", "a")
	p.deploy("inputs: {d: {dir: d}, a: {file: a.txt}}\ntasks: {t: {in: [a], out: o, run: cat $a}}")
	at := func(ws, path string) (*workspace.Dataset, error) {
		dp, err := workspace.ParseDatasetPath(path)
		if err != nil {
			t.Fatal(err)
		}
		return p.ws.Datasets.Dataset(p.ctx, ws, dp)
	}
	d, err := at("w", "d/a.txt")
	if err != nil || d.Kind != record.LeafFile || d.Size != 1 {
		t.Errorf("d/a.txt = %+v, %v", d, err)
	}
	var unknown *workspace.UnknownError
	if _, err := at("w", "d/a.tx"); !errors.As(err, &unknown) || !slices.Contains(unknown.Known, "a.txt") {
		t.Errorf("d/a.tx: %v", err)
	}
	if _, err := at("w", "d/nope/a.txt"); !errors.As(err, &unknown) {
		t.Errorf("d/nope/a.txt: %v", err)
	}
	if _, err := at("w", "d/a.txt/x"); !errors.As(err, &unknown) {
		t.Errorf("d/a.txt/x: %v", err)
	}
	if _, err := at("w", "a/x"); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a/x: %v", err)
	}
	var unassigned *workspace.UnassignedError
	if _, err := at("w", "t"); !errors.As(err, &unassigned) || !unassigned.Output {
		t.Errorf("an output that was not made: %v", err)
	}
	if _, err := at("empty", "t"); !errors.Is(err, workspace.ErrNotDeployed) {
		t.Errorf("nothing deployed: %v", err)
	}
}

// An input can be set to a directory.
func TestPutPath(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	leaf, err := p.ws.Datasets.PutPath(p.ctx, record.FromDir, p.dir)
	if err != nil || leaf.Kind != record.LeafDir {
		t.Fatalf("a directory: %+v, %v", leaf, err)
	}
	leaf, err = p.ws.Datasets.PutPath(p.ctx, record.FromFile, filepath.Join(p.dir, "a.txt"))
	if err != nil || leaf.Kind != record.LeafFile || leaf.Size != 1 {
		t.Errorf("a file: %+v, %v", leaf, err)
	}
	if _, err := p.ws.Datasets.PutPath(p.ctx, record.FromFile, p.dir); err == nil {
		t.Error("a directory was taken for a file")
	}
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	if _, err := p.ws.Datasets.PutPath(ctx, record.FromDir, p.dir); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
