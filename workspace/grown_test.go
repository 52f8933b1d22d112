package workspace_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"e3/internal/format/record"
	"e3/workspace"
)

// newGrown returns a place whose workspace has run a task that makes a list, and one task for each of its items.
func newGrown(t *testing.T) *place {
	t.Helper()
	p := newPlace(t)
	p.run = func(ctx context.Context, script, dir string) int {
		if script != "split" {
			return shell(ctx, script, dir)
		}
		data, err := os.ReadFile(filepath.Join(dir, "text.txt"))
		if err != nil || os.WriteFile(filepath.Join(dir, "list.txt"), data, 0o644) != nil {
			return 9
		}
		return 0
	}
	p.write("text.txt", "a\nb\n")
	p.age("text.txt")
	p.deploy(`inputs: {text: {file: text.txt}}
tasks:
  split: {in: [text], out: list.txt, run: split}
  fit: {matrix: {part: split}, out: o, run: cat}
  all: {in: {parts: "fit[*]"}, out: o, run: cat}`)
	p.start()
	return p
}

// A list that is as before makes no package anew, neither in a plan nor in a run: the definition is not even read.
func TestAnUnchangedListMakesNothing(t *testing.T) {
	p := newGrown(t)
	s, err := p.ws.State(p.ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := record.DecodePackage(p.stored(s.PackageHash))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(p.repo.Root, "objects", pkg.Definition[:2], pkg.Definition[2:])); err != nil {
		t.Fatal(err)
	}
	const want = "split hit, fit[a] hit, fit[b] hit, all hit"
	if got := steps(p.plan()); got != want {
		t.Errorf("the plan is %s, want %s", got, want)
	}
	forced := p.start(func(o *workspace.StartOptions) { o.Force = true })
	if forced.Run.State != record.RunCompleted || forced.Run.Summary.Completed != 4 {
		t.Errorf("a forced run ended as %s with %+v", forced.Run.State, forced.Run.Summary)
	}
}
