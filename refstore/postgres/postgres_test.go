package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/internal/jobs/queue"
	"e3/internal/jobs/queue/queuetest"
	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/checked"
	"e3/refstore/internal/modeltest"
	"e3/refstore/postgres"
	"e3/refstore/refstoretest"
)

// database makes a database with the schema and returns its address.
func database(t testing.TB) string {
	t.Helper()
	url := testserver.Postgres(t)
	created, err := postgres.Init(t.Context(), postgres.Options{Address: url})
	if err != nil || !created {
		t.Fatalf("init: got %v and error %v, want a new schema", created, err)
	}
	return url
}

// options are those of a new repository.
func options(url string) postgres.Options {
	return postgres.Options{
		Address: url, Repository: strings.ReplaceAll(testserver.Name(), "-", "_"), Conns: 4, Attempt: time.Minute, Poll: 20 * time.Millisecond, Backoff: 2 * time.Millisecond,
	}
}

func open(t testing.TB, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(o)
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

func TestConformance(t *testing.T) {
	url := database(t)
	for _, c := range refstoretest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			err := c.Run(t.Context(), func(context.Context) (refstore.Store, error) {
				return open(t, options(url)), nil
			})
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// withSums is the store behind checksums.
type withSums struct {
	*checked.Records
	beneath
}

type beneath struct{ *postgres.Store }

func TestConformanceWithSums(t *testing.T) {
	url := database(t)
	for _, c := range refstoretest.Cases() {
		if c.Large && testing.Short() {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			err := c.Run(t.Context(), func(context.Context) (refstore.Store, error) {
				b := beneath{open(t, options(url))}
				return withSums{checked.New(b, true), b}, nil
			})
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
	url := database(t)
	t.Run("plain", func(t *testing.T) {
		queuetest.Run(t, func(t *testing.T) queue.Store {
			s := open(t, options(url))
			return queue.Store{Store: s, Batch: s}
		})
	})
	t.Run("with sums", func(t *testing.T) {
		queuetest.Run(t, func(t *testing.T) queue.Store {
			b := beneath{open(t, options(url))}
			return queue.Store{Store: withSums{checked.New(b, true), b}, Batch: checked.NewBatch(b)}
		})
	})
}

func TestModel(t *testing.T) {
	url := database(t)
	modeltest.Check(t, func(*rapid.T) modeltest.Store { return open(t, options(url)) })
}
