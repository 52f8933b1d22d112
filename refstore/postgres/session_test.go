package postgres_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/postgres"
)

// TestFence: what a process writes has no effect once its session is marked dead, and the mark waits for writes that are
// under way.
func TestFence(t *testing.T) {
	address := database(t)
	o := options(address)
	plain := open(t, o)
	o.Patience = 200 * time.Millisecond
	o.Permit = func(context.Context, string) (string, error) { return "me", nil }
	fenced := open(t, o)
	session := refstore.Key{Partition: "LEASE/sessions", Sort: "me"}
	v, err := plain.Put(t.Context(), refstore.Record{Key: session, Value: []byte(`{"state":"alive"}`)})
	if err != nil {
		t.Fatal(err)
	}
	key, stream := refstore.Key{Partition: "INDEX/test", Sort: "a"}, refstore.Key{Partition: "EVENTS/w", Sort: "a"}
	if _, err := fenced.Put(t.Context(), refstore.Record{Key: key, Value: []byte("1")}); err != nil {
		t.Fatalf("put while the session is alive: %v", err)
	}

	// A write of the session that hangs before its end.
	c, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	for _, text := range []string{"BEGIN", "SELECT FROM e3.records WHERE partition = 'LEASE/sessions'::bytea FOR SHARE"} {
		if _, err := c.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	marked := make(chan error, 1)
	go func() {
		_, err := plain.Put(t.Context(), refstore.Record{Key: session, Value: []byte(`{"state":"dead"}`), Version: v})
		marked <- err
	}()
	for waits := 0; waits == 0; { // until the mark waits for the lock
		if err := c.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waits); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-marked:
			t.Fatalf("the session was marked dead (%v) while a write of it was under way", err)
		default:
		}
	}
	if _, err := c.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-marked; err != nil {
		t.Fatal(err)
	}

	for what, write := range map[string]func() error{
		"put": func() error {
			_, err := fenced.Put(t.Context(), refstore.Record{Key: key, Value: []byte("2")})
			return err
		},
		"create": func() error {
			_, err := fenced.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: "INDEX/test", Sort: "b"}})
			return err
		},
		"batch": func() error {
			return fenced.WriteBatch(t.Context(), []refstore.Record{{Key: refstore.Key{Partition: "QUEUE/a", Sort: "b"}}}, nil)
		},
		"append": func() error { return fenced.Append(t.Context(), stream, 0, []byte("x")) },
		"seal":   func() error { return fenced.Seal(t.Context(), stream) },
	} {
		if err := write(); !errors.Is(err, refstore.ErrLost) {
			t.Errorf("%s of a dead session: got error %v, want ErrLost", what, err)
		}
	}
	for r, err := range plain.List(t.Context(), refstore.Query{Partition: "INDEX/test"}) {
		if err != nil || string(r.Value) != "1" || r.Key != key {
			t.Errorf("a dead session has written %+v, %v", r, err)
		}
	}
	if _, err := plain.Size(t.Context(), stream); !errors.Is(err, refstore.ErrNotFound) {
		t.Errorf("a dead session has made a stream: %v", err)
	}
}

// TestRepositoriesApart: of two repositories in a database, none sees the other's records, streams and lists.
func TestRepositoriesApart(t *testing.T) {
	address := database(t)
	a, b := open(t, options(address)), open(t, options(address))
	execution := refstore.Key{Partition: "EXECUTION/task/inputs", Sort: "id"}
	for _, key := range []refstore.Key{execution, {Partition: "DATAFLOW/main", Sort: "run"}} {
		if _, err := a.Put(t.Context(), refstore.Record{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Append(t.Context(), refstore.Key{Partition: "EVENTS/main", Sort: "run"}, 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	for s, want := range map[*postgres.Store]int{a: 1, b: 0} {
		for _, q := range []refstore.Query{
			{Partition: "TASKS"}, {Partition: "INPUTS/task"}, {Partition: "RUNS"}, {Partition: "EXECUTION/task/inputs"}, {Partition: "TASKS", Descending: true},
		} {
			n := 0
			for _, err := range s.List(t.Context(), q) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			if n != want {
				t.Errorf("%+v: got %d records, want %d", q, n, want)
			}
		}
		found := 0
		for _, err := range s.FindExecutions(t.Context(), "i") {
			if err != nil {
				t.Fatal(err)
			}
			found++
		}
		for _, err := range s.ExecutionsAfter(t.Context(), "task", "") {
			if err != nil {
				t.Fatal(err)
			}
			found++
		}
		for _, err := range s.ListPartitions(t.Context(), "EVENTS") {
			if err != nil {
				t.Fatal(err)
			}
			found++
		}
		if found != 3*want {
			t.Errorf("found %d things, want %d", found, 3*want)
		}
	}
}

// TestTold: a write by another process wakes a watch at once, and not only when it looks again.
func TestTold(t *testing.T) {
	address := database(t)
	o := options(address)
	o.Poll = time.Hour
	a, b := open(t, o), open(t, o)
	woken, err := a.Watch(t.Context(), "QUEUE/a")
	if err != nil {
		t.Fatal(err)
	}
	<-woken // it listens
	for i := range 20 {
		if err := b.WriteBatch(t.Context(), []refstore.Record{{Key: refstore.Key{Partition: "QUEUE/a", Sort: "k" + strings.Repeat("x", i)}}}, nil); err != nil {
			t.Fatal(err)
		}
		<-woken
	}
}

// TestPooler: behind pgbouncer, which gives each statement another connection, everything works; watches look from time to
// time, as they are not told.
func TestPooler(t *testing.T) {
	suite.Thorough(t)
	direct := database(t)
	address := testserver.PgBouncer(t, direct)
	o := options(address)
	o.Conns = 6
	a, b := open(t, o), open(t, o)
	woken, err := a.Watch(t.Context(), "QUEUE/a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: "QUEUE/a", Sort: "k"}}); err != nil {
		t.Fatal(err)
	}
	<-woken
	interrupted(t, address, func() {})
	if err := a.Append(t.Context(), refstore.Key{Partition: "EVENTS/w", Sort: "r"}, 0, []byte("x")); err != nil {
		t.Error(err)
	}
}

// TestTLS: a certificate that the given authority has signed is taken, and no other.
func TestTLS(t *testing.T) {
	suite.Thorough(t)
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("openssl", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("no certificates: %v: %s (get openssl with: apt install openssl)", err, out)
		}
	}
	for _, ca := range []string{"ca", "other"} {
		run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN="+ca, "-days", "1", "-keyout", ca+".key", "-out", ca+".pem")
	}
	if err := os.WriteFile(filepath.Join(dir, "names"), []byte("subjectAltName=IP:127.0.0.1"), 0o600); err != nil {
		t.Fatal(err)
	}
	run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=db", "-keyout", "server.key", "-out", "server.csr")
	run("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1", "-extfile", "names", "-out", "server.crt")
	s := testserver.NewPostgres(t)
	s.Install(t, filepath.Join(dir, "server.key"), filepath.Join(dir, "server.crt"))
	address := strings.Replace(s.Database(t), "sslmode=disable", "sslmode=verify-full&sslrootcert=", 1)
	if _, err := postgres.Init(t.Context(), postgres.Options{Address: address + filepath.Join(dir, "ca.pem")}); err != nil {
		t.Errorf("with the authority of the certificate: %v", err)
	}
	began := time.Now()
	_, err := postgres.Init(t.Context(), postgres.Options{Address: address + filepath.Join(dir, "other.pem")})
	if err == nil || !strings.Contains(err.Error(), "unknown authority") || strings.Contains(err.Error(), "gave up") {
		t.Errorf("with another authority: got error %v after %v, want one about the authority, at once", err, time.Since(began))
	}
}

// TestReadOnly: a replica can be read, and says at once that it cannot be written.
func TestReadOnly(t *testing.T) {
	suite.Thorough(t)
	first := testserver.NewPostgres(t)
	address := first.Database(t)
	if _, err := postgres.Init(t.Context(), postgres.Options{Address: address}); err != nil {
		t.Fatal(err)
	}
	second := first.Replica(t)
	o := options(strings.Replace(address, first.Address(), second.Address(), 1))
	s := open(t, o)
	if _, err := s.Get(t.Context(), refstore.Key{Partition: "INDEX/a", Sort: "a"}); !errors.Is(err, refstore.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if _, err := s.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: "INDEX/a", Sort: "a"}}); !errors.Is(err, refstore.ErrReadOnly) {
		t.Errorf("put: got error %v, want ErrReadOnly", err)
	}
}
