package workspace_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/workspace"
)

// leaves returns the outputs of a workspace by name.
func (p *place) leaves(t *rapid.T, names []string) map[string]string {
	leaves := map[string]string{}
	for _, name := range names {
		d, err := p.ws.Datasets.Dataset(p.ctx, "w", workspace.DatasetPath{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		leaves[name] = d.Hash
	}
	return leaves
}

// spoilAny removes or damages some objects that plans and states do not need: outputs, their contents, and inputs.
func (d *draft) spoilAny(t *rapid.T, names []string) {
	p := d.p
	var hashes []objectstore.Hash
	for _, h := range p.leaves(t, slices.Concat([]string{"a", "b"}, names)) {
		top, err := objectstore.ParseHash(h)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, top)
		if entries, err := tree.Read(p.ctx, p.repo.Objects, top); err == nil {
			for i := range entries {
				hashes = append(hashes, entries[i].Hash)
			}
		}
	}
	slices.SortFunc(hashes, objectstore.Hash.Compare)
	for _, h := range slices.Compact(hashes) {
		text := h.String()
		file := filepath.Join(p.repo.Root, "objects", text[:2], text[2:])
		how := rapid.SampledFrom([]string{"stays", "stays", "goes", "damaged", "cut"}).Draw(t, "object")
		data, err := os.ReadFile(file)
		if err != nil || how == "stays" || len(data) == 0 {
			continue
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		switch how {
		case "damaged":
			data[rapid.IntRange(0, len(data)-1).Draw(t, "byte")] ^= 1
		case "cut":
			data = data[:len(data)-1]
		}
		if how != "goes" {
			if err := os.WriteFile(file, data, 0o444); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Whichever objects of outputs and linked inputs are lost: one start of an edited project has the result of a start of
// an undamaged one, and leaves everything complete.
func TestStartHeals(t *testing.T) {
	remaining := 8
	if text := os.Getenv("E3_HEAL_CHECKS"); text != "" {
		remaining, _ = strconv.Atoi(text)
	}
	rapid.Check(t, func(rt *rapid.T) {
		if remaining--; remaining < 0 {
			return
		}
		defer func() {
			if rt.Failed() { // rapid is shrinking
				remaining = math.MaxInt
			}
		}()
		p := newPlace(t)
		d := &draft{p: p, calls: map[string]int{}, lost: map[string]bool{}, labels: []string{"p", "q"}}
		p.run = d.make
		p.write("a.txt", "text 0")
		p.write("b.txt", "text 1")
		for range rapid.IntRange(1, 6).Draw(rt, "tasks") {
			d.add(rt)
			d.tasks[len(d.tasks)-1].mode = "ok"
		}
		start := func(p *place) {
			res, err := p.ws.Runner.Start(p.ctx, "w", startOptions(p, ""))
			if err != nil {
				rt.Fatal(err)
			}
			if res.Run.State != record.RunCompleted {
				rt.Fatalf("the run is %v: %s", res.Run.State, res.Run.Error)
			}
		}
		p.write("e3.yaml", d.text())
		if _, _, err := p.ws.Deployer.DeployNew(p.ctx, "w", filepath.Join(p.dir, "e3.yaml"), nil); err != nil {
			rt.Fatal(err)
		}
		start(p)
		names := []string{"m[p]", "m[q]"}
		for i := range d.tasks {
			names = append(names, d.tasks[i].name)
		}
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			d.spoilAny(rt, names)
			d.tasks[rapid.IntRange(0, len(d.tasks)-1).Draw(rt, "edited")].seed = rapid.IntRange(0, 3).Draw(rt, "seed")
			p.write("e3.yaml", d.text())
			start(p)

			other := newPlace(t)
			other.run = d.make
			for _, name := range []string{"a.txt", "b.txt"} {
				data, err := os.ReadFile(filepath.Join(p.dir, name))
				if err != nil {
					rt.Fatal(err)
				}
				other.write(name, string(data))
			}
			other.write("e3.yaml", d.text())
			if _, _, err := other.ws.Deployer.DeployNew(p.ctx, "w", filepath.Join(other.dir, "e3.yaml"), nil); err != nil {
				rt.Fatal(err)
			}
			start(other)
			if got, want := p.leaves(rt, names), other.leaves(rt, names); !maps.Equal(got, want) {
				rt.Fatalf("it leaves %v, want %v", got, want)
			}
		}
	})
}

// Repaired tasks that shared an event get events by name, and the report names all others.
func TestReopenedAmongMany(t *testing.T) {
	p := newPlace(t)
	p.run = func(_ context.Context, script, dir string) int {
		words := strings.Fields(script)
		var text []byte
		for _, name := range words[2:] {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return 9
			}
			text = append(text, data...)
		}
		if os.WriteFile(filepath.Join(dir, words[1]), text, 0o644) != nil {
			return 9
		}
		return 0
	}
	p.write("a.txt", "text")
	lines := []string{"inputs: {a: {file: a.txt}}", "tasks:"}
	for i := range 120 {
		lines = append(lines, fmt.Sprintf("  t%d: {in: {x: a}, out: t%d.txt, run: 'make $out $x $x'}", i, i))
	}
	reader := "  r: {in: {x: t7}, out: r.txt, run: 'make $out %s'}"
	p.deploy(append(lines, fmt.Sprintf(reader, "$x"))...)
	p.start()
	h := p.output("t7").String()
	file := filepath.Join(p.repo.Root, "objects", h[:2], h[2:])
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("texttexT"), 0o444); err != nil {
		t.Fatal(err)
	}
	p.deploy(append(lines, fmt.Sprintf(reader, "$x $x"))...)
	res := p.start()
	if s := res.Run.Summary; s.Total != 121 || s.Cached != 119 || s.Completed != 121 {
		t.Errorf("the summary is %+v, want 119 of 121 cached", s)
	}
	if got := p.read("r"); got != strings.Repeat("text", 4) {
		t.Errorf("r has %q", got)
	}
	r, err := p.ws.Runs.Report(p.ctx, "w", "")
	if err != nil {
		t.Fatal(err)
	}
	states := map[runview.TaskState]int{}
	for i := range r.Tasks {
		states[r.Tasks[i].State]++
	}
	if states[runview.TaskCached] != 119 || states[runview.TaskSuccess] != 2 || len(r.Tasks) != 121 {
		t.Errorf("the report has %v", states)
	}
}
