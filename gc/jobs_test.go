package gc_test

import (
	"errors"
	"testing"
	"time"

	"e3/gc"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/refstore"
)

// enqueue makes a job, and returns the objects that it needs by what they are.
func (h *house) enqueue() (job queue.Job, needs map[string]objectstore.Hash) {
	h.Helper()
	file := h.put("content")
	listing, err := tree.Encode(tree.Entries{{Name: "f", Kind: tree.KindFile, Hash: file, Size: 7}})
	h.must(err)
	dir := h.put(string(listing))
	task := h.put(string((&record.Task{
		Shell: "true", Inputs: []record.Input{{Name: "in", Path: "in", Kind: record.KindDir}},
		Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "o", Kind: record.KindFile}}},
	}).Encode()))
	job, err = h.Queue().Enqueue(h.Context(), &queue.Job{
		Workspace: "prod", Run: "run-1", Task: "t", Attempt: 1, TaskHash: task.String(), Inputs: []string{dir.String()},
	})
	h.must(err)
	return job, map[string]objectstore.Hash{"task": task, "input": dir, "its content": file}
}

// The objects that a job needs stay until it is finished, whatever happened to its run.
func TestCollectKeepsWhatJobsNeed(t *testing.T) {
	h := newHouse(t, t.TempDir())
	job, needs := h.enqueue()
	stray := h.put("nobody's")

	h.collect(gc.Options{})
	for name, hash := range needs {
		if !h.has(hash) {
			t.Errorf("while the job waits: %s is gone", name)
		}
	}
	if h.has(stray) {
		t.Error("an unreferenced object is there")
	}

	_, err := h.Queue().Cancel(t.Context(), job.Queue, job.ID, "me", "")
	h.must(err)
	h.collect(gc.Options{})
	for name, hash := range needs {
		if h.has(hash) {
			t.Errorf("once the job is over: %s is there", name)
		}
	}
}

// The jobs of a repository that machines share are in shards of their partitions.
func TestCollectKeepsWhatJobsInShardsNeed(t *testing.T) {
	m := newTeam(t, gcLease, time.Second)
	var needs map[string]objectstore.Hash
	var stray objectstore.Hash
	m.on(t.TempDir(), func(h *house) {
		_, needs = h.enqueue()
		stray = h.put("nobody's")
	})
	collected := false
	for deadline := time.Now().Add(suite.Stuck); !collected && time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		m.on(t.TempDir(), func(h *house) {
			_, err := gc.Collect(t.Context(), h.stores(), gc.Options{})
			if unsettled := (*refstore.UnsettledError)(nil); !errors.As(err, &unsettled) && !lost(h) {
				h.must(err)
			}
			collected = !h.has(stray)
		})
	}
	if !collected {
		t.Fatal("an unreferenced object is there")
	}
	m.on(t.TempDir(), func(h *house) {
		for name, hash := range needs {
			if !h.has(hash) {
				t.Errorf("while the job waits: %s is gone", name)
			}
		}
	})
}
