package executions_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/objectstoretest"
	"e3/refstore"
	"e3/refstore/mem"
)

// memory is an object store in memory with sizes.
type memory struct {
	objectstoretest.Mem
	fault error // of Stat
}

func (m *memory) Stat(ctx context.Context, h objectstore.Hash) (int64, error) {
	if m.fault != nil {
		return 0, m.fault
	}
	data, err := objectstore.ReadAll(ctx, &m.Mem, h, 1<<20)
	return int64(len(data)), err
}

// shelf is a key whose records the test writes.
type shelf struct {
	*executions.Store
	records *mem.Store
	objects *memory
	key     executions.Key
	made    int
}

func newShelf() *shelf {
	s := &shelf{records: mem.New(), objects: &memory{}, key: executions.NewKey(objectstore.Sum([]byte("task")), nil)}
	s.Store = executions.NewStore(s.records, s.objects)
	return s
}

// An item is a kind of record under a key.
type item struct {
	name   string
	add    func(s *shelf) (id string, err error)
	hit    bool   // it is an answer
	reason string // why it is passed over
}

var items = []item{
	{"success", func(s *shelf) (string, error) { return s.add(record.Success, "made") }, true, ""},
	{"imported success", func(s *shelf) (string, error) {
		return s.add(record.Success, "made", (&record.Metadata{Origin: record.Origin{SourceRepo: "other", ImportedAt: time.UnixMilli(1)}}).Encode())
	}, true, ""},
	{"rejected success", func(s *shelf) (string, error) {
		return s.rejected(&record.Rejection{Rejected: true, By: "ann@lab", At: time.UnixMilli(86400000), Reason: "wrong units"})
	}, false, "rejected by ann@lab on 1970-01-02: wrong units"},
	{"success whose rejection was taken back", func(s *shelf) (string, error) {
		return s.rejected(&record.Rejection{Rejected: false, By: "ann@lab"})
	}, true, ""},
	{"success whose rejection is torn", func(s *shelf) (string, error) {
		return s.success(refstore.Field{Name: "rejected.beast2"})
	}, false, "malformed"},
	{"success whose output is gone", func(s *shelf) (string, error) { return s.add(record.Success, "") }, false, "is gone"},
	{"failed", func(s *shelf) (string, error) { return s.add(record.Failed, "") }, false, "exit code 3"},
	{"imported failure", func(s *shelf) (string, error) {
		return s.add(record.Failed, "", (&record.Metadata{Origin: record.Origin{SourceRepo: "other", ImportedAt: time.UnixMilli(1)}}).Encode())
	}, false, "exit code 3"},
	{"error", func(s *shelf) (string, error) { return s.add(record.Error, "") }, false, "timed out"},
	{"running", func(s *shelf) (string, error) { return s.add(record.Running, "") }, false, "not ended"},
	{"malformed", func(s *shelf) (string, error) { return s.raw([]byte("oops")) }, false, "malformed"},
	{"empty record", func(s *shelf) (string, error) { return s.raw(nil) }, false, "malformed"},
	{"another's record", func(s *shelf) (string, error) {
		return s.raw((&record.Status{State: record.Success, ExecutionID: "someone", OutputHash: s.output("made")}).Encode())
	}, false, "someone"},
	{"success without a hash", func(s *shelf) (string, error) {
		return s.status(record.Status{State: record.Success, OutputHash: "../../etc/passwd"})
	}, false, "etc/passwd"},
}

// output returns the hash of a new output, which is stored if it has content.
func (s *shelf) output(content string) string {
	s.made++
	text := fmt.Sprint(content, s.made)
	if content == "" {
		return objectstore.Sum([]byte(text)).String()
	}
	h, _ := objectstore.PutBytes(context.Background(), s.objects, []byte(text))
	return h.String()
}

func (s *shelf) add(state record.State, output string, metadata ...[]byte) (string, error) {
	st := record.Status{State: state, Message: "timed out after 5s", ExitCode: 3}
	if state == record.Success {
		st.OutputHash = s.output(output)
	}
	return s.status(st, metadata...)
}

func (s *shelf) status(st record.Status, metadata ...[]byte) (string, error) {
	id, err := executions.NewID()
	if err != nil {
		return "", err
	}
	st.ExecutionID = id
	var fields []refstore.Field
	for _, data := range metadata {
		fields = append(fields, refstore.Field{Name: "metadata.beast2", Value: data})
	}
	return id, s.put(id, st.Encode(), fields...)
}

func (s *shelf) rejected(m *record.Rejection) (string, error) {
	return s.success(refstore.Field{Name: "rejected.beast2", Value: m.Encode()})
}

func (s *shelf) success(fields ...refstore.Field) (string, error) {
	id, err := executions.NewID()
	if err != nil {
		return "", err
	}
	st := record.Status{State: record.Success, ExecutionID: id, OutputHash: s.output("made")}
	return id, s.put(id, st.Encode(), fields...)
}

func (s *shelf) raw(value []byte) (string, error) {
	id, err := executions.NewID()
	if err != nil {
		return "", err
	}
	return id, s.put(id, value)
}

func (s *shelf) put(id string, value []byte, fields ...refstore.Field) error {
	_, err := s.records.Put(context.Background(), refstore.Record{
		Key: refstore.Key{Partition: "EXECUTION/" + s.key.String(), Sort: id}, Value: value, Fields: fields})
	return err
}

// For any order of executions, the latest success whose output exists is the hit, and each later execution is passed
// over with its reason.
func TestLookupRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newShelf()
		var ids []string
		order := rapid.SliceOfN(rapid.IntRange(0, len(items)-1), 0, 6).Draw(t, "order")
		for _, k := range order {
			id, err := items[k].add(s)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		a, err := s.Lookup(context.Background(), s.key)
		if err != nil {
			t.Fatal(err)
		}
		var passed []executions.Passed
		hit := ""
		var running []string
		for i, k := range slices.Backward(order) {
			if items[k].hit {
				hit = ids[i]
				break
			}
			passed = append(passed, executions.Passed{ExecutionID: ids[i], Reason: items[k].reason})
			if items[k].name == "running" {
				running = append(running, ids[i])
			}
		}
		if got := hitID(a); got != hit {
			t.Fatalf("hit is %q, want %q", got, hit)
		}
		if !slices.Equal(a.Running, running) {
			t.Fatalf("running are %v, want %v", a.Running, running)
		}
		if !slices.EqualFunc(a.Passed, passed, func(got, want executions.Passed) bool {
			return got.ExecutionID == want.ExecutionID && strings.Contains(got.Reason, want.Reason)
		}) {
			t.Fatalf("passed over %v, want %v", a.Passed, passed)
		}
	})
}

func hitID(a executions.Answer) string {
	if a.Hit == nil {
		return ""
	}
	return a.Hit.ExecutionID
}

// Later failures of any kind and number never hide a success.
func TestLookupLaterFailures(t *testing.T) {
	for _, later := range items {
		if later.hit {
			continue
		}
		t.Run(later.name, func(t *testing.T) {
			s := newShelf()
			want, err := s.add(record.Success, "made")
			for range 3 {
				if err == nil {
					_, err = later.add(s)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			a, err := s.Lookup(t.Context(), s.key)
			if err != nil || hitID(a) != want {
				t.Errorf("hit is %q, %v, want %q", hitID(a), err, want)
			}
			if len(a.Passed) != 3 {
				t.Errorf("passed over %v, want 3", a.Passed)
			}
		})
	}
}

func TestLookupHit(t *testing.T) {
	s := newShelf()
	id, err := s.add(record.Success, "made")
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Lookup(t.Context(), s.key)
	if err != nil {
		t.Fatal(err)
	}
	want := objectstore.Sum([]byte("made1"))
	if a.Hit == nil || a.Hit.ExecutionID != id || a.Hit.Output != want || a.Hit.Size != 5 {
		t.Fatalf("hit is %+v, want %s with output %s of 5 bytes", a.Hit, id, want)
	}
	if a.Latest == nil || a.Latest.ExecutionID != id {
		t.Errorf("the latest is %+v, want %s", a.Latest, id)
	}
}

// Stray files in an execution folder are no executions.
func TestLookupStrays(t *testing.T) {
	s := newShelf()
	want, err := s.add(record.Success, "made")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".DS_Store", "zzz", "ffffffff-ffff-4fff-8fff-ffffffffffff"} {
		if err := s.put(name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	a, err := s.Lookup(t.Context(), s.key)
	if err != nil || hitID(a) != want || len(a.Passed) > 0 {
		t.Errorf("got %+v, %v, want only the hit %s", a, err, want)
	}
	for e, err := range s.List(t.Context(), s.key) {
		if err != nil || e.ExecutionID != want {
			t.Errorf("List yields %+v, %v, want only %s", e, err, want)
		}
	}
}

// A store that cannot be read is an error, because a miss would run everything again.
func TestLookupStoreFails(t *testing.T) {
	s := newShelf()
	if _, err := s.add(record.Success, "made"); err != nil {
		t.Fatal(err)
	}
	s.objects.fault = errors.New("input/output error")
	if a, err := s.Lookup(t.Context(), s.key); !errors.Is(err, s.objects.fault) {
		t.Errorf("objects: got %+v, %v, want the fault", a, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a, err := s.Lookup(ctx, s.key); !errors.Is(err, context.Canceled) {
		t.Errorf("records: got %+v, %v, want the fault", a, err)
	}
}

func TestFind(t *testing.T) {
	s := newShelf()
	for _, id := range []string{"01a1fa79-f9af-7978-9210-86d7c19ce1c5", "01a1fa79-f9d3-7c93-b4fe-94661804c75e"} {
		if err := s.put(id, (&record.Status{State: record.Failed, ExecutionID: id}).Encode()); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		prefix, want string
		err          error
	}{
		{"01a1fa79-f9af-7978-9210-86d7c19ce1c5", "01a1fa79-f9af-7978-9210-86d7c19ce1c5", nil},
		{"01A1FA79-F9AF-7978-9210-86D7C19CE1C5", "01a1fa79-f9af-7978-9210-86d7c19ce1c5", nil},
		{"01a1fa79-f9af-7978-9210-86d7c19ce1c6", "", executions.ErrNotFound},
		{"01a1fa79-f9d", "01a1fa79-f9d3-7c93-b4fe-94661804c75e", nil},
		{"01A1FA79-F9D", "01a1fa79-f9d3-7c93-b4fe-94661804c75e", nil},
		{"01a1fa79-f9", "", executions.ErrAmbiguous},
		{"", "", executions.ErrAmbiguous},
		{"02", "", executions.ErrNotFound},
	} {
		e, err := s.Find(t.Context(), s.key, test.prefix)
		if !errors.Is(err, test.err) || err == nil && e.ExecutionID != test.want {
			t.Errorf("%q: got %v, %v, want %s, %v", test.prefix, e, err, test.want, test.err)
		}
	}
}

// List continues after an execution that cannot be read.
func TestListMalformed(t *testing.T) {
	s := newShelf()
	var want []string
	for _, k := range []string{"success", "malformed", "failed"} {
		i := slices.IndexFunc(items, func(it item) bool { return it.name == k })
		id, err := items[i].add(s)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, id)
	}
	slices.Reverse(want)
	var got []string
	for e, err := range s.List(t.Context(), s.key) {
		if err != nil {
			if !errors.Is(err, executions.ErrMalformed) || !strings.Contains(err.Error(), want[1]) {
				t.Errorf("error is %v, want ErrMalformed with the id", err)
			}
			got = append(got, want[1])
			continue
		}
		got = append(got, e.ExecutionID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
