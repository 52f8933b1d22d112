package ui_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"e3/executions"
	"e3/internal/insight/runview"
	"e3/internal/ui"
	"e3/objectstore"
)

// countedObjects counts what is read of them.
type countedObjects struct {
	executions.Objects
	reads atomic.Int64
}

func (c *countedObjects) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	c.reads.Add(1)
	return c.Objects.Open(ctx, h)
}

// A page of experiments, of curves or of a comparison reads no object again that it has read before; another run's files are read.
func TestPagesReadFilesOnce(t *testing.T) {
	b := newBench(t)
	b.sweep()
	counted := &countedObjects{Objects: b.objects}
	b.stores.Compare.Objects = counted
	b.serve(ui.Options{})
	for _, path := range []string{"/experiments?sides=prod@", "/experiments?sides=prod@&view=curves", "/experiments?sides=prod@&view=scatter&x=rate&y=loss", "/compare?w=prod"} {
		first := b.page(path)
		before := counted.reads.Load()
		if again := b.page(path); again != first {
			t.Errorf("%s: the second view differs from the first", path)
		}
		if n := counted.reads.Load() - before; n != 0 || before == 0 {
			t.Errorf("%s: %d reads of objects at the second view, want none; %d at the first", path, n, before)
		}
	}
	before := counted.reads.Load()
	b.page("/experiments?sides=prod@+prod@-1&view=curves")
	if counted.reads.Load() == before {
		t.Error("the files of another run were not read")
	}
}

// Any number of values of a parameter is chosen, and the axes of curves, by the address alone, which a form without a script makes.
func TestSeveralValuesAndAxes(t *testing.T) {
	b := newBench(t)
	var list []made
	for depth := range 4 {
		table := "step,loss,acc\n"
		for step := range 5 {
			table += fmt.Sprintf("%d,%d,%d\n", step, 10-step, step*depth)
		}
		list = append(list, made{name: fmt.Sprintf("curve[depth=%d]", depth), state: runview.TaskSuccess, file: "c.csv", kind: "plot", output: table})
	}
	b.run(false, list...)
	b.serve(ui.Options{})
	page := b.page("/experiments?sides=prod@&view=curves&where=depth%3D1&where=depth%3D3&y=acc")
	wantIn(t, page, `value="depth=1" checked`, `value="depth=3" checked`, `value="depth=2"> 2`, "depth: <b>1, 3</b>", `name="y" value="acc" checked`, "acc by step",
		"--where depth=1 --where depth=3")
	if n := strings.Count(page, "data-x="); n != 2 {
		t.Errorf("%d lines, want those of depth 1 and 3", n)
	}
	page = b.page("/experiments?sides=prod@&view=curves&x=loss&y=acc")
	wantIn(t, page, "acc by loss", `<option value="loss" selected>`)
	page = b.page("/experiments?sides=prod@&view=curves&x=nothing")
	wantIn(t, page, "it has no column nothing; there are step, loss", "Draw them as declared")
}
