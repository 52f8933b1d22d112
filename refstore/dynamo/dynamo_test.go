package dynamo_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"pgregory.net/rapid"

	"e3/internal/jobs/queue"
	"e3/internal/jobs/queue/queuetest"
	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/checked"
	"e3/refstore/dynamo"
	"e3/refstore/internal/modeltest"
	"e3/refstore/refstoretest"
)

// blobs keeps blobs in memory.
type blobs struct {
	mu    sync.Mutex
	now   time.Time
	data  map[string][]byte
	at    map[string]time.Time
	calls map[string]int
}

func newBlobs() *blobs {
	return &blobs{now: time.Now(), data: map[string][]byte{}, at: map[string]time.Time{}, calls: map[string]int{}}
}

func (b *blobs) PutBlob(ctx context.Context, name string, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls["put"]++
	if _, there := b.data[name]; there {
		return fmt.Errorf("%s is put twice", name)
	}
	b.data[name], b.at[name] = bytes.Clone(data), b.now
	return ctx.Err()
}

func (b *blobs) OpenBlob(_ context.Context, name string, offset int64) (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls["open"]++
	data, there := b.data[name]
	if !there {
		return nil, fmt.Errorf("blob %s: %w", name, refstore.ErrNotFound)
	}
	return io.NopCloser(bytes.NewReader(data[min(offset, int64(len(data))):])), nil
}

func (b *blobs) DeleteBlob(_ context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls["delete"]++
	delete(b.data, name)
	return nil
}

func (b *blobs) ListBlobs(_ context.Context, prefix string) iter.Seq2[dynamo.Blob, error] {
	return func(yield func(dynamo.Blob, error) bool) {
		for _, name := range b.names() {
			b.mu.Lock()
			blob := dynamo.Blob{Name: name, Size: int64(len(b.data[name])), Modified: b.at[name]}
			b.mu.Unlock()
			if strings.HasPrefix(name, prefix) && !yield(blob, nil) {
				return
			}
		}
	}
}

func (b *blobs) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.data))
}

// A server is a DynamoDB with the way to reach it.
type server struct {
	config   aws.Config
	endpoint func(t testing.TB) string
	table    string // the one table for everything; "": each store has its own
}

// minidyn starts a server for each store: it cannot make a table during other requests.
func minidyn() server {
	return server{config: testserver.Config(), endpoint: func(t testing.TB) string { return testserver.Minidyn(t) }}
}

func dynalite(t testing.TB) server {
	endpoint := testserver.Dynalite(t)
	return server{config: testserver.Config(), endpoint: func(testing.TB) string { return endpoint }}
}

// onServers runs a test for two kinds of servers, and for the one that the environment names.
func onServers(t *testing.T, f func(t *testing.T, s server)) {
	t.Run("minidyn", func(t *testing.T) { f(t, minidyn()) })
	t.Run("dynalite", func(t *testing.T) { f(t, dynalite(t)) })
	if endpoint := os.Getenv("E3_TEST_DYNAMODB_ENDPOINT"); endpoint != "" {
		t.Run("environment", func(t *testing.T) {
			c, err := config.LoadDefaultConfig(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			f(t, server{
				config: c, endpoint: func(testing.TB) string { return endpoint },
				table: cmp.Or(os.Getenv("E3_TEST_DYNAMODB_TABLE"), "e3-test"),
			})
		})
	}
}

// options returns the options of a new repository on the server, in a new table or in the existing one.
func (s server) options(t testing.TB) dynamo.Options {
	t.Helper()
	o := dynamo.Options{
		Config: s.config, Endpoint: s.endpoint(t), Table: s.table, Repository: strings.ReplaceAll(testserver.Name(), "-", "_"), Blobs: newBlobs(),
		Poll: 20 * time.Millisecond, Watch: 20 * time.Millisecond, Backoff: 2 * time.Millisecond,
	}
	if o.Table == "" {
		o.Table = testserver.Name()
	}
	if _, err := dynamo.CreateTable(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func open(t testing.TB, o dynamo.Options) *dynamo.Store {
	t.Helper()
	s, err := dynamo.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		for _, c := range refstoretest.Cases() {
			for name, spread := range map[string]bool{c.Name: false, c.Name + ", spread": true} {
				if spread && c.Large && testing.Short() {
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					err := c.Run(t.Context(), func(context.Context) (refstore.Store, error) {
						o := srv.options(t)
						o.Spread = spread
						return open(t, o), nil
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
	})
}

func TestQueues(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		for name, spread := range map[string]bool{"one": false, "spread": true} {
			t.Run(name, func(t *testing.T) {
				queuetest.Run(t, func(t *testing.T) queue.Store {
					o := srv.options(t)
					o.Spread = spread
					s := open(t, o)
					return queue.Store{Store: s, Batch: s}
				})
			})
		}
	})
}

// TestSpreadTasks: tasks are listed in order from 16 partition keys, and each is found in its own.
func TestSpreadTasks(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		o := srv.options(t)
		o.Spread = true
		s := open(t, o)
		o.Spread = false
		plain := open(t, o)
		var tasks []string
		for _, first := range "-0123456789A_abcdefgz" {
			tasks = append(tasks, string(first)+"1", string(first)+"2")
		}
		for _, task := range tasks {
			if _, err := s.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: "EXECUTION/" + task + "/inputs", Sort: "id"}, Value: []byte("v")}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get(t.Context(), refstore.Key{Partition: "TASKS", Sort: task}); err != nil {
				t.Errorf("task %s: %v", task, err)
			}
		}
		slices.Sort(tasks)
		back := slices.Clone(tasks)
		slices.Reverse(back)
		for name, q := range map[string]struct {
			refstore.Query
			want []string
		}{
			"all":        {refstore.Query{}, tasks},
			"backwards":  {refstore.Query{Descending: true}, back},
			"some":       {refstore.Query{Limit: 5}, tasks[:5]},
			"the rest":   {refstore.Query{After: tasks[20]}, tasks[21:]},
			"before one": {refstore.Query{After: back[20], Descending: true, Limit: 3}, back[21:24]},
			"a prefix":   {refstore.Query{Prefix: "b"}, []string{"b1", "b2"}},
		} {
			var got []string
			q.Partition = "TASKS"
			for r, err := range s.List(t.Context(), q.Query) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, r.Key.Sort)
			}
			if !slices.Equal(got, q.want) {
				t.Errorf("%s: got %q, want %q", name, got, q.want)
			}
		}
		for r := range plain.List(t.Context(), refstore.Query{Partition: "TASKS"}) {
			t.Errorf("task %s is in the partition key of a store that does not spread", r.Key.Sort)
		}
	})
}

// withSums is the store behind checksums.
type withSums struct {
	*checked.Records
	beneath
}

type beneath struct{ *dynamo.Store }

func (b beneath) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return b.Put(ctx, r)
}

func TestConformanceWithSums(t *testing.T) {
	srv := minidyn()
	for _, c := range refstoretest.Cases() {
		if c.Large && testing.Short() {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			err := c.Run(t.Context(), func(context.Context) (refstore.Store, error) {
				b := beneath{open(t, srv.options(t))}
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

func TestQueuesWithSums(t *testing.T) {
	srv := minidyn()
	queuetest.Run(t, func(t *testing.T) queue.Store {
		b := beneath{open(t, srv.options(t))}
		return queue.Store{Store: withSums{checked.New(b, true), b}, Batch: checked.NewBatch(b)}
	})
}

func TestModel(t *testing.T) {
	modeltest.Check(t, func(*rapid.T) modeltest.Store { return open(t, minidyn().options(t)) })
}

// TestBatchAtItsLimit: of a batch, only writes to the partition key that takes no more are repeated.
func TestBatchAtItsLimit(t *testing.T) {
	meter := testserver.NewMeter(t, testserver.Minidyn(t))
	o := server{config: testserver.Config(), endpoint: func(testing.TB) string { return meter.URL() }}.options(t)
	s := open(t, o)
	meter.Limit(testserver.Units{Reads: 1000, Writes: 100})
	for range 3 { // the first two take what there is at once
		var puts []refstore.Record
		for n := range 24 {
			puts = append(puts, refstore.Record{Key: refstore.Key{Partition: "QUEUE/hot", Sort: fmt.Sprint(n)}, Value: make([]byte, 3<<10)})
		}
		puts = append(puts, refstore.Record{Key: refstore.Key{Partition: "QUEUE/cold", Sort: "1"}, Value: []byte("v")})
		if err := s.WriteBatch(t.Context(), puts, nil); err != nil {
			t.Fatal(err)
		}
	}
	used, throttled := meter.Used()
	if throttled == 0 {
		t.Error("nothing was refused")
	}
	for partition, want := range map[string]float64{"hot": 3 * 24 * 4, "cold": 3} {
		if got := used["QUEUE/"+o.Repository+"/"+partition].Writes; got != want {
			t.Errorf("%s has taken %v write units, want %v", partition, got, want)
		}
	}
}
