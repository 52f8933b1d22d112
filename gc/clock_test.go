package gc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/gc"
	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// setBack begins a process at a time ahead of the file system's clock, as if the clock had been set back since. A test
// cannot set the clock, so it uses the rule that no session begins before another live one: it starts a session with
// that time first.
func (h *house) setBack(by time.Duration) *house {
	h.Helper()
	other := h.visitor()
	_, err := other.Records.SessionBegan(h.Context())
	h.must(err)
	locks, err := filepath.Glob(filepath.Join(h.root, "tmp", "session-*.lock"))
	h.must(err)
	then := time.Now().Add(by)
	for _, lock := range locks {
		h.must(os.Chtimes(lock, then, then))
	}
	worker := h.visitor()
	began, err := worker.Records.SessionBegan(h.Context())
	h.must(err)
	if !began.Equal(then.Truncate(0)) {
		h.Errorf("the session began at %v, want %v", began, then)
	}
	h.must(other.Close())
	return worker
}

// A clock is set back while a process works, by a minute or by years: objects that the process has stored, refreshed or
// found stay until it ends.
func TestCollectWhateverTheClock(t *testing.T) {
	for _, by := range []time.Duration{time.Minute, time.Hour, 30 * 24 * time.Hour, 10 * 365 * 24 * time.Hour} {
		t.Run(fmt.Sprint(by), func(t *testing.T) {
			h := newHouse(t, t.TempDir())
			h.project("x")
			h.deploy("w", inputs, "tasks:", "  one: {in: [n], out: d/, run: make d/ one}")
			h.start("w")
			h.must(h.Workspaces.Cleaner.Remove(t.Context(), "w"))
			h.forgetEvents("w")
			old := h.put("old")
			h.again()
			worker := h.setBack(by)
			ctx := t.Context()
			var stored []objectstore.Hash
			keep := func(hash objectstore.Hash, err error) {
				t.Helper()
				h.must(err)
				stored = append(stored, hash)
			}
			keep(worker.Objects.PutBytes(ctx, []byte("bytes")))
			info, err := worker.Objects.Put(ctx, strings.NewReader(strings.Repeat("stream", 1<<20)))
			keep(info.Hash, err)
			h.write("adopted", "adopted")
			info, err = worker.Objects.Adopt(ctx, suite.Paths{}, filepath.Join(h.dir, "adopted"))
			keep(info.Hash, err)
			h.write("tree/deep/file", "in a tree")
			dir, _, err := tree.Put(ctx, worker.Objects, filepath.Join(h.dir, "tree"), tree.PutOptions{})
			keep(dir, err)
			keep(objectstore.Sum([]byte("in a tree")), nil)
			there, err := worker.Objects.Refresh(ctx, old)
			keep(old, err)
			if !there {
				t.Fatal("the old object is not there")
			}

			// Another process, which began later, prunes an execution that the worker has found.
			pruner := h.visitor()
			curator := executions.NewCurator(pruner.Executions, pruner.Records, time.Now)
			for e, err := range pruner.Executions.All(ctx) {
				h.must(err)
				keep(objectstore.ParseHash(e.OutputHash))
				_, err = curator.Prune(ctx, e.Key.Task, []executions.Victim{e.Victim()}, "me@here", "test")
				h.must(err)
			}
			h.must(pruner.Close())
			// The logs of an execution come before its record.
			logs := filepath.Join(h.root, "executions", executions.NewKey(objectstore.Sum(nil), nil).String(), "0190f4c2-0000-7000-8000-000000000000")
			h.must(os.MkdirAll(logs, 0o755))
			h.must(os.WriteFile(filepath.Join(logs, "stdout.txt"), []byte("begun\n"), 0o644))

			h.again()
			_, err = gc.Collect(ctx, h.stores(), gc.Options{})
			h.must(err)
			for i, hash := range stored {
				if !h.has(hash) {
					t.Errorf("object %d, %s, is gone", i, hash)
				}
			}
			if _, err := os.Lstat(filepath.Join(logs, "stdout.txt")); err != nil {
				t.Errorf("the logs of an execution that is being made: %v", err)
			}
			h.must(worker.Close())
		})
	}
}

// A user who clears tmp/ removes the session of a process, which then begins another one. The new session still
// protects the objects of the first.
func TestCollectAfterTmpWasCleared(t *testing.T) {
	h := newHouse(t, t.TempDir())
	worker := h.visitor()
	h.must2(worker.Objects.PutBytes(t.Context(), []byte("first")))
	hash := h.put("by another")
	h.again()
	h.must(os.RemoveAll(filepath.Join(h.root, "tmp")))
	h.must(os.Mkdir(filepath.Join(h.root, "tmp"), 0o755))
	_, err := worker.Records.Protect(t.Context(), []string{"file " + objectstore.Sum(nil).String()}) // this needs a session
	h.must(err)
	if there, err := worker.Objects.Refresh(t.Context(), hash); err != nil || !there {
		t.Fatalf("refresh: %v, %v", there, err)
	}
	h.collect(gc.Options{})
	if !h.has(hash) {
		t.Error("what was refreshed is gone")
	}
	h.must(worker.Close())
}

func (h *house) must2(_ objectstore.Hash, err error) {
	h.Helper()
	h.must(err)
}
