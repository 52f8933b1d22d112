package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"e3/internal/jobs/queue"
)

// The jobs that names mean.
func TestChoose(t *testing.T) {
	const run = "018f3b4c-9a2d-7def-8abc-123456789012"
	at := time.Unix(1e9, 0)
	job := func(id, task string) queue.Job {
		at = at.Add(-time.Second) // later calls make earlier jobs
		return queue.Job{ID: run + "." + id, Queue: "default", Workspace: "prod", Task: task, Run: run, Created: queue.TimeOf(at), Status: queue.Queued}
	}
	known := []queue.Job{job("aaaa1111", "train[2]"), job("aaaa2222", "train[1]"), job("bbbb1111", "test"), job("cccc1111", "test")}
	known = append(known, queue.Job{ID: "r.dddd1111", Queue: "gpu", Workspace: "dev", Task: "test", Run: "r", Status: queue.Queued})
	for _, test := range []struct {
		names   []string
		want    []string
		meaning int // of the error
	}{
		{nil, []string{"test", "test", "test", "train[1]", "train[2]"}, 0},
		{[]string{"prod.train[2]"}, []string{"train[2]"}, 0},
		{[]string{"prod.train"}, []string{"train[1]", "train[2]"}, 0},
		{[]string{"prod.t*", "prod.test"}, []string{"test", "test", "train[1]", "train[2]"}, 0},
		{[]string{"dev"}, []string{"test"}, 0},
		{[]string{run}, []string{"test", "test", "train[1]", "train[2]"}, 0},
		{[]string{run[:18]}, []string{"test", "test", "train[1]", "train[2]"}, 0},
		{[]string{"bbbb"}, []string{"test"}, 0},
		{[]string{"gpu/r.dd"}, []string{"test"}, 0},
		{[]string{"aaaa1"}, []string{"train[2]"}, 0},
		{[]string{"aaaa"}, nil, 2},
		{[]string{"bbb"}, nil, 0}, // too short
		{[]string{"prod.tes"}, nil, 0},
		{[]string{"prod", "nothing"}, nil, 0},
	} {
		got, err := queue.Choose(known, test.names)
		var unknown *queue.NameError
		if errors.As(err, &unknown) != (test.want == nil) || unknown != nil && unknown.Meaning != test.meaning {
			t.Errorf("%q: got error %v, want one: %v, of %d", test.names, err, test.want == nil, test.meaning)
		}
		if test.want != nil {
			want(t, fmt.Sprint(test.names), tasks(got), test.want)
		}
	}
}

// A task that has failed several times is returned once.
func TestChooseOfTheSameWork(t *testing.T) {
	dead := func(id, task string) queue.Job {
		return queue.Job{ID: id, Queue: "default", Workspace: "w", Task: task, TaskHash: "h", Status: queue.Failed}
	}
	got, err := queue.Choose([]queue.Job{dead("r2.late", "a"), dead("r1.early", "a"), dead("r1.other", "b")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "tasks", tasks(got), []string{"a", "b"})
	if got[0].ID != "r2.late" {
		t.Errorf("got %s, want the latest attempt", got[0].ID)
	}
}
