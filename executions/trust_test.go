package executions_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/mem"
)

func newKey(t testing.TB, name string) *signature.Key {
	t.Helper()
	k, err := signature.Generate(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// demanding is a demand for a signature by one of the keys.
func demanding(keys ...*signature.Key) executions.Demands {
	var public []signature.PublicKey
	for _, k := range keys {
		public = append(public, k.Public())
	}
	d := executions.NewDemand(public)
	return func(context.Context) (*executions.Demand, error) { return d, nil }
}

func withKey(k *signature.Key) func(*executions.Options) {
	return func(o *executions.Options) { o.Key = k }
}

// An assertion is everything that a record says about an execution.
type assertion struct {
	key       executions.Key
	status    record.Status
	size      int64
	signature []byte // of the field; nil: there is none
}

func (c *assertion) signBy(k *signature.Key) {
	m := k.Mark(signature.Execution(c.key.Task.String(), c.key.Inputs.String(), c.status.Encode(), c.size))
	c.signature = (&record.Signature{Key: m.Key, Bytes: m.Bytes}).Encode()
}

func (c *assertion) put(t *rapid.T, records *mem.Store) {
	fields := []refstore.Field{{Name: "detail.beast2", Value: (&record.Detail{Worker: "eve@lab", BytesOut: c.size}).Encode()}}
	if c.signature != nil {
		fields = append(fields, refstore.Field{Name: "signature.beast2", Value: c.signature})
	}
	_, err := records.Put(context.Background(), refstore.Record{
		Key: refstore.Key{Partition: "EXECUTION/" + c.key.String(), Sort: c.status.ExecutionID}, Value: c.status.Encode(), Fields: fields})
	if err != nil {
		t.Fatal(err)
	}
}

// An execution answers only if a trusted key has signed exactly its record, whatever a writer makes of existing
// records, signatures and its own key.
func TestForgedExecutions(t *testing.T) {
	trusted, other := newKey(t, "ci"), newKey(t, "ci") // of the same name
	rapid.Check(t, func(t *rapid.T) {
		records, objects := mem.New(), &memory{}
		keys := []executions.Key{
			executions.NewKey(objectstore.Sum([]byte("task")), nil), executions.NewKey(objectstore.Sum([]byte("other task")), nil),
			executions.NewKey(objectstore.Sum([]byte("task")), []objectstore.Hash{objectstore.Sum([]byte("input"))}),
		}
		var outputs, ids []string
		for _, text := range []string{"right", "wrong"} { // of one length
			h, err := objectstore.PutBytes(context.Background(), objects, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			id, err := executions.NewID()
			if err != nil {
				t.Fatal(err)
			}
			outputs, ids = append(outputs, h.String()), append(ids, id)
		}
		honest := func(i int, by *signature.Key) assertion {
			c := assertion{key: keys[i%len(keys)], size: 5, status: record.Status{
				State: record.Success, ExecutionID: ids[i%2], OutputHash: outputs[0], StartedAt: time.UnixMilli(1000), CompletedAt: time.UnixMilli(2000),
			}}
			c.signBy(by)
			return c
		}
		seen := []assertion{honest(0, trusted), honest(1, trusted), honest(2, trusted), honest(0, other)}
		fails := honest(0, trusted)
		fails.status = record.Status{State: record.Failed, ExecutionID: ids[0], ExitCode: 1, StartedAt: time.UnixMilli(1000), CompletedAt: time.UnixMilli(2000)}
		fails.signBy(trusted)
		seen = append(seen, fails)

		forged := rapid.SampledFrom(seen).Draw(t, "base")
		forged.signature = slices.Clone(forged.signature)
		for _, change := range rapid.SliceOfN(rapid.SampledFrom([]string{
			"key", "id", "output", "time", "size", "state", "inputs", "unsigned", "own key", "other's signature", "bit", "cut", "named", "longer",
		}), 0, 3).Draw(t, "changes") {
			switch change {
			case "key":
				forged.key = rapid.SampledFrom(keys).Draw(t, "key")
			case "id":
				forged.status.ExecutionID = rapid.SampledFrom(ids).Draw(t, "id")
			case "output":
				forged.status.OutputHash = rapid.SampledFrom(outputs).Draw(t, "output")
			case "time":
				forged.status.CompletedAt = forged.status.CompletedAt.Add(time.Millisecond)
			case "size":
				forged.size++
			case "state":
				forged.status.State, forged.status.OutputHash = record.Success, outputs[0]
			case "inputs":
				forged.status.InputHashes = []string{outputs[0]}
			case "unsigned":
				forged.signature = nil
			case "own key":
				forged.signBy(other)
			case "other's signature":
				forged.signature = slices.Clone(rapid.SampledFrom(seen).Draw(t, "signed").signature)
			case "bit":
				if n := len(forged.signature); n > 0 {
					forged.signature[rapid.IntRange(0, n-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
				}
			case "cut":
				forged.signature = forged.signature[:rapid.IntRange(0, len(forged.signature)).Draw(t, "length")]
			case "longer":
				forged.signature = append(forged.signature, 0)
			case "named": // the trusted key's name over bytes of the other one
				forged.signBy(other)
				if s, err := record.DecodeSignature(forged.signature); err == nil {
					s.Key = trusted.Public()
					forged.signature = s.Encode()
				}
			}
		}
		forged.put(t, records)
		good := slices.ContainsFunc(seen[:3], func(c assertion) bool {
			return c.key == forged.key && c.size == forged.size && string(c.status.Encode()) == string(forged.status.Encode()) && string(c.signature) == string(forged.signature)
		})

		store := executions.NewStore(records, objects).Requiring(demanding(trusted))
		for _, k := range keys {
			a, err := store.Lookup(context.Background(), k)
			if err != nil {
				t.Fatal(err)
			}
			if answers := a.Hit != nil; answers != (good && k == forged.key) {
				t.Fatalf("a lookup of %s answers %t, want %t: %+v", k, answers, good, a)
			}
		}
		if a, err := executions.NewStore(records, objects).Requiring(demanding()).Lookup(context.Background(), forged.key); err != nil || a.Hit != nil {
			t.Fatalf("without any trusted key a lookup found %+v, %v", a, err)
		}
	})
}

// The demand costs no request, because the signature comes with the record.
func TestDemandCostsNoRequest(t *testing.T) {
	key := newKey(t, "ci")
	s := newSite(t)
	req := s.request(t)
	s.demands = demanding(key)
	for i, want := range [][]string{
		{"list EXECUTION", "claim", "list EXECUTION", "store output", "put EXECUTION success", "list keys of EXECUTION", "release"},
		{"list EXECUTION"},
	} {
		m := s.machine(t, "one", writes("x"), withKey(key))
		if res, err := m.Do(t.Context(), req); err != nil || res.Cached != (i == 1) {
			t.Fatalf("got %+v, %v", res, err)
		}
		if diff := cmp.Diff(want, m.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	}
}

// A process that waited for another one accepts its success or failure only if its key is trusted.
func TestWaiterTakesNothingUntrusted(t *testing.T) {
	trusted, other := newKey(t, "ci"), newKey(t, "dev")
	for _, test := range []struct {
		name  string
		by    *signature.Key
		ends  commands
		taken bool
	}{
		{"success without a key", nil, writes("x"), false},
		{"success by another key", other, writes("x"), false},
		{"success by a trusted key", trusted, writes("x"), true},
		{"failure by another key", other, exits(3), false},
		{"failure by a trusted key", trusted, exits(3), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.demands = demanding(trusted)
			req := s.request(t)
			begun, end := make(chan struct{}), make(chan struct{})
			first := s.machine(t, "first", func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
				close(begun)
				<-end
				return test.ends(ctx, spec)
			}, withKey(test.by))
			ran := false
			second := s.machine(t, "second", func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
				ran = true
				return writes("x")(ctx, spec)
			}, withKey(trusted))
			var earlier executions.Result
			done := make(chan error)
			go func() {
				var err error
				earlier, err = first.Do(t.Context(), req)
				done <- err
			}()
			<-begun
			second.gate.stopAt, second.gate.after = 2, true // when it has found the claim held
			go func() {
				<-second.gate.stopped
				close(end)
				close(second.gate.resume)
			}()
			res, err := second.Do(t.Context(), req)
			if failed := errors.Join(err, <-done); failed != nil {
				t.Fatal(failed)
			}
			if took := res.ExecutionID == earlier.ExecutionID; took != test.taken || ran == took {
				t.Errorf("it took %+v (its own command ran: %t), the first process had %+v", res, ran, earlier)
			}
		})
	}
}

// A worker's result counts for a run with a trusted key only if the worker's key is trusted too.
func TestWorkersMustBeTrusted(t *testing.T) {
	trusted, other := newKey(t, "ci"), newKey(t, "dev")
	for _, test := range []struct {
		name        string
		run, worker *signature.Key
		refused     bool
	}{
		{"both trusted", trusted, trusted, false},
		{"worker without a key", trusted, nil, true},
		{"worker with another key", trusted, other, true},
		{"run without a key", nil, other, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			s.demands = demanding(trusted)
			req := s.request(t)
			w := s.machine(t, "worker", writes("x"), withKey(test.worker))
			r := s.machine(t, "run", nil, withKey(test.run), func(o *executions.Options) { o.Remote = making{w.Executor} })
			res, err := r.Do(t.Context(), req)
			if refused := errors.Is(err, executions.ErrUntrusted); refused != test.refused || err != nil && !refused {
				t.Fatalf("got %+v, %v", res, err)
			}
			if err != nil && !strings.Contains(err.Error(), "made by ann@worker") {
				t.Errorf("the error does not say who made it: %v", err)
			}
		})
	}
}

// making is a queue with one worker.
type making struct{ worker *executions.Executor }

func (m making) Execute(ctx context.Context, _ executions.Key, req *executions.Request) (executions.Result, error) {
	id, err := executions.NewIDAfter(req.After)
	if err != nil {
		return executions.Result{}, err
	}
	return m.worker.Make(ctx, req, id)
}

func exits(code int) commands {
	return func(context.Context, runner.Spec) (runner.Result, error) { return runner.Result{ExitCode: code}, nil }
}

// If the demand cannot be read, a lookup is an error.
func TestUnknownDemand(t *testing.T) {
	s := newShelf()
	if _, err := s.success(); err != nil {
		t.Fatal(err)
	}
	fault := errors.New("no settings")
	store := s.Store.Requiring(func(context.Context) (*executions.Demand, error) { return nil, fault })
	if a, err := store.Lookup(t.Context(), s.key); !errors.Is(err, fault) || a.Hit != nil {
		t.Errorf("got %+v, %v", a, err)
	}
}

// An import keeps a valid signature, whatever its key, and refuses one of another execution.
func TestImportedSignature(t *testing.T) {
	l := newLab(t)
	ci, dev := newKey(t, "ci"), newKey(t, "dev")
	req := l.request(script("echo x >out"))
	id, err := executions.NewID()
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Truncate(time.Millisecond)
	c := assertion{key: keyOf(req), size: 2, status: record.Status{
		State: record.Success, ExecutionID: id, OutputHash: l.put(t, "x\n").String(), StartedAt: at, CompletedAt: at,
	}}
	incoming := func(size int64) *executions.Incoming {
		return &executions.Incoming{
			Key: c.key, Status: &c.status, Detail: (&record.Detail{Worker: "ann@lab", BytesOut: size}).Encode(), Signature: c.signature,
			Provenance: &record.Provenance{Steps: []record.Step{{By: "ann@lab", Repository: "there", ImportedBy: "bob@here", ImportedAt: at}}},
		}
	}
	c.signBy(ci)
	if _, err := l.Import(t.Context(), incoming(3)); !errors.Is(err, executions.ErrMalformed) || !errors.Is(err, signature.ErrBadSignature) {
		t.Fatalf("an import of another size: %v", err)
	}
	if out, err := l.Import(t.Context(), incoming(2)); err != nil || out != executions.Added {
		t.Fatalf("got %v, %v", out, err)
	}
	for _, test := range []struct {
		demands executions.Demands
		counts  bool
	}{{nil, true}, {demanding(ci), true}, {demanding(dev), false}} {
		if a, err := l.Requiring(test.demands).Lookup(t.Context(), c.key); err != nil || (a.Hit != nil) != test.counts {
			t.Errorf("got %+v, %v, want a hit: %t", a, err, test.counts)
		}
	}
}

func BenchmarkLookupSigned(b *testing.B) {
	key := newKey(b, "ci")
	records, objects := mem.New(), &memory{}
	out, err := objectstore.PutBytes(b.Context(), objects, []byte("right"))
	if err != nil {
		b.Fatal(err)
	}
	id, err := executions.NewID()
	if err != nil {
		b.Fatal(err)
	}
	c := assertion{key: executions.NewKey(objectstore.Sum(nil), nil), size: 5, status: record.Status{State: record.Success, ExecutionID: id, OutputHash: out.String()}}
	c.signBy(key)
	_, err = records.Put(b.Context(), refstore.Record{
		Key: refstore.Key{Partition: "EXECUTION/" + c.key.String(), Sort: id}, Value: c.status.Encode(),
		Fields: []refstore.Field{{Name: "detail.beast2", Value: (&record.Detail{BytesOut: 5}).Encode()}, {Name: "signature.beast2", Value: c.signature}},
	})
	if err != nil {
		b.Fatal(err)
	}
	for name, store := range map[string]*executions.Store{
		"unsigned": executions.NewStore(records, objects), "signed": executions.NewStore(records, objects).Requiring(demanding(key)),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if a, err := store.Lookup(b.Context(), c.key); err != nil || a.Hit == nil {
					b.Fatal(a, err)
				}
			}
		})
	}
}
