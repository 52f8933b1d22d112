package executions_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/mem"
)

// TestRequests lists the calls of Do to stores and leases, each of which is a request where they are remote.
func TestRequests(t *testing.T) {
	fails := commands(func(context.Context, runner.Spec) (runner.Result, error) { return runner.Result{ExitCode: 3}, nil })
	for _, test := range []struct {
		name     string
		commands []commands // of each call of Do in turn; the last one's requests count
		force    bool
		want     []string
	}{
		{"hit", []commands{writes("x"), nil}, false, []string{"list EXECUTION"}},
		{"short", []commands{writes("x")}, false, []string{
			"list EXECUTION", "claim", "list EXECUTION", "store output",
			"put EXECUTION success", "list keys of EXECUTION", "release",
		}},
		{"short, after a failure", []commands{fails, writes("x")}, false, []string{
			"list EXECUTION", "claim", "list EXECUTION", "store output",
			"put EXECUTION success", "list keys of EXECUTION", "list EXECUTION", "release",
		}},
		{"failure", []commands{fails}, false, []string{"list EXECUTION", "claim", "list EXECUTION", "put EXECUTION failed", "release"}},
		{"long and quiet", []commands{quiet(writes("x"))}, false, []string{
			"list EXECUTION", "claim", "list EXECUTION", "claim", "put EXECUTION running", "store output",
			"put EXECUTION success", "list keys of EXECUTION", "release", "release",
		}},
		{"long", []commands{announced(writes("x"))}, false, []string{
			"list EXECUTION", "claim", "list EXECUTION", "claim", "put EXECUTION running", "store output", "append LOG stdout.txt", "seal LOG stdout.txt",
			"put EXECUTION success", "list keys of EXECUTION", "release", "release",
		}},
		{"forced", []commands{writes("x")}, true, []string{
			"get INDEX", "put INDEX", "list keys of EXECUTION", "store output", "put EXECUTION success", "confirm",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			req := s.request(t)
			req.Force = test.force
			var m *machine
			for i, c := range test.commands {
				m = s.machine(t, "one", c)
				res, err := m.Do(t.Context(), req)
				if err != nil || i == len(test.commands)-1 && (res.Cached != (c == nil) || res.Size > 1 || res.State == record.Error) {
					t.Fatalf("got %+v, %v", res, err)
				}
			}
			if diff := cmp.Diff(test.want, m.requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// quiet is like announced, for a command that prints nothing.
func quiet(c commands) commands {
	return func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
		spec.OnStart(process.ID{PID: 4711})
		return c(ctx, spec)
	}
}

// presuming is an object store that presumes, as over S3.
type presuming struct {
	*memory
	sizes map[objectstore.Hash]int64
	asked int
}

func (p *presuming) Presumes() bool { return true }

func (p *presuming) Stat(_ context.Context, h objectstore.Hash) (int64, error) {
	p.asked++
	if size, ok := p.sizes[h]; ok {
		return size, nil
	}
	return 0, objectstore.ErrNotFound
}

// Where a Stat of an object is a request, its size is taken from the record if it is there.
func TestPresumedOutputs(t *testing.T) {
	there, gone := objectstore.Sum([]byte("there")), objectstore.Sum([]byte("gone"))
	detail := func(size int64) []refstore.Field {
		return []refstore.Field{{Name: "detail.beast2", Value: (&record.Detail{Attempt: 1, BytesOut: size}).Encode()}}
	}
	for _, test := range []struct {
		name   string
		output objectstore.Hash
		fields []refstore.Field
		size   int64 // -1: a miss
		asked  int
	}{
		{"the record tells", there, detail(5), 5, 0},
		{"the record tells of an empty one", there, detail(0), 0, 0},
		{"it is not looked for", gone, detail(5), 5, 0},
		{"the record does not tell", there, nil, 7, 1},
		{"the record does not tell, and it is gone", gone, nil, -1, 1},
		{"no size", there, detail(-1), 7, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			records := mem.New()
			objects := &presuming{sizes: map[objectstore.Hash]int64{there: 7}}
			id := newID(t)
			st := &record.Status{State: record.Success, ExecutionID: id, StartedAt: time.UnixMilli(1), CompletedAt: time.UnixMilli(2), OutputHash: test.output.String()}
			_, err := records.Put(t.Context(), refstore.Record{
				Key: refstore.Key{Partition: "EXECUTION/" + importKey.String(), Sort: id}, Value: st.Encode(), Fields: test.fields,
			})
			if err != nil {
				t.Fatal(err)
			}
			a, err := executions.NewStore(records, objects).Lookup(t.Context(), importKey)
			if err != nil {
				t.Fatal(err)
			}
			size := int64(-1)
			if a.Hit != nil {
				size = a.Hit.Size
			}
			if size != test.size || objects.asked != test.asked {
				t.Errorf("its size is %d, asked %d times, want %d and %d", size, objects.asked, test.size, test.asked)
			}
		})
	}
}

// An import checks the recorded size, because lookups rely on it.
func TestImportedSizeIsChecked(t *testing.T) {
	for _, test := range []struct {
		name   string
		detail []byte
		ok     bool
	}{
		{"right", (&record.Detail{Attempt: 1, BytesOut: 7}).Encode(), true},
		{"wrong", (&record.Detail{Attempt: 1, BytesOut: 8}).Encode(), false},
		{"none", nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			records := mem.New()
			in := incoming(newID(t), record.Success, "", "")
			in.Detail = test.detail
			h, err := objectstore.ParseHash(in.Status.OutputHash)
			if err != nil {
				t.Fatal(err)
			}
			objects := &presuming{sizes: map[objectstore.Hash]int64{h: 7}}
			c := executions.NewCurator(executions.NewStore(records, objects), records, time.Now)
			out, err := c.Import(t.Context(), in)
			if test.ok && (err != nil || out != executions.Added) || !test.ok && !errors.Is(err, executions.ErrMalformed) {
				t.Errorf("got %v, %v, want it taken in: %v", out, err, test.ok)
			}
		})
	}
}
