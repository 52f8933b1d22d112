//go:build amd64 || arm64

package executions_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/trace"
)

// TestOpened: what a traced command opens is on record with its execution, in both rooms, of layers and of the redirections
// of a plain command; without a trace nothing is on record.
func TestOpened(t *testing.T) {
	project := t.TempDir()
	if err := os.WriteFile(filepath.Join(project, "more.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	on := true
	l := newLab(t, func(o *executions.Options) {
		o.Trace = func(context.Context, *executions.Request) (*trace.Look, error) {
			if !on {
				return nil, nil
			}
			return &trace.Look{Project: []string{project}, Others: []string{"model.bin"}}, nil
		}
	})
	h := manyFiles(t, l, "first")
	opened := func(task *record.Task) (found []trace.Finding, traced bool) {
		req := l.request(task, h)
		res, err := l.Do(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		found, traced, err = l.Opened(t.Context(), executions.NewKey(req.Task, req.Inputs), res.ExecutionID)
		if err != nil {
			t.Fatal(err)
		}
		return found, traced
	}
	for name, make := range map[string]func(text, version string) *record.Task{"open": reader, "closed": closedReader} {
		for text, want := range map[string][]trace.Finding{
			"cat data/sub/f7 data/sub/f8 more.txt model.bin":  {{Kind: trace.File, Path: "more.txt"}, {Kind: trace.Missing, Path: "model.bin"}, {Kind: trace.Read, Path: "data"}},
			`wc -l < more.txt > "$out"`:                       {{Kind: trace.File, Path: "more.txt"}},
			`echo x > "$out"; cat "$out" > x; cat more.txt x`: {{Kind: trace.File, Path: "more.txt"}},
			`true`: nil,
		} {
			found, traced := opened(make(text, name))
			if !traced || !slices.Equal(found, want) {
				t.Errorf("%s: %s: found %q, %v", name, text, found, traced)
			}
		}
		on = false
		if found, traced := opened(make("cat more.txt", name)); traced {
			t.Errorf("%s: without a trace there is %q", name, found)
		}
		on = true
	}
}
