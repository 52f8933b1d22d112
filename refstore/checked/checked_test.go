package checked_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/internal/jobs/queue"
	"e3/internal/jobs/queue/queuetest"
	"e3/refstore"
	"e3/refstore/checked"
	"e3/refstore/fs"
	"e3/refstore/internal/modeltest"
	"e3/refstore/mem"
	"e3/refstore/refstoretest"
)

// In memory, as in DynamoDB, value and fields are written together, and writes are durable.
type inMemory struct {
	*checked.Records
	rest
}

type rest struct{ *mem.Store }

type inFolder struct {
	*checked.Records
	restOfFolder
}

type restOfFolder struct{ *fs.Store }

func openMem() refstore.Store {
	s := mem.New()
	return inMemory{checked.New(s, true), rest{s}}
}

// openFiles opens a store in a folder.
func openFiles(t testing.TB, dir string) *fs.Store {
	t.Helper()
	s, err := fs.Open(dir, fs.Options{Poll: 5 * time.Millisecond})
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

func openFolder(t testing.TB) inFolder {
	s := openFiles(t, t.TempDir())
	return inFolder{checked.New(s, false), restOfFolder{s}}
}

func TestConformance(t *testing.T) {
	conforms(t, "memory", func(testing.TB) refstore.Store { return openMem() })
	conforms(t, "folder", func(t testing.TB) refstore.Store { return openFolder(t) })
}

func conforms(t *testing.T, name string, open func(testing.TB) refstore.Store) {
	for _, c := range refstoretest.Cases() {
		t.Run(name+"/"+c.Name, func(t *testing.T) {
			t.Parallel()
			err := c.Run(t.Context(), func(context.Context) (refstore.Store, error) { return open(t), nil })
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skipf("these records have no watcher or streams of their own (%v): run the suite of the store below", err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestQueues(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		queuetest.Run(t, func(*testing.T) queue.Store {
			s := openMem().(inMemory)
			return queue.Store{Store: s, Files: checked.NewFiles(s.rest), Batch: checked.NewBatch(s.rest)}
		})
	})
	t.Run("folder", func(t *testing.T) {
		queuetest.Run(t, func(t *testing.T) queue.Store {
			s := openFolder(t)
			return queue.Store{Store: s, Files: checked.NewFiles(s.Store)}
		})
	})
}

func TestModelInMemory(t *testing.T) {
	modeltest.Check(t, func(*rapid.T) modeltest.Store { return openMem().(inMemory) })
}

func TestModelInFolder(t *testing.T) {
	modeltest.Check(t, func(*rapid.T) modeltest.Store { return openFolder(t) })
}
