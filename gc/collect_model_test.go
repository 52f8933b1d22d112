package gc_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"e3/executions"
	"e3/gc"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// TestCollectAgainstModel makes repositories of random packages, workspaces, runs and removals, and compares the
// objects that a collection leaves with those that a simple search finds to be needed.
func TestCollectAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "house")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		h := newHouse(rt, dir)
		defer func() { h.Close() }()
		h.project("begin")
		ws := func() string { return rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "workspace") }
		word := func(label string) string { return rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, label) }
		deploy := func() {
			lines := []string{inputs, "tasks:"}
			for i := range rapid.IntRange(1, 3).Draw(rt, "tasks") {
				in := rapid.SampledFrom([]string{"file", "images", "n", "file, images"}).Draw(rt, "inputs")
				run := rapid.SampledFrom([]string{"make o ", "make d/ ", "fail "}).Draw(rt, "command") + word("output")
				out := "o"
				if run[:len("make d")] == "make d" {
					out = "d/"
				}
				lines = append(lines, fmt.Sprintf("  t%d: {in: [%s], out: %s, run: %s}", i, in, out, run))
			}
			h.deploy(ws(), lines...)
		}
		// Operations on a missing workspace or package do nothing.
		tolerate := func(err error) {
			if !errors.Is(err, workspace.ErrNotFound) && !errors.Is(err, workspace.ErrNotDeployed) && !errors.Is(err, workspace.ErrExists) {
				h.must(err)
			}
		}
		deploy()
		rt.Repeat(map[string]func(*rapid.T){
			"edit":   func(rt *rapid.T) { h.project(rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "content")) },
			"deploy": func(*rapid.T) { deploy() },
			"start": func(rt *rapid.T) {
				name := ws()
				if s, err := h.Workspaces.State(h.Context(), name); err == nil && s.Deployed {
					h.start(name)
				}
			},
			"set": func(rt *rapid.T) {
				leaf, err := h.Workspaces.Datasets.PutValue(h.Context(), []any{word("value")})
				h.must(err)
				tolerate(h.Workspaces.Datasets.Set(h.Context(), ws(), "n", leaf))
			},
			"unset": func(rt *rapid.T) {
				_, err := h.Workspaces.Datasets.Unset(h.Context(), ws(), "n")
				tolerate(err)
			},
			"build": func(rt *rapid.T) {
				built, err := h.Workspaces.Deployer.Build(h.Context(), filepath.Join(h.dir, "e3.yaml"), nil)
				h.must(err)
				tolerate(h.Workspaces.Packages.Add(h.Context(), workspace.PackageRef{Name: "p", Version: word("version"), Hash: built.Hash}))
			},
			"remove package": func(rt *rapid.T) {
				_, err := h.Workspaces.Packages.Remove(h.Context(), "p", word("version"))
				tolerate(err)
			},
			"remove workspace": func(rt *rapid.T) { tolerate(h.Workspaces.Cleaner.Remove(h.Context(), ws())) },
			"remove execution": func(rt *rapid.T) {
				h.removeExecution(rapid.IntRange(0, 5).Draw(rt, "which"))
			},
			"garbage": func(rt *rapid.T) { h.put("garbage " + word("garbage")) },
			"collect": func(rt *rapid.T) {
				h.collect(gc.Options{})
				got := map[objectstore.Hash]bool{}
				for hash := range h.objects() {
					got[hash] = true
				}
				if diff := cmp.Diff(h.model(), got); diff != "" {
					rt.Fatalf("objects that are left (-needed +got):\n%s", diff)
				}
			},
		})
	})
}

// removeExecution removes the record of an execution.
func (h *house) removeExecution(which int) {
	h.Helper()
	for e, err := range h.Executions.All(h.Context()) {
		h.must(err)
		if which--; which >= 0 {
			continue
		}
		key := refstore.Key{Partition: "EXECUTION/" + e.Key.String(), Sort: e.ExecutionID}
		rec, err := h.Records.Get(h.Context(), key)
		h.must(err)
		generation := executions.NewGeneration(h.Records, h.Records)
		end, err := generation.Begin(h.Context())
		h.must(err)
		defer end()
		h.must(h.Records.Delete(h.Context(), key, rec.Version))
		return
	}
}
