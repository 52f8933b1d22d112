package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"e3/internal/testing/linear"
	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/objectstore/s3"
	"e3/refstore"
	"e3/refstore/dynamo"
)

// bucketBlobs are blobs in S3.
type bucketBlobs struct{ bucket *s3.Bucket }

func (b bucketBlobs) PutBlob(ctx context.Context, name string, data []byte) error {
	return b.bucket.PutBlob(ctx, name, data)
}

func (b bucketBlobs) DeleteBlob(ctx context.Context, name string) error {
	return b.bucket.DeleteBlob(ctx, name)
}

func (b bucketBlobs) OpenBlob(ctx context.Context, name string, offset int64) (io.ReadCloser, error) {
	r, err := b.bucket.OpenBlob(ctx, name, offset)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", refstore.ErrNotFound, err)
	}
	return r, err
}

func (b bucketBlobs) ListBlobs(ctx context.Context, prefix string) iter.Seq2[dynamo.Blob, error] {
	return func(yield func(dynamo.Blob, error) bool) {
		for blob, err := range b.bucket.ListBlobs(ctx, prefix) {
			if !yield(dynamo.Blob{Name: blob.Name, Size: blob.Size, Modified: blob.Time}, err) {
				return
			}
		}
	}
}

// faultyServers are shared by the schedules of a test.
type faultyServers struct{ tables, objects, bucket string }

func startServers(t *testing.T, tables func(testserver.TB) string) faultyServers {
	t.Helper()
	s := faultyServers{tables: tables(t), objects: testserver.GoFakeS3(t), bucket: testserver.Name()}
	b := s3.Open(s3.Options{Config: testserver.Config(), Endpoint: s.objects, Bucket: s.bucket, PathStyle: true})
	if _, err := b.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// table makes a new one.
func (s faultyServers) table(t *testing.T, ctx context.Context) string {
	t.Helper()
	name := testserver.Name()
	if _, err := dynamo.CreateTable(ctx, dynamo.Options{Config: testserver.Config(), Endpoint: s.tables, Table: name}); err != nil {
		t.Error(err)
	}
	return name
}

// client returns a store of one of several processes, with randomly bad connections to the servers. tries counts the
// requests that put items. The requests of a patient client almost always get an answer in the end.
func (s faultyServers) client(t *testing.T, random *rand.Rand, table string, patient bool, tries *atomic.Int64) (*dynamo.Store, []*testserver.Proxy) {
	t.Helper()
	proxies := []*testserver.Proxy{testserver.NewProxy(t, s.tables), testserver.NewProxy(t, s.objects)}
	for _, p := range proxies {
		rules := testserver.Weather(random, random.Float64()*0.7, 20*time.Millisecond)
		if !patient {
			rules = append(rules, testserver.Rule{Fault: testserver.Hang, Probability: random.Float64() * 0.02})
		}
		p.Faults(random.Uint64(), rules...)
	}
	attempt := 60 * time.Millisecond
	if patient {
		attempt = 5 * time.Second
	}
	return s.open(t, table, proxies[0].URL(), proxies[1].URL(), attempt, func(operation string, _ float64) {
		if operation == "PutItem" {
			tries.Add(1)
		}
	}), proxies
}

func (s faultyServers) open(t *testing.T, table, tables, objects string, attempt time.Duration, observe func(string, float64)) *dynamo.Store {
	t.Helper()
	bucket := s3.Open(s3.Options{
		Config: testserver.Config(), Endpoint: objects, Bucket: s.bucket, Prefix: table, PathStyle: true,
		Backoff: time.Millisecond, Attempts: 6, Patience: 2 * attempt,
	})
	store, err := dynamo.Open(dynamo.Options{
		Config: testserver.Config(), Endpoint: tables, Table: table, Repository: "repository", Blobs: bucketBlobs{bucket},
		Attempt: attempt, Patience: 4 * attempt, Backoff: time.Millisecond, Observe: observe,
	})
	if err != nil {
		t.Error(err)
	}
	return store
}

// disturb interrupts proxies, restores them, and releases hanging requests, until ctx ends.
func disturb(ctx context.Context, random *rand.Rand, patient bool, proxies []*testserver.Proxy) {
	for {
		select {
		case <-ctx.Done():
			for _, p := range proxies {
				p.Restore()
				p.Release()
			}
			return
		case <-time.After(time.Duration(random.Int64N(int64(60 * time.Millisecond)))):
		}
		switch p := proxies[random.IntN(len(proxies))]; random.IntN(8) {
		case 0:
			if !patient {
				p.Cut()
			}
		case 1:
			p.Refuse()
		case 2, 3:
			p.Restore()
		default:
			p.Release()
		}
	}
}

const clients = 4

// concurrently runs clients on bad connections until they are done, and returns their table. Each has its own source of
// random numbers.
func concurrently(t *testing.T, ctx context.Context, servers faultyServers, random *rand.Rand, patient bool, work func(ctx context.Context, client int, random *rand.Rand, s *dynamo.Store, tries *atomic.Int64)) (table string) {
	table = servers.table(t, ctx)
	var all []*testserver.Proxy
	var group, chaos sync.WaitGroup
	disturbed, stop := context.WithCancel(ctx)
	for client := range clients {
		tries := new(atomic.Int64)
		store, proxies := servers.client(t, random, table, patient, tries)
		all = append(all, proxies...)
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		group.Go(func() { work(ctx, client, own, store, tries) })
	}
	chance := rand.New(rand.NewPCG(random.Uint64(), 0))
	chaos.Go(func() { disturb(disturbed, chance, patient, all) })
	group.Wait()
	stop()
	chaos.Wait()
	return table
}

// result is the outcome of a write.
type result string

const (
	done     result = "done"
	conflict result = "conflict"
	missing  result = "not found"
	doubtful result = "unknown"
)

func resultOf(err error) result {
	switch {
	case err == nil:
		return done
	case errors.Is(err, refstore.ErrConflict):
		return conflict
	case errors.Is(err, refstore.ErrNotFound):
		return missing
	}
	return doubtful
}

// Operations on a record. Each value that is put has a unique number; "" is no record.
type (
	getRecord    struct{ key string }
	putRecord    struct{ key, replaces, value string }
	deleteRecord struct{ key, value string }
	// recreateRecord is a late attempt of a creation that has already taken effect: it arrives after the deletion of
	// the record. Its output is the number of further attempts.
	recreateRecord struct{ key, value string }
)

// registers is the model of a record, a register with compare-and-swap.
var registers = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		switch in := input.(type) {
		case getRecord:
			return output == doubtful || output == "value "+state.(string), state
		case putRecord:
			fits := state == in.replaces
			switch output {
			case done:
				return fits, in.value
			case conflict:
				return !fits, state
			case doubtful:
				if fits {
					return true, in.value
				}
				return true, state
			}
		case recreateRecord:
			if state == "" {
				return true, in.value
			}
			return true, state
		case deleteRecord:
			fits := state == in.value
			switch output {
			case done:
				// A delete whose answer was lost counts as successful if the record is gone.
				return fits || state == "", ""
			case conflict:
				return !fits && state != "", state
			case missing:
				return state == "", state
			case doubtful:
				if fits {
					return true, ""
				}
				return true, state
			}
		}
		return false, state
	},
}

// versions checks that each version of a key belongs to one value.
type versions struct {
	mu   sync.Mutex
	seen map[string]string
}

func (v *versions) note(t *testing.T, key string, version refstore.Version, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	name := key + " " + string(version)
	if other, ok := v.seen[name]; ok && other != value {
		t.Errorf("%s: version %q is of %s and of %s", key, version, other, value)
	}
	v.seen[name] = value
}

// number is the beginning of a value; the rest has a random length, often too long for an item.
func number(value []byte) string {
	text, _, _ := strings.Cut(string(value), " ")
	return text
}

// overServers runs schedules on both DynamoDB servers, fewer on the slow one.
func overServers(t *testing.T, run func(t *testing.T, ctx context.Context, servers faultyServers, random *rand.Rand, h *linear.History)) {
	for _, server := range []struct {
		name  string
		start func(testserver.TB) string
		every uint64
	}{
		{"minidyn", testserver.Minidyn, 1},
		{"dynalite", testserver.Dynalite, 5},
	} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			servers := startServers(t, server.start)
			linear.Schedules(t, server.every, time.Minute, func(t *testing.T, ctx context.Context, random *rand.Rand, h *linear.History) {
				run(t, ctx, servers, random, h)
			})
		})
	}
}

func TestRecordsUnderFaults(t *testing.T) {
	overServers(t, func(t *testing.T, ctx context.Context, servers faultyServers, random *rand.Rand, h *linear.History) {
		known := &versions{seen: map[string]string{}}
		table := concurrently(t, ctx, servers, random, false, func(ctx context.Context, client int, random *rand.Rand, s *dynamo.Store, tries *atomic.Int64) {
			useRecords(t, ctx, client, random, s, tries, h, known)
		})
		reader := servers.open(t, table, servers.tables, servers.objects, 10*time.Second, nil)
		for _, name := range registerNames {
			if _, _, ok := get(ctx, clients, reader, h, name); !ok {
				t.Errorf("register %s cannot be read", name)
				return
			}
		}
		linear.Check(t, resolved(h.Operations()), registers, func(input any) string {
			switch in := input.(type) {
			case getRecord:
				return in.key
			case putRecord:
				return in.key
			case recreateRecord:
				return in.key
			}
			return input.(deleteRecord).key
		})
	})
}

var registerNames = []string{"0", "1"}

func register(name string) refstore.Key { return refstore.Key{Partition: "REGISTER", Sort: name} }

// resolved leaves out operations without an effect, including writes of unknown outcome that did not happen, and bounds
// the end of those that did by the first read of their value. A value that was never read, and did not exist at the
// end, was never written: no client knew its version to replace or remove it.
func resolved(ops []porcupine.Operation) []porcupine.Operation {
	seen := map[string]int64{} // by key and value: the latest time at which it must have existed
	for _, op := range ops {
		if in, ok := op.Input.(getRecord); ok && op.Output != doubtful {
			name := in.key + " " + op.Output.(string)
			if at, ok := seen[name]; !ok || op.Return < at {
				seen[name] = op.Return
			}
		}
	}
	// Each occurrence of a value is either replaced or deleted by a client that knows its version, or exists at the
	// end. This bounds the number of its creations, and their times.
	ends, created := map[string][]int64{}, map[string]bool{} // key and value
	ended := func(key, value string, op porcupine.Operation) {
		if op.Output == done || op.Output == doubtful {
			name := key + " value " + value
			ends[name] = append(ends[name], op.Return)
		}
	}
	for _, op := range ops {
		switch in := op.Input.(type) {
		case getRecord:
			if op.ClientId == clients { // reads at the end
				name := in.key + " " + op.Output.(string)
				ends[name] = append(ends[name], op.Return)
			}
		case putRecord:
			ended(in.key, in.replaces, op)
			created[in.key+" value "+in.value] = op.Output == done
		case deleteRecord:
			ended(in.key, in.value, op)
		}
	}
	var left []porcupine.Operation
	for _, op := range ops {
		switch in := op.Input.(type) {
		case getRecord:
			if op.Output == doubtful {
				continue
			}
		case recreateRecord:
			// The creation itself accounts for one of them, unless it had no answer.
			times := ends[in.key+" value "+in.value]
			most := len(times)
			if created[in.key+" value "+in.value] {
				most--
			}
			for range min(op.Output.(int), most) {
				op.Return = max(slices.Max(times), op.Call)
				left = append(left, op)
			}
			continue
		case putRecord:
			if op.Output == doubtful {
				at, there := seen[in.key+" value "+in.value]
				if !there {
					continue
				}
				op.Output, op.Return = done, max(at, op.Call)
			}
		}
		left = append(left, op)
	}
	return left
}

// get reads a record and returns its value's number and its version, both "" if there is none.
func get(ctx context.Context, client int, s *dynamo.Store, h *linear.History, name string) (value string, version refstore.Version, ok bool) {
	h.Do(client, getRecord{name}, func() (any, bool) {
		r, err := s.Get(ctx, register(name))
		switch resultOf(err) {
		case done:
			value, version = number(r.Value), r.Version
		case missing:
		default:
			return doubtful, false
		}
		ok = true
		return "value " + value, false
	})
	return value, version, ok
}

func useRecords(t *testing.T, ctx context.Context, client int, random *rand.Rand, s *dynamo.Store, tries *atomic.Int64, h *linear.History, known *versions) {
	type seen struct {
		version refstore.Version
		value   string
	}
	last := map[string]seen{}
	for n := range 25 {
		name := registerNames[random.IntN(len(registerNames))]
		key, was := register(name), last[name]
		switch random.IntN(8) {
		case 0, 1, 2:
			if value, version, ok := get(ctx, client, s, h, name); ok {
				if version != refstore.Absent {
					known.note(t, name, version, value)
				}
				last[name] = seen{version, value}
			}
		case 3:
			if was.version == refstore.Absent {
				continue
			}
			h.Do(client, deleteRecord{name, was.value}, func() (any, bool) {
				r := resultOf(s.Delete(ctx, key, was.version))
				if r == done {
					last[name] = seen{}
				}
				return r, r == doubtful
			})
		default:
			value := fmt.Sprintf("%d.%d", client, n)
			content := value + " "
			if random.IntN(3) == 0 {
				content += strings.Repeat("x", random.IntN(60<<10))
			}
			put := func() {
				h.Do(client, putRecord{name, was.value, value}, func() (any, bool) {
					v, err := s.Put(ctx, refstore.Record{Key: key, Value: []byte(content), Version: was.version})
					r := resultOf(err)
					if r == done {
						known.note(t, name, v, value)
						last[name] = seen{v, value}
					}
					return r, r == doubtful
				})
			}
			if was.version != refstore.Absent {
				put()
				continue
			}
			h.Do(client, recreateRecord{name, value}, func() (any, bool) {
				before := tries.Load()
				put()
				further := max(0, int(tries.Load()-before)-1)
				return further, further > 0
			})
		}
	}
}

// Operations on a stream. A content is described by the numbers of the appended pieces.
type (
	readStream   struct{}
	sizeStream   struct{}
	appendStream struct {
		Offset int64
		Piece  content
	}
	cutStream struct{ Size int64 }
)

// content prints without the filling bytes.
type content string

var filling = regexp.MustCompile("x+")

func (c content) String() string {
	return filling.ReplaceAllStringFunc(string(c), func(run string) string { return fmt.Sprintf("x%d", len(run)) })
}

// stream is the model of a stream that always exists.
var stream = porcupine.Model{
	Init: func() any { return content("") },
	Step: func(state, input, output any) (bool, any) {
		now := state.(content)
		switch in := input.(type) {
		case readStream:
			return output == doubtful || output == now, now
		case sizeStream:
			return output == doubtful || output == int64(len(now)), now
		case appendStream:
			fits := int64(len(now)) == in.Offset
			switch {
			case output == conflict:
				return !fits, now
			case output == done && !fits:
				return false, now
			case fits:
				return true, now + in.Piece
			}
			return output == doubtful, now
		case cutStream:
			fits := int64(len(now)) >= in.Size
			switch {
			case output == conflict:
				return !fits, now
			case output == done && !fits:
				return false, now
			case fits:
				return true, now[:in.Size]
			}
			return output == doubtful, now
		}
		return false, now
	},
}

func TestStreamsUnderFaults(t *testing.T) {
	overServers(t, func(t *testing.T, ctx context.Context, servers faultyServers, random *rand.Rand, h *linear.History) {
		// A read during cuts and appends may see some of both. But without reads, unknown outcomes would leave too many
		// possibilities.
		cuts := random.IntN(2) == 0
		table := concurrently(t, ctx, servers, random, cuts, func(ctx context.Context, client int, random *rand.Rand, s *dynamo.Store, _ *atomic.Int64) {
			useStream(ctx, client, random, s, h, cuts)
		})
		_, ok := readAll(ctx, clients, servers.open(t, table, servers.tables, servers.objects, 10*time.Second, nil), h)
		if !ok {
			t.Error("the stream cannot be read")
			return
		}
		ops := h.Operations()
		if !cuts {
			ops = appended(ops)
		}
		linear.Check(t, ops, stream, func(any) string { return "the stream" })
	})
}

// appended leaves out appends of unknown outcome that did not happen, and bounds the end of those that did by the first
// read of their data. It assumes that nothing is cut, and that a client reads everything at the end.
func appended(ops []porcupine.Operation) []porcupine.Operation {
	var left []porcupine.Operation
	for _, op := range ops {
		in, ok := op.Input.(appendStream)
		if !ok || op.Output != doubtful {
			left = append(left, op)
			continue
		}
		piece, there := string(in.Piece[:strings.IndexByte(string(in.Piece), '>')+1]), false
		for _, read := range ops {
			if text, ok := read.Output.(content); ok && strings.Contains(string(text), piece) {
				op.Return = min(op.Return, max(read.Return, op.Call))
				there = true
			}
		}
		if there {
			op.Output = done
			left = append(left, op)
		}
	}
	return left
}

var streamKey = refstore.Key{Partition: "STREAM", Sort: "s"}

func useStream(ctx context.Context, client int, random *rand.Rand, s *dynamo.Store, h *linear.History, cuts bool) {
	var size int64
	for n := range 20 {
		switch random.IntN(10) {
		case 0, 1, 2:
			if !cuts {
				if all, ok := readAll(ctx, client, s, h); ok {
					size = all
				}
				continue
			}
			h.Do(client, sizeStream{}, func() (any, bool) {
				info, err := s.Size(ctx, streamKey)
				if err != nil && !errors.Is(err, refstore.ErrNotFound) {
					return doubtful, false
				}
				size = info.Size
				return size, false
			})
		case 3:
			if !cuts {
				continue
			}
			to := random.Int64N(size + 1)
			h.Do(client, cutStream{to}, func() (any, bool) {
				err := s.Cut(ctx, streamKey, to)
				r := resultOf(err)
				if r == missing && to == 0 {
					r = done
				} else if r == missing {
					r = conflict // an absent stream is shorter
				}
				if r == done {
					size = to
				}
				return r, r == doubtful
			})
		default:
			piece := fmt.Sprintf("<%d.%d>", client, n)
			if random.IntN(3) == 0 {
				piece += strings.Repeat("x", random.IntN(9<<10))
			}
			h.Do(client, appendStream{size, content(piece)}, func() (any, bool) {
				r := resultOf(s.Append(ctx, streamKey, size, []byte(piece)))
				if r == done {
					size += int64(len(piece))
				}
				return r, r == doubtful
			})
		}
	}
}

// readAll reads the stream and returns its size.
func readAll(ctx context.Context, client int, s *dynamo.Store, h *linear.History) (size int64, ok bool) {
	h.Do(client, readStream{}, func() (any, bool) {
		r, err := s.Open(ctx, streamKey, 0)
		if errors.Is(err, refstore.ErrNotFound) {
			ok = true
			return content(""), false
		}
		if err != nil {
			return doubtful, false
		}
		defer r.Close()
		data, err := io.ReadAll(r)
		if err != nil {
			return doubtful, false
		}
		size, ok = int64(len(data)), true
		return content(data), false
	})
	return size, ok
}
