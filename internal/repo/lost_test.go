package repo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/host/process"
	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/objectstore/cached"
	"e3/objectstore/s3"
	"e3/refstore"
	"e3/refstore/lease"
	"e3/refstore/mem"
)

// visit opens a repository as another machine would, whose session lives for long unless it is ended.
func visit(t *testing.T, location string, o Options) *Repo {
	t.Helper()
	dir := t.TempDir()
	o.Getenv = func(name string) string {
		switch name {
		case CacheDirVariable, StateDirVariable:
			return filepath.Join(dir, name)
		case CacheSizeVariable:
			return ""
		}
		return os.Getenv(name)
	}
	r, err := Open(t.Context(), location, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() }) // one that was lost says so
	return r
}

// endSessions removes the sessions that there are: those whose they are have lost them, and do not know it.
func endSessions(t *testing.T, s refstore.Store) {
	t.Helper()
	n := 0
	for rec, err := range s.List(t.Context(), refstore.Query{Partition: lease.Kind + "/sessions"}) {
		if err == nil {
			err = s.Delete(t.Context(), rec.Key, rec.Version)
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n == 0 {
		t.Fatal("there is no session")
	}
}

// A process that was lost within a batch, and wakes up, may have written records that falsify proofs made meanwhile:
// the end of the batch ends them, though nothing else may be written any more.
func TestBatchOfWhoWasLost(t *testing.T) {
	credentials(t)
	dynamo, s3, ctx := testserver.Minidyn(t), testserver.GoFakeS3(t), t.Context()
	location := shared("a", dynamo, s3, "one")
	if _, err := Init(ctx, location, InitOptions{}); err != nil {
		t.Fatal(err)
	}
	sleeper, other := visit(t, location, Options{Lease: 5 * time.Minute}), visit(t, location, Options{Lease: 5 * time.Minute})
	end, err := executions.NewGeneration(sleeper.Records, sleeper.Records).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	theirs := executions.NewGeneration(other.Records, other.Records)
	read := func() string {
		t.Helper()
		value, quiet, err := theirs.Read(ctx)
		if err != nil || !quiet {
			t.Fatalf("the generation is %q, quiet %v, %v, want it quiet", value, quiet, err)
		}
		return value
	}
	endSessions(t, other.Records)
	during := read()
	end()
	if after := read(); after == during {
		t.Errorf("after the batch it is still %q", after)
	}
	_, err = sleeper.Records.Put(ctx, refstore.Record{Key: refstore.Key{Partition: "INDEX/other", Sort: "x"}, Value: []byte("late")})
	if !errors.Is(err, refstore.ErrLost) {
		t.Errorf("another record: got error %v, want ErrLost", err)
	}
}

// With locks of the kernel and objects in S3, a process that loses its session is told.
func TestFolderLosesSession(t *testing.T) {
	credentials(t)
	root, ctx := filepath.Join(t.TempDir(), DirName), t.Context()
	if _, err := Init(ctx, root, InitOptions{Objects: "s3://one/place?region=us-east-1&endpoint=" + testserver.GoFakeS3(t)}); err != nil {
		t.Fatal(err)
	}
	r := visit(t, root, Options{Lease: 5 * time.Minute})
	lessee, ok := r.Records.(refstore.Lessee)
	if !ok {
		t.Fatal("the records are no refstore.Lessee: a lost session cannot be reported")
	}
	if _, ok := r.Records.(refstore.Leased); ok {
		t.Error("its locks are taken for leases")
	}
	if _, err := r.Objects.PutBytes(ctx, []byte("data")); err != nil {
		t.Fatal(err)
	}
	if err := lessee.Held(); err != nil {
		t.Fatal(err)
	}
	record, stream := refstore.Key{Partition: "INDEX/other", Sort: "x"}, refstore.Key{Partition: "EVENTS/ws", Sort: "run"}
	version, err := r.Records.Put(ctx, refstore.Record{Key: record})
	if err == nil {
		err = r.Records.Append(ctx, stream, 0, []byte("one"))
	}
	if err != nil {
		t.Fatal(err)
	}
	endSessions(t, r.stores.local)
	if err := r.stores.leases.Confirm(ctx); !errors.Is(err, refstore.ErrLost) { // what the next renewal finds
		t.Errorf("got error %v, want ErrLost", err)
	}
	<-lessee.Lost()
	if err := lessee.Held(); !errors.Is(err, refstore.ErrLost) {
		t.Errorf("got error %v, want ErrLost", err)
	}
	put := func(_ refstore.Version, err error) error { return err }
	for name, err := range map[string]error{
		"put":      put(r.Records.Put(ctx, refstore.Record{Key: record, Version: version})),
		"put sync": put(r.Records.PutSync(ctx, refstore.Record{Key: record, Version: version})),
		"append":   r.Records.Append(ctx, stream, 3, []byte("two")),
		"cut":      r.Records.Cut(ctx, stream, 1),
		"seal":     r.Records.Seal(ctx, stream),
		"remove":   r.Records.Remove(ctx, stream),
		"delete":   r.Records.Delete(ctx, record, version),
	} {
		if !errors.Is(err, refstore.ErrLost) {
			t.Errorf("%s: got error %v, want ErrLost", name, err)
		}
	}
	if rec, err := r.Records.Get(ctx, record); err != nil || rec.Version != version {
		t.Errorf("the record: version %q, %v, want %q", rec.Version, err, version)
	}
	if info, err := r.Records.Size(ctx, stream); err != nil || info != (refstore.StreamInfo{Size: 3}) {
		t.Errorf("the stream: %+v, %v, want it as it was", info, err)
	}
}

// polled tells how often the condemned are asked for.
type polled struct {
	refstore.Store
	asked func(times int32)
	times atomic.Int32
}

func (p *polled) Get(ctx context.Context, k refstore.Key, fields ...string) (refstore.Record, error) {
	if k.Partition == lease.Kind+"/condemned" {
		p.asked(p.times.Add(1))
	}
	return p.Store.Get(ctx, k, fields...)
}

// A deletion whose first try was not answered counts as done only once that cannot arrive any more: a new put of the
// object waits until then, whether or not a later try was answered.
func TestLateDeletion(t *testing.T) {
	const settle = 10 * time.Minute
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	behind := testserver.NewProxy(t, testserver.GoFakeS3At(t, now))
	proxy := testserver.NewProxy(t, behind.URL())
	bucket := s3.Open(s3.Options{
		Config: testserver.Config(), Endpoint: proxy.URL(), Bucket: testserver.Name(), PathStyle: true, Backoff: time.Millisecond, Patience: 300 * time.Millisecond,
	})
	if _, err := bucket.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	records := mem.New()
	process := func(records refstore.Store) (*cached.Store, *lease.Leases) {
		t.Helper()
		leases := lease.New(records, lease.Options{
			TTL: 5 * time.Minute, Settle: settle, Clock: bucket.Now, Alive: func(process.ID) (alive, known bool) { return false, false },
		})
		t.Cleanup(func() { leases.Close() })
		local, err := objectstore.OpenDir(filepath.Join(t.TempDir(), "objects"), objectstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := cached.Open(cached.Options{Local: local, Remote: bucket, Guard: guard{leases, nil}})
		if err != nil {
			t.Fatal(err)
		}
		return s, leases
	}
	first, leases := process(records)
	h, err := first.PutBytes(t.Context(), []byte("data"))
	if err != nil {
		t.Fatal(err)
	}
	if err := leases.Close(); err != nil {
		t.Fatal(err)
	}

	collector, collecting := process(records)
	proxy.Faults(1, testserver.Rule{Op: "DeleteObjects", Fault: testserver.Hang, Times: 1})
	if gone, err := collector.DeleteBefore(t.Context(), h, now().Add(time.Hour)); !gone || err != nil {
		t.Fatalf("delete: got %v, %v, want that it did", gone, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	waiting := &polled{Store: records, asked: func(times int32) {
		if times == 3 { // it has waited twice
			cancel()
		}
	}}
	writer, _ := process(waiting)
	if _, err := writer.PutBytes(ctx, []byte("data")); !errors.Is(err, context.Canceled) {
		t.Errorf("put it anew: got error %v, want it to wait", err)
	}

	arrived := make(chan struct{}, 1)
	behind.Watch(func(c testserver.Call) {
		if c.Operation == "DeleteObjects" {
			arrived <- struct{}{}
		}
	})
	proxy.Release()
	<-arrived
	if err := collecting.Close(); err != nil {
		t.Fatal(err)
	}
	ahead.Add(int64(settle + time.Minute))
	writer, _ = process(records)
	if _, err := writer.PutBytes(t.Context(), []byte("data")); err != nil {
		t.Fatalf("put it anew when that has settled: %v", err)
	}
	if _, err := bucket.Stat(t.Context(), h); err != nil {
		t.Errorf("what was stored anew: %v", err)
	}
}
