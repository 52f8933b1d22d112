package dynamo_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"e3/internal/jobs/queue"
	"e3/internal/jobs/queue/queuetest"
	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/dynamo"
	"e3/refstore/refstoretest"
)

// behind returns a store whose requests go through a proxy.
func behind(t *testing.T, o dynamo.Options) (*dynamo.Store, *testserver.Proxy) {
	t.Helper()
	p := testserver.NewProxy(t, o.Endpoint)
	o.Endpoint = p.URL()
	return open(t, o), p
}

// TestLostAnswers loses the answer of a write that took effect: the next attempt detects the success.
func TestLostAnswers(t *testing.T) {
	for _, fault := range []testserver.Fault{testserver.DropAfter, testserver.DropWithin} {
		t.Run(fault.String(), func(t *testing.T) {
			o := minidyn().options(t)
			s, p := behind(t, o)
			ctx := t.Context()
			lose := func(op string) { p.Faults(1, testserver.Rule{Op: op, Fault: fault, Times: 1}) }
			r := refstore.Record{Key: refstore.Key{Partition: "INDEX/a", Sort: "a"}, Value: []byte("one")}
			check := func(what string) {
				t.Helper()
				got, err := s.Get(ctx, r.Key)
				if err != nil || got.Version != r.Version || string(got.Value) != string(r.Value) {
					t.Errorf("%s: got %+v, %v, want %+v", what, got, err, r)
				}
			}
			lose("PutItem")
			r.Version = put(t, s, r)
			check("create")
			lose("UpdateItem")
			r.Value = []byte("two")
			r.Version = put(t, s, r)
			check("update")
			lose("DeleteItem")
			if err := s.Delete(ctx, r.Key, r.Version); err != nil {
				t.Errorf("delete: %v", err)
			}
			if _, err := s.Get(ctx, r.Key); !errors.Is(err, refstore.ErrNotFound) {
				t.Errorf("get after delete: got error %v, want %v", err, refstore.ErrNotFound)
			}
			lose("PutItem")
			pieces(t, s, events, nil, 1, 10)
			lose("PutItem")
			pieces(t, s, events, read(t, s, events, 0), 1, 10<<10)
			if got := read(t, s, events, 0); len(got) != 10+10<<10 {
				t.Errorf("stream: got %d bytes, want %d", len(got), 10+10<<10)
			}
			lose("PutItem")
			if err := s.Cut(ctx, events, 5); err != nil {
				t.Errorf("cut: %v", err)
			}
			lose("PutItem")
			if err := s.Seal(ctx, events); err != nil {
				t.Errorf("seal: %v", err)
			}
			lose("DeleteItem")
			if err := s.Remove(ctx, events); err != nil {
				t.Errorf("remove: %v", err)
			}
		})
	}
}

// TestLateCreation delays the first attempt of a creation until the record has been deleted: Create has reported that
// this may happen.
func TestLateCreation(t *testing.T) {
	o := minidyn().options(t)
	o.Attempt = 200 * time.Millisecond
	s, p := behind(t, o)
	other := open(t, o)
	r := refstore.Record{Key: refstore.Key{Partition: "INDEX/a", Sort: "a"}}
	v, late, err := s.Create(t.Context(), r)
	if err != nil || late {
		t.Fatalf("of a creation that was answered: %v, %v", late, err)
	}
	if err := s.Delete(t.Context(), r.Key, v); err != nil {
		t.Fatal(err)
	}
	p.Faults(1, testserver.Rule{Op: "PutItem", Fault: testserver.Hang, Times: 1})
	if v, late, err = s.Create(t.Context(), r); err != nil || !late {
		t.Fatalf("of one whose first try was not answered: %v, %v", late, err)
	}
	if err := s.Delete(t.Context(), r.Key, v); err != nil {
		t.Fatal(err)
	}
	p.Release()
	for {
		got, err := other.Get(t.Context(), r.Key)
		if err == nil && got.Version == v {
			return
		}
		if !errors.Is(err, refstore.ErrNotFound) {
			t.Fatalf("got %+v, %v", got, err)
		}
		time.Sleep(time.Millisecond) // the proxy has no notification for this
	}
}

// TestLostConflict loses the answer of a write, and other processes write before the retry.
func TestLostConflict(t *testing.T) {
	o := minidyn().options(t)
	other := open(t, o)
	for _, c := range []struct {
		name   string
		fault  testserver.Fault
		others int // number of other writes in between
		want   error
	}{
		{"it happened, and one write since", testserver.DropAfter, 1, nil},
		{"it did not happen, as another was faster", testserver.DropBefore, 1, refstore.ErrConflict},
		{"nothing can tell", testserver.DropAfter, 2, errUnclear},
		{"nothing can tell whether it happened", testserver.DropBefore, 2, errUnclear},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := refstore.Key{Partition: "INDEX/a", Sort: c.name}
			v := put(t, other, refstore.Record{Key: key})
			// The first attempt meets the fault, the second waits until the other writes are done.
			o := o
			o.Attempt, o.Patience = time.Minute, 5*time.Minute // the server may be busy
			s, p := behind(t, o)
			p.Faults(1, testserver.Rule{Op: "UpdateItem", Fault: c.fault, Times: 1}, testserver.Rule{Op: "UpdateItem", Fault: testserver.Hang, Times: 1})
			done := make(chan error, 1)
			go func() {
				_, err := s.Put(t.Context(), refstore.Record{Key: key, Value: []byte("ours"), Version: v})
				done <- err
			}()
			for p.Struck()[testserver.Hang] == 0 {
				time.Sleep(time.Millisecond) // the proxy sends no signal
			}
			for range c.others {
				r, err := other.Get(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				r.Value = []byte("theirs")
				put(t, other, r)
			}
			p.Release()
			err := <-done
			if c.want == errUnclear {
				if err == nil || errors.Is(err, refstore.ErrConflict) || !strings.Contains(err.Error(), "may have happened") {
					t.Errorf("got error %v, want one that leaves it open", err)
				}
			} else if !errors.Is(err, c.want) {
				t.Errorf("got error %v, want %v", err, c.want)
			}
		})
	}
}

var errUnclear = errors.New("unclear")

// TestTriedAgain lets requests fail a few times, either without effect or with an unknown effect.
func TestTriedAgain(t *testing.T) {
	for _, fault := range []testserver.Fault{testserver.Throttle, testserver.Fail, testserver.DropBefore} {
		t.Run(fault.String(), func(t *testing.T) {
			s, p := behind(t, minidyn().options(t))
			for _, op := range []string{"BatchWriteItem", "PutItem", "GetItem", "Query", "UpdateItem", "DeleteItem"} {
				p.Faults(1, testserver.Rule{Op: op, Fault: fault, Times: 3})
				r := refstore.Record{Key: refstore.Key{Partition: "EXECUTION/" + op + "/inputs", Sort: "id"}, Value: []byte("one")}
				r.Version = put(t, s, r)
				r.Version = put(t, s, r)
				if got := sorts(t, s, r.Key.Partition); len(got) != 1 {
					t.Errorf("%s: list: got %q", op, got)
				}
				if _, err := s.Get(t.Context(), r.Key); err != nil {
					t.Errorf("%s: %v", op, err)
				}
				if err := s.Delete(t.Context(), r.Key, r.Version); err != nil {
					t.Errorf("%s: %v", op, err)
				}
				if got := p.Struck()[fault]; got == 0 {
					t.Errorf("%s was never struck", op)
				}
			}
		})
	}
}

func TestGivesUp(t *testing.T) {
	o := minidyn().options(t)
	o.Patience = 50 * time.Millisecond
	s, p := behind(t, o)
	key := refstore.Key{Partition: "INDEX/a", Sort: "a"}
	p.Faults(1, testserver.Rule{Fault: testserver.Throttle})
	if _, err := s.Get(t.Context(), key); err == nil || !strings.Contains(err.Error(), "gave up after") || !strings.Contains(err.Error(), o.Table) {
		t.Errorf("get: got error %v, want one that says so", err)
	}
	o.Patience = time.Hour
	s, p = behind(t, o)
	p.Faults(1, testserver.Rule{Fault: testserver.Throttle})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Get(ctx, key); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("get until the context ends: got error %v, want %v", err, context.DeadlineExceeded)
	}
}

// TestSlowAnswers delays an answer beyond the timeout of an attempt.
func TestSlowAnswers(t *testing.T) {
	o := minidyn().options(t)
	o.Attempt = 100 * time.Millisecond
	s, p := behind(t, o)
	p.Faults(1, testserver.Rule{Op: "PutItem", Fault: testserver.DelayAfter, Delay: time.Second, Times: 1})
	r := refstore.Record{Key: refstore.Key{Partition: "INDEX/a", Sort: "a"}}
	v := put(t, s, r)
	if got, err := s.Get(t.Context(), r.Key); err != nil || got.Version != v {
		t.Errorf("got %+v, %v, want version %q", got, err, v)
	}
	if got := p.Calls()["PutItem"]; got != 2 {
		t.Errorf("got %d tries, want 2", got)
	}
}

func TestNoTable(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		o := srv.options(t)
		o.Table = testserver.Name()
		s := open(t, o)
		if _, err := s.Get(t.Context(), execution); !errors.Is(err, dynamo.ErrNoTable) || !strings.Contains(err.Error(), o.Table) {
			t.Errorf("get: got error %v, want %v", err, dynamo.ErrNoTable)
		}
		if _, err := s.Put(t.Context(), refstore.Record{Key: execution}); !errors.Is(err, dynamo.ErrNoTable) {
			t.Errorf("put: got error %v, want %v", err, dynamo.ErrNoTable)
		}
	})
}

// TestDeliveredTwice delivers each write twice, and returns the second answer: a write that took effect counts as
// successful, and no blob that it names is removed. Record and stream are so large that both have parts in blobs.
func TestDeliveredTwice(t *testing.T) {
	o := minidyn().options(t)
	s, p := behind(t, o)
	other := open(t, o)
	ctx := t.Context()
	twice := func(op string) { p.Faults(1, testserver.Rule{Op: op, Fault: testserver.Double, Times: 1}) }
	r := refstore.Record{Key: refstore.Key{Partition: "DATAFLOW/w", Sort: "a"}}
	put(t, s, refstore.Record{Key: refstore.Key{Partition: "DATAFLOW/w", Sort: "b"}}) // so that their enumeration items exist
	check := func(what string) {
		t.Helper()
		for _, reader := range []*dynamo.Store{s, other} {
			got, err := reader.Get(ctx, r.Key)
			if err != nil || got.Version != r.Version || string(got.Value) != string(r.Value) {
				t.Errorf("%s: got version %s with %d bytes, %v; want %s with %d", what, got.Version, len(got.Value), err, r.Version, len(r.Value))
			}
		}
	}
	for _, size := range []int{10, 100 << 10} {
		r.Version, r.Value = refstore.Absent, bytes.Repeat([]byte("one "), size/4)
		twice("PutItem")
		r.Version = put(t, s, r)
		check("create")
		twice("UpdateItem")
		r.Value = bytes.Repeat([]byte("two "), size/4)
		r.Version = put(t, s, r)
		check("update")
		twice("PutItem")
		if _, err := s.Put(ctx, refstore.Record{Key: r.Key, Value: r.Value}); !errors.Is(err, refstore.ErrConflict) {
			t.Errorf("create what is there: got error %v, want %v", err, refstore.ErrConflict)
		}
		check("after a creation of what is there")
		twice("UpdateItem")
		if _, err := s.Put(ctx, refstore.Record{Key: r.Key, Value: r.Value, Version: "other"}); !errors.Is(err, refstore.ErrConflict) {
			t.Errorf("update another version: got error %v, want %v", err, refstore.ErrConflict)
		}
		check("after an update of another version")
		twice("DeleteItem")
		if err := s.Delete(ctx, r.Key, r.Version); err != nil && !errors.Is(err, refstore.ErrNotFound) {
			t.Errorf("delete: %v", err)
		}
		if _, err := other.Get(ctx, r.Key); !errors.Is(err, refstore.ErrNotFound) {
			t.Errorf("get after delete: got error %v, want %v", err, refstore.ErrNotFound)
		}
	}
	var want []byte
	for _, n := range []int{10, 10 << 10, 5, 20 << 10} {
		twice("PutItem")
		want = pieces(t, s, events, want, 1, n)
		if got := read(t, other, events, 0); !bytes.Equal(got, want) {
			t.Errorf("stream: got %d bytes, want %d", len(got), len(want))
		}
	}
	twice("PutItem")
	if err := s.Cut(ctx, events, 5); err != nil || !bytes.Equal(read(t, other, events, 0), want[:5]) {
		t.Errorf("cut: %v", err)
	}
	twice("PutItem")
	if err := s.Seal(ctx, events); err != nil {
		t.Errorf("seal: %v", err)
	}
	twice("DeleteItem")
	if err := s.Remove(ctx, events); err != nil && !errors.Is(err, refstore.ErrNotFound) {
		t.Errorf("remove: %v", err)
	}
}

// TestDoubledConformance runs the conformance suite with one request of ten delivered twice. Deletions are delivered
// once, because the outcome of a deletion that finds no record is ambiguous. A write followed by two others is
// ambiguous too, which concerns the counter case.
func TestDoubledConformance(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i, c := range refstoretest.Cases() {
		if c.Name == "a counter loses no update" || c.Large && testing.Short() {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			err := c.Run(t.Context(), func(context.Context) (refstore.Store, error) {
				return doubled(t, seed+uint64(i)), nil
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

func TestDoubledQueues(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	queuetest.Run(t, func(t *testing.T) queue.Store {
		s := doubled(t, seed)
		return queue.Store{Store: s, Batch: s}
	})
}

// doubled is a store of whose requests one in ten is delivered twice.
func doubled(t *testing.T, seed uint64) *dynamo.Store {
	s, p := behind(t, minidyn().options(t))
	var rules []testserver.Rule
	for _, op := range []string{"PutItem", "UpdateItem", "BatchWriteItem", "GetItem", "Query"} {
		rules = append(rules, testserver.Rule{Op: op, Fault: testserver.Double, Probability: 0.1})
	}
	p.Faults(seed, rules...)
	return s
}
