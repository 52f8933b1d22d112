package gc_test

import (
	"errors"
	"testing"

	"e3/gc"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// The objects that a job needs stay until it is finished, whatever happened to its run.
func TestCollectKeepsWhatJobsNeed(t *testing.T) {
	h := newHouse(t, t.TempDir())
	ctx := t.Context()
	put := func(data []byte) objectstore.Hash {
		t.Helper()
		hash, err := h.Objects.PutBytes(ctx, data)
		h.must(err)
		return hash
	}
	file, stray := put([]byte("content")), put([]byte("nobody's"))
	listing, err := tree.Encode(tree.Entries{{Name: "f", Kind: tree.KindFile, Hash: file, Size: 7}})
	h.must(err)
	dir := put(listing)
	task := put((&record.Task{
		Shell: "true", Inputs: []record.Input{{Name: "in", Path: "in", Kind: record.KindDir}},
		Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "o", Kind: record.KindFile}}},
	}).Encode())
	job, err := h.Queue().Enqueue(ctx, &queue.Job{
		Workspace: "prod", Run: "run-1", Task: "t", Attempt: 1, TaskHash: task.String(), Inputs: []string{dir.String()},
	})
	h.must(err)

	h.collect(gc.Options{})
	for name, hash := range map[string]objectstore.Hash{"task": task, "input": dir, "its content": file} {
		if _, err := h.Objects.Stat(ctx, hash); err != nil {
			t.Errorf("while the job waits: %s: %v", name, err)
		}
	}
	if _, err := h.Objects.Stat(ctx, stray); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("an unreferenced object: got %v, want ErrNotFound", err)
	}

	_, err = h.Queue().Cancel(ctx, job.Queue, job.ID, "me", "")
	h.must(err)
	h.collect(gc.Options{})
	for name, hash := range map[string]objectstore.Hash{"task": task, "input": dir, "its content": file} {
		if _, err := h.Objects.Stat(ctx, hash); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("once the job is over: %s: got %v, want ErrNotFound", name, err)
		}
	}
}
