package mem_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"e3/internal/jobs/queue"
	"e3/internal/jobs/queue/queuetest"
	"e3/refstore"
	"e3/refstore/internal/modeltest"
	"e3/refstore/mem"
	"e3/refstore/refstoretest"
)

func TestConformance(t *testing.T) {
	for _, c := range refstoretest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			err := c.Run(t.Context(), func(context.Context) (refstore.Store, error) { return mem.New(), nil })
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestQueues(t *testing.T) {
	queuetest.Run(t, func(*testing.T) queue.Store {
		s := mem.New()
		return queue.Store{Store: s, Files: s, Batch: s}
	})
}

func TestModel(t *testing.T) {
	modeltest.Check(t, func(*rapid.T) modeltest.Store { return mem.New() })
}

// TestSynctest shows that what waits on the store lets a bubble's clock advance.
func TestSynctest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		key := refstore.Key{Partition: "EVENTS/prod", Sort: "run"}
		r, err := s.Follow(t.Context(), key, 0)
		if err != nil {
			t.Fatal(err)
		}
		woken, err := s.Watch(t.Context(), "QUEUE/default")
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		time.AfterFunc(time.Hour, func() {
			_, err := s.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: "QUEUE/default", Sort: "a"}})
			if err := errors.Join(err, s.Append(t.Context(), key, 0, []byte("x")), s.Seal(t.Context(), key)); err != nil {
				t.Error(err)
			}
		})
		data, err := io.ReadAll(r)
		if err != nil || string(data) != "x" {
			t.Errorf("follow: got %q, %v, want %q", data, err, "x")
		}
		<-woken
		if got := time.Since(start); got != time.Hour {
			t.Errorf("woken after %v, want 1h", got)
		}
	})
}
