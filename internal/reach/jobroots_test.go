package reach_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/objectstore"
	"e3/refstore"
)

// members has one live session.
type members struct{}

func (members) Session(context.Context) (string, error) {
	return "018f3b4c-9a2d-7def-8abc-123456789012", nil
}
func (members) Ended(context.Context, string) (bool, time.Duration, error) {
	return false, 0, nil
}
func (members) Heard(context.Context, string) (refstore.Heard, error) { return refstore.Heard{}, nil }
func (members) Lost() <-chan struct{}                                 { return nil }
func (members) Confirm(context.Context) error                         { return nil }

func (r *rig) job(task objectstore.Hash, name string, inputs ...objectstore.Hash) queue.Job {
	r.Helper()
	j := queue.Job{Workspace: "prod", Run: "018f3b4c", Task: name, Attempt: 1, TaskHash: task.String()}
	for _, h := range inputs {
		j.Inputs = append(j.Inputs, h.String())
	}
	made, err := r.queues().Enqueue(r.Context(), &j)
	if err != nil {
		r.Fatal(err)
	}
	return made
}

func (r *rig) queues() *queue.Queue {
	return queue.New(queue.Store{Store: r.records}, members{}, queue.Options{Now: time.Now})
}

func TestReferencesOfJobs(t *testing.T) {
	r := newRig(t)
	known := put(t, r.objects, task(record.KindFile, record.KindFile, record.KindDir).Encode())
	waits := r.job(known, "a", hash(1), hash(2))
	gone := r.job(hash(9), "b", hash(3))
	over := r.job(known, "c", hash(4), hash(5))
	if _, err := r.queues().Cancel(t.Context(), over.Queue, over.ID, "me", ""); err != nil {
		t.Fatal(err)
	}
	var got sink
	if err := r.stores().References(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.faults) > 0 {
		t.Errorf("faults: got %q, want none", got.faults)
	}
	got.check(t,
		"job "+waits.Ref()+": task task "+known.String()+" (weak)",
		"job "+waits.Ref()+": input file "+hash(1).String()+" (weak)",
		"job "+waits.Ref()+": input dir "+hash(2).String()+" (weak)",
		"job "+gone.Ref()+": task task "+hash(9).String()+" (weak)",
		"job "+gone.Ref()+": input file-or-dir "+hash(3).String()+" (weak)",
	)
}

// The objects that an unreadable job needs are unknown.
func TestMalformedJob(t *testing.T) {
	r := newRig(t)
	j := r.job(hash(9), "b")
	r.write("QUEUE/"+j.Queue+"/jobs", "018f3b4c.00000000000000000000000000000000", []byte(`{"from":"a newer e3"}`))
	bad := r.job(hash(9), "c")
	bad.TaskHash = "no hash"
	made, err := r.queues().Enqueue(t.Context(), &bad)
	if err != nil {
		t.Fatal(err)
	}
	var got sink
	if err := r.stores().JobRoots(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(got.faults, "\n")
	if len(got.faults) != 2 || !strings.Contains(text, "from") || !strings.Contains(text, made.Ref()) {
		t.Errorf("faults: got %q, want those of two records", got.faults)
	}
	if len(got.roots) != 2 { // the tasks of both that can be read
		t.Errorf("roots: got %q, want those of the others", got.roots)
	}
}
