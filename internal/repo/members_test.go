package repo

import (
	"errors"
	"path/filepath"
	"testing"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/objectstore"
	"e3/refstore"
)

// A process that has lost the session of its jobs in a plain folder begins another session; its old jobs have no
// holder.
func TestFolderRenewsSession(t *testing.T) {
	root, ctx := filepath.Join(t.TempDir(), DirName), t.Context()
	if _, err := Init(ctx, root, InitOptions{}); err != nil {
		t.Fatal(err)
	}
	r := visit(t, root, Options{})
	first, err := r.stores.plain.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r.stores.plain.renew() // nothing was lost
	if id, err := r.stores.plain.Session(ctx); id != first || err != nil {
		t.Errorf("the session is %s, %v; want still %s", id, err, first)
	}
	job := queue.Job{
		Queue: queue.DefaultQueue, Workspace: "w", Run: "r", Task: "t", Attempt: 1, TaskHash: objectstore.Sum(nil).String(), Policy: record.Policy{},
	}
	job.ID = queue.Identity(&job)
	if _, err := r.Queue().Enqueue(ctx, &job); err != nil {
		t.Fatal(err)
	}
	want := queue.Want{Queues: []string{queue.DefaultQueue}, Worker: "me", NewExecution: executions.NewIDAfter}
	take := func() (*queue.Lease, error) { return r.Queue().Only(ctx, queue.DefaultQueue, job.ID, want) }
	if l, err := take(); l == nil || err != nil {
		t.Fatal(l, err)
	}
	endSessions(t, r.Records)
	if err := r.stores.plain.Confirm(ctx); !errors.Is(err, refstore.ErrLost) { // what the next renewal finds
		t.Errorf("got error %v, want ErrLost", err)
	}
	if _, err := take(); !errors.Is(err, refstore.ErrLost) {
		t.Errorf("before it is renewed: got error %v, want ErrLost", err)
	}
	r.stores.plain.renew()
	if l, err := take(); err != nil || l == nil || !l.Adopted() {
		t.Errorf("got %v, %v; want the job that the lost session had", l, err)
	}
	if id, err := r.stores.plain.Session(ctx); id == first || err != nil {
		t.Errorf("the session is %s, %v; want another than %s", id, err, first)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
