package dynamo_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"e3/refstore"
)

// meter counts requests and capacity units.
type meter struct {
	mu    sync.Mutex
	calls map[string]int
	units float64
}

func (m *meter) observe(operation string, units float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls == nil {
		m.calls = map[string]int{}
	}
	m.calls[operation]++
	m.units += units
}

// take returns the counts since the last call, as text.
func (m *meter) take() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []string
	for _, op := range slices.Sorted(maps.Keys(m.calls)) {
		list = append(list, fmt.Sprintf("%s %d", op, m.calls[op]))
	}
	list = append(list, fmt.Sprintf("units %g", m.units))
	m.calls, m.units = nil, 0
	return strings.Join(list, ", ")
}

// TestCosts checks the cost of each call, in requests and in capacity units. For reads that find nothing and writes
// whose condition fails, the test server reports no units; AWS charges half a unit and one unit.
func TestCosts(t *testing.T) {
	o := dynalite(t).options(t)
	var m meter
	o.Observe = m.observe
	s := open(t, o)
	ctx := t.Context()
	key := refstore.Key{Partition: "INDEX/a", Sort: "a"}
	output := []refstore.Field{{Name: "output", Value: make([]byte, 65)}, {Name: "detail.beast2", Value: make([]byte, 300)}}
	execution := refstore.Key{Partition: "EXECUTION/task/inputs", Sort: "01900000-0000-7000-8000-000000000001"}
	second := refstore.Key{Partition: "EXECUTION/task/inputs", Sort: "01900000-0000-7000-8000-000000000002"}
	var v, v2 refstore.Version
	var data []byte
	small := func(key refstore.Key, v *refstore.Version) func() error {
		return func() (err error) {
			*v, err = s.Put(ctx, refstore.Record{Key: key, Value: make([]byte, 300), Fields: output, Version: *v})
			return err
		}
	}
	list := func(q refstore.Query) func() error {
		return func() error {
			for _, err := range s.List(ctx, q) {
				if err != nil {
					return err
				}
				if q.Descending {
					break
				}
			}
			return nil
		}
	}
	grow := func(key refstore.Key, size int) func() error {
		return func() error {
			err := s.Append(ctx, key, int64(len(data)), make([]byte, size))
			data = append(data, make([]byte, size)...)
			return err
		}
	}
	var index, indexAgain refstore.Version
	for _, c := range []struct {
		name string
		do   func() error
		want string
	}{
		{"create", small(key, &index), "PutItem 1, units 1"},
		{"create what exists", func() error {
			if err := small(key, &indexAgain)(); err == nil {
				return fmt.Errorf("no conflict")
			}
			return nil
		}, "GetItem 1, PutItem 1, units 1"},
		{"update", small(key, &index), "UpdateItem 1, units 1"},
		{"get", func() error { _, err := s.Get(ctx, key); return err }, "GetItem 1, units 1"},
		{"get of nothing", func() error { s.Get(ctx, execution); return nil }, "GetItem 1, units 1"},
		{"delete", func() error { return s.Delete(ctx, key, index) }, "DeleteItem 1, units 1"},

		{"look up nothing", list(refstore.Query{Partition: execution.Partition, Descending: true}), "Query 1, units 0"},
		{"execution of a new task", small(execution, &v), "BatchWriteItem 1, PutItem 1, units 4"},
		{"execution of new inputs", small(refstore.Key{Partition: "EXECUTION/task/other", Sort: "01900000-0000-7000-8000-000000000003"}, new(refstore.Version)), "BatchWriteItem 1, PutItem 1, units 3"},
		{"execution of the same key", small(second, &v2), "PutItem 2, units 2"},
		{"outcome of an execution that was announced", small(second, &v2), "UpdateItem 1, units 1"},
		{"look up a hit", list(refstore.Query{Partition: execution.Partition, Descending: true}), "Query 1, units 1"},
		{"list the keys", list(refstore.Query{Partition: execution.Partition, KeysOnly: true}), "Query 1, units 1"},

		{"first append", grow(events, 500), "PutItem 2, units 2"},
		{"append", grow(events, 500), "PutItem 1, units 2"},
		{"append to a tail of 1 KiB", grow(events, 100), "PutItem 1, units 2"},
		{"append that fills the tail", grow(events, 8<<10), "PutItem 1, units 2"},
		{"append to an empty tail", grow(events, 100), "PutItem 1, units 1"},
		{"size", func() error { _, err := s.Size(ctx, events); return err }, "GetItem 1, units 1"},
		{"open and read", func() error { read(t, s, events, 0); return nil }, "GetItem 1, units 1"},
		{"seal", func() error { return s.Seal(ctx, events) }, "PutItem 1, units 1"},

		{"delete one execution of two", func() error { return s.Delete(ctx, second, v2) }, "DeleteItem 2, Query 2, units 3"},
		{"delete the last execution", func() error { return s.Delete(ctx, execution, v) }, "DeleteItem 2, Query 2, UpdateItem 1, units 3"},
		{"find an execution by its id", func() error {
			for _, err := range s.FindExecutions(ctx, "0190aaaa-0000-7000-8000-00000000000a") {
				return err
			}
			return nil
		}, "Query 1, units 0"},
	} {
		m.take()
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := m.take(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestListPages checks the sizes of pages when a large partition is read: small at first, and then as large as the
// server allows.
func TestListPages(t *testing.T) {
	o := dynalite(t).options(t)
	var m meter
	o.Observe = m.observe
	s := open(t, o)
	var want []string
	for i := range 300 {
		want = append(want, fmt.Sprintf("%03d", i))
		put(t, s, refstore.Record{Key: refstore.Key{Partition: "INDEX/a", Sort: want[i]}, Value: make([]byte, 10<<10)})
	}
	m.take()
	if got := sorts(t, s, "INDEX/a"); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	// 300 × 10 KiB are 2.9 MiB: 4 items, 64, and pages of 1 MiB.
	if got, want := m.take(), "Query 5, units 758"; got != want {
		t.Errorf("list of all: got %s, want %s", got, want)
	}
	for range s.List(t.Context(), refstore.Query{Partition: "INDEX/a", Descending: true, Limit: 1}) {
		continue
	}
	if got, want := m.take(), "Query 1, units 3"; got != want {
		t.Errorf("list of one: got %s, want %s", got, want)
	}
}
