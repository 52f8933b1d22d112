package executions_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// objectPath is where the object store keeps an object.
func (l *lab) objectPath(h objectstore.Hash) string {
	return filepath.Join(l.dir, "objects", h.String()[:2], h.String()[2:])
}

// tear damages a file as a loss of power does before a sync.
func tear(t *testing.T, path string) {
	t.Helper()
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
}

func TestMend(t *testing.T) {
	pair := &record.Task{Shell: "echo left > l; echo right > r", Output: record.Output{Multi: true, Entries: []record.OutputEntry{
		{Name: "l", Path: "l", Kind: record.KindFile}, {Name: "r", Path: "r", Kind: record.KindFile},
	}}}
	for _, test := range []struct {
		name string
		task *record.Task
		tear func(t *testing.T, l *lab, key executions.Key, res executions.Result)
		kept int // executions that remain of one
	}{
		{"output", script("echo x > out"), func(t *testing.T, l *lab, _ executions.Key, res executions.Result) {
			tear(t, l.objectPath(res.Output))
		}, 1},
		{"a part of the output", pair, func(t *testing.T, l *lab, _ executions.Key, _ executions.Result) {
			tear(t, l.objectPath(objectstore.Sum([]byte("left\n"))))
		}, 1},
		{"the directory of the output", pair, func(t *testing.T, l *lab, _ executions.Key, res executions.Result) {
			tear(t, l.objectPath(res.Output))
		}, 1},
		{"status", script("echo x > out"), func(t *testing.T, l *lab, k executions.Key, res executions.Result) {
			tear(t, filepath.Join(l.dir, "executions", k.String(), res.ExecutionID, "status.beast2"))
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t)
			safe := l.do(t, l.request(script("echo safe > out")))
			req := l.request(test.task)
			res := l.do(t, req)
			test.tear(t, l, keyOf(req), res)
			generation := executions.NewGeneration(l.records, l.records)

			// Older executions were synced, so Mend skips them.
			if err := l.Mend(t.Context(), l.objects, generation, time.Now().Add(2*time.Hour)); err != nil {
				t.Fatal(err)
			}
			if n := len(l.ids(t, keyOf(req))); n != 1 {
				t.Errorf("%d executions after nothing was to be mended, want 1", n)
			}
			began, err := l.records.SessionBegan(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // mending is idempotent
				if err := l.Mend(t.Context(), l.objects, generation, began); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(l.ids(t, keyOf(req))); n != test.kept {
				t.Errorf("%d executions are left, want %d", n, test.kept)
			}
			if a, err := l.Lookup(t.Context(), keyOf(req)); err != nil || a.Hit != nil {
				t.Errorf("the lost execution is found: %+v, %v", a, err)
			}
			if again := l.do(t, req); again.State != record.Success || again.Cached || again.Output != res.Output {
				t.Errorf("it was made again as %+v, was %+v", again, res)
			}
			for e, err := range l.objects.Walk(t.Context()) {
				if err != nil || l.objects.Verify(t.Context(), e.Hash) != nil {
					t.Errorf("object %s: %v", e.Hash, errors.Join(err, l.objects.Verify(t.Context(), e.Hash)))
				}
			}
			if _, err := l.objects.Stat(t.Context(), safe.Output); err != nil {
				t.Errorf("the whole execution: %v", err)
			}
		})
	}
}

// Mend removes torn tombstones, which would keep collections from removing anything.
func TestMendTombstones(t *testing.T) {
	l := newLab(t)
	var tasks []objectstore.Hash
	for _, text := range []string{"echo x > out", "echo y > out"} {
		req := l.request(script(text))
		res := l.do(t, req)
		e, err := l.Get(t.Context(), keyOf(req), res.ExecutionID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Prune(t.Context(), req.Task, []executions.Victim{e.Victim()}, "ann", ""); err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, req.Task)
	}
	tear(t, filepath.Join(l.dir, "tombstones", tasks[0].String()+".rec"))
	if err := l.Mend(t.Context(), l.objects, executions.NewGeneration(l.records, l.records), time.Now()); err != nil {
		t.Fatal(err)
	}
	var left []objectstore.Hash
	for p, err := range l.Tombstones(t.Context()) {
		if err != nil {
			t.Error(err)
		}
		left = append(left, p.Key.Task)
	}
	if !slices.Equal(left, tasks[1:]) {
		t.Errorf("tombstones are of the tasks %v, want %v", left, tasks[1:])
	}
}

// ids are the executions of a key, readable or not.
func (l *lab) ids(t *testing.T, k executions.Key) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(l.dir, "executions", k.String()))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	slices.Sort(ids)
	return ids
}
