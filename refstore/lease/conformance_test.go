package lease_test

import (
	"context"
	"testing"
	"time"

	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/dynamo"
	"e3/refstore/fs"
	"e3/refstore/lease"
	"e3/refstore/mem"
	"e3/refstore/postgres"
	"e3/refstore/refstoretest"
)

// leased is a store of records with leases only.
type leased struct {
	refstore.Store
	*lease.Leases
}

func TestConformance(t *testing.T) {
	stores := map[string]func(t *testing.T) refstore.Store{
		"mem":      func(*testing.T) refstore.Store { return mem.New() },
		"fs":       func(t *testing.T) refstore.Store { return openFS(t, t.TempDir()) },
		"postgres": openPostgres,
		"dynamo":   func(t *testing.T) refstore.Store { return openDynamo(t, testserver.Minidyn(t)) },
		// One request in ten is delivered twice.
		"dynamo behind a proxy that tries again": func(t *testing.T) refstore.Store {
			proxy := testserver.NewProxy(t, testserver.Minidyn(t))
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			proxy.Faults(seed, testserver.Rule{Fault: testserver.Double, Probability: 0.1})
			return openDynamo(t, proxy.URL())
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			for _, c := range refstoretest.HoldCases() {
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					err := c.Run(t.Context(), func(context.Context) (refstore.Store, error) {
						store := open(t)
						l := lease.New(store, lease.Options{})
						t.Cleanup(func() {
							if err := l.Close(); err != nil {
								t.Error(err)
							}
						})
						return leased{store, l}, nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// openPostgres opens a repository in a database of its own.
func openPostgres(t *testing.T) refstore.Store {
	o := postgres.Options{Address: testserver.Postgres(t), Repository: "repository", Conns: 4}
	if _, err := postgres.Init(t.Context(), o); err != nil {
		t.Fatal(err)
	}
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

// openDynamo opens a repository in a table of a server of its own.
func openDynamo(t *testing.T, endpoint string) refstore.Store {
	o := dynamo.Options{
		Config: testserver.Config(), Endpoint: endpoint, Table: testserver.Name(), Repository: "repository", Blobs: noBlobs{},
	}
	if _, err := dynamo.CreateTable(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s, err := dynamo.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openFS(t testing.TB, dir string) *fs.Store {
	t.Helper()
	s, err := fs.Open(dir, fs.Options{})
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
