package worker_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/internal/jobs/worker"
	"e3/internal/repo"
	"e3/refstore"
)

// A worker for one job learns of its cancellation, leaves the rest of the queue alone, and leaves nothing of its own
// behind.
func TestOneJobIsCancelled(t *testing.T) {
	r := newRig(t)
	begun := filepath.Join(t.TempDir(), "begun")
	j := r.enqueue("echo > "+begun+"; sleep 100", nil)
	gone := r.open(repo.Options{})
	other := r.enqueue("echo > $out", nil)
	if l, err := gone.Queue().Only(t.Context(), other.Queue, other.ID, queue.Want{Worker: "gone", NewExecution: executions.NewIDAfter}); err != nil || l == nil {
		t.Fatalf("claim: got %v, %v", l, err)
	}
	r.must(gone.Close())
	w := r.work(0, worker.Options{Job: j.ID})
	r.file(begun)
	if _, err := r.Queue().Cancel(t.Context(), j.Queue, j.ID, "me", "enough"); err != nil {
		t.Fatal(err)
	}
	if err := w.end(); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if got := r.ended(j); got.Status != queue.Cancelled {
		t.Errorf("it ended as %s, want cancelled", got.Status)
	}
	if got, err := r.Queue().Job(t.Context(), other.Queue, other.ID); err != nil || got.Status != queue.Running || got.Orphaned() {
		t.Errorf("another job of the queue: got %s, orphaned: %v, %v, want it left alone", got.Status, got.Orphaned(), err)
	}
	n := 0
	for _, err := range r.Records.List(t.Context(), refstore.Query{Partition: "QUEUE/default/holders", KeysOnly: true}) {
		r.must(err)
		n++
	}
	if n != 1 {
		t.Errorf("%d holders are left, want the one without a process", n)
	}
}

// A worker for one job ends if its machine lacks what the job needs: its cluster may have another machine.
func TestOneJobIsGivenBack(t *testing.T) {
	if _, err := os.Lstat("/dev/nvidiactl"); err == nil {
		t.Skip("needs a machine without /dev/nvidiactl, which stands for what a machine lacks: run it on one without that driver")
	}
	r := newRig(t)
	task := &record.Task{
		Shell: "echo > $out", Room: record.Room{Closed: true}.WithDevices([]string{"nvidia"}),
		Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "out", Kind: record.KindFile}}},
	}
	h, err := r.Objects.PutBytes(t.Context(), task.Encode())
	r.must(err)
	j := r.enqueue("", func(j *queue.Job) { j.TaskHash = h.String() })
	w := r.work(0, worker.Options{Job: j.ID})
	if err := w.end(); err != nil {
		t.Errorf("it ended with %v, want nil", err)
	}
	now, err := r.Queue().Job(t.Context(), j.Queue, j.ID)
	if err != nil || !now.Declined() || now.Attempts != 0 || !strings.Contains(now.LastError, "devices: [nvidia]") {
		t.Errorf("the job is %s after %d attempts, %q, %v; want it to wait for another worker, with the device that is missing here",
			now.Status, now.Attempts, now.LastError, err)
	}
}

// A worker for one job that cannot read the job's record, because the run's e3 is newer, ends with an error: it would
// wait for ever.
func TestOneJobIsNotUnderstood(t *testing.T) {
	for name, spoilt := range map[string]bool{"before": true, "while it waits": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			j := r.enqueue("echo > $out", nil)
			spoil := func() {
				rec, err := r.Records.Get(t.Context(), refstore.Key{Partition: "QUEUE/default/jobs", Sort: j.ID})
				r.must(err)
				rec.Value = append([]byte(`{"ofTomorrow":1,`), rec.Value[1:]...)
				_, err = r.Records.Put(t.Context(), rec)
				r.must(err)
			}
			if spoilt {
				spoil()
			} else { // another process has the job
				l, err := r.open(repo.Options{}).Queue().Only(t.Context(), j.Queue, j.ID, queue.Want{Worker: "other", NewExecution: executions.NewIDAfter})
				if err != nil || l == nil {
					t.Fatalf("claim: got %v, %v", l, err)
				}
			}
			w := r.work(0, worker.Options{Job: j.ID})
			if !spoilt {
				spoil()
			}
			if err := w.end(); !errors.Is(err, queue.ErrMalformed) {
				t.Errorf("it ended with %v, want ErrMalformed", err)
			}
			if n := w.count(worker.Fault, ""); n > 0 {
				t.Errorf("%d faults, want none", n)
			}
		})
	}
}
