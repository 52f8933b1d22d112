package fs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"e3/internal/jobs/queue"
	"e3/internal/jobs/queue/queuetest"
	"e3/refstore"
	"e3/refstore/fs"
	"e3/refstore/refstoretest"
)

func TestConformance(t *testing.T) {
	t.Run("notify", func(t *testing.T) { conformance(t, fs.Options{}) })
	t.Run("poll", func(t *testing.T) { conformance(t, fs.Options{NoNotify: true, Poll: 5 * time.Millisecond}) })
}

func conformance(t *testing.T, o fs.Options) {
	for _, c := range refstoretest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			err := c.Run(t.Context(), func(context.Context) (refstore.Store, error) { return open(t, t.TempDir(), o), nil })
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
	for name, o := range map[string]fs.Options{
		"notify": {}, "poll": {NoNotify: true, Poll: 5 * time.Millisecond}, "bare jobs": {BareJobs: true},
	} {
		t.Run(name, func(t *testing.T) {
			queuetest.Run(t, func(t *testing.T) queue.Store {
				s := open(t, t.TempDir(), o)
				return queue.Store{Store: s, Files: s}
			})
		})
	}
}

// open opens a store that the test closes.
func open(t testing.TB, dir string, o fs.Options) *fs.Store {
	t.Helper()
	s, err := fs.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func job(id string) refstore.Key { return refstore.Key{Partition: "QUEUE/default", Sort: id} }
