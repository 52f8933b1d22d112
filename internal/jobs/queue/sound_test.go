package queue_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"e3/internal/jobs/queue"
	"e3/refstore"
)

// sound checks that the indexes of the default queue match its jobs exactly, and that nothing else is left.
func (w *world) sound(t testing.TB) {
	t.Helper()
	w.soundly(t, true)
}

// soundly is sound. Unless it is strict, entries may be of earlier versions: a claim would notice.
func (w *world) soundly(t testing.TB, strict bool) {
	t.Helper()
	w.flush()
	ctx := context.Background()
	q := queue.New(inStore(w.store), nil, queue.Options{Now: w.now})
	claimable := make(map[string]refstore.Version) // by id
	there := make(map[string]queue.Job)
	for j, err := range q.Jobs(ctx, queue.DefaultQueue) {
		if err != nil {
			t.Fatal(err)
		}
		there[j.ID] = j
		if j.Status.Terminal() {
			t.Errorf("job %s is %s, but not among the finished", j.Task, j.Status)
		}
		if j.Status == queue.Queued || j.Orphaned() {
			r, err := w.store.Get(ctx, w.place(t, "jobs", j.ID))
			if err != nil {
				t.Fatal(err)
			}
			claimable[j.ID] = r.Version
		}
	}
	for _, index := range []string{"ready", "delayed"} {
		for r := range w.records(t, index) {
			if strings.HasPrefix(r.Key.Sort, "+") {
				continue
			}
			id := r.Key.Sort[strings.LastIndex(r.Key.Sort, "."+run+".")+1:]
			version := r.Version // of an alias
			if !strings.HasPrefix(string(r.Value), "{") {
				line, _, _ := strings.Cut(string(r.Value), "\n")
				if err := json.Unmarshal([]byte(line), &version); err != nil {
					t.Fatal(err)
				}
			}
			switch want, ok := claimable[id]; {
			case !ok:
				t.Errorf("an entry for job %s (%s), which cannot be claimed", there[id].Task, there[id].Status)
			case want != version && strict:
				t.Errorf("the entry of job %s is of an earlier version", there[id].Task)
			case (index == "delayed") != !there[id].AvailableAt.IsZero():
				t.Errorf("the entry of job %s is among the %s", there[id].Task, index)
			}
			delete(claimable, id)
		}
	}
	for id := range claimable {
		t.Errorf("no entry for job %s, which can be claimed", there[id].Task)
	}
	for _, id := range w.sorts(t, "cancel") {
		if j := there[id]; j.Status != queue.Running {
			t.Errorf("job %s is to be cancelled, and %q", id, j.Status)
		}
	}
	dead := w.sorts(t, "dead")
	for j, err := range q.Finished(ctx, queue.DefaultQueue, run) {
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := there[j.ID]; twice {
			t.Errorf("job %s is finished, and is not", j.Task)
		}
		if is := j.Status == queue.Failed || j.Status == queue.TimedOut; is != slices.Contains(dead, j.ID) {
			t.Errorf("job %s is %s; is it among the dead? got %v", j.Task, j.Status, !is)
		}
	}
}

// all returns the jobs of the default queue, finished or not, by id.
func (w *world) all(t testing.TB) map[string]queue.Job {
	t.Helper()
	w.flush()
	q := queue.New(inStore(w.store), nil, queue.Options{Now: w.now})
	jobs := make(map[string]queue.Job)
	add := func(j queue.Job, err error) {
		if err != nil {
			t.Fatal(err)
		}
		jobs[j.ID] = j
	}
	for j, err := range q.Finished(context.Background(), queue.DefaultQueue, run) {
		add(j, err)
	}
	for j, err := range q.Jobs(context.Background(), queue.DefaultQueue) {
		add(j, err)
	}
	return jobs
}
