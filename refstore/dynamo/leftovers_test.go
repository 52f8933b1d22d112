package dynamo_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/dynamo"
)

func TestBlobLeftovers(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		o := srv.options(t)
		b := o.Blobs.(*blobs)
		s := open(t, o)
		put(t, s, refstore.Record{Key: execution, Value: make([]byte, 50<<10)})
		pieces(t, s, events, nil, 3, 10<<10)
		used := b.names()
		// Remains of crashes, in the folders of existing and of deleted records.
		gone := execution
		gone.Sort = "gone"
		goneStream := refstore.Key{Partition: "EVENTS/w", Sort: "gone"}
		v := put(t, s, refstore.Record{Key: gone, Value: make([]byte, 50<<10)})
		pieces(t, s, goneStream, nil, 1, 10<<10)
		left := slices.DeleteFunc(b.names(), func(name string) bool { return slices.Contains(used, name) })
		for _, name := range used {
			left = append(left, name+"-left")
			b.data[name+"-left"] = b.data[name]
		}
		kept := map[string][]byte{}
		for _, name := range left {
			kept[name] = b.data[name]
		}
		if err := errors.Join(s.Delete(t.Context(), gone, v), s.Remove(t.Context(), goneStream)); err != nil {
			t.Fatal(err)
		}
		foreign := map[string][]byte{"records/of nobody": []byte("x"), "records/aa/b": nil, "streams/aa/b": bytes.Repeat([]byte{0xff}, 100), "objects/x": nil}
		young := b.now
		for _, some := range []map[string][]byte{kept, foreign} {
			for name, data := range some {
				b.data[name], b.at[name] = data, young
			}
		}
		if n, err := s.RemoveLeftovers(t.Context(), young); n != 0 || err != nil {
			t.Errorf("before anything is old: removed %d, %v, want 0", n, err)
		}
		if n, err := s.RemoveLeftovers(t.Context(), young.Add(time.Second)); n != len(left) || err != nil {
			t.Errorf("removed %d, %v, want %d", n, err, len(left))
		}
		want := slices.Clone(used)
		for name := range foreign {
			want = append(want, name)
		}
		slices.Sort(want)
		if got := b.names(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := len(read(t, s, events, 0)); got != 30<<10 {
			t.Errorf("the stream has %d bytes, want %d", got, 30<<10)
		}
	})
}

// TestDeadEnumerations: enumeration items are removed once they have no executions any more, and only then.
func TestDeadEnumerations(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		o := srv.options(t)
		now := time.Now()
		o.Now = func() time.Time { return now }
		s, other := open(t, o), open(t, o)
		inputs := func(name string) refstore.Key {
			return refstore.Key{Partition: "EXECUTION/task/" + name, Sort: "id"}
		}
		want := func(when string, tasks, inputs []string) {
			t.Helper()
			if got := sorts(t, s, "TASKS"); !slices.Equal(got, tasks) {
				t.Errorf("%s: got the tasks %q, want %q", when, got, tasks)
			}
			if got := sorts(t, s, "INPUTS/task"); !slices.Equal(got, inputs) {
				t.Errorf("%s: got the inputs %q, want %q", when, got, inputs)
			}
		}
		sweep := func(after time.Duration) {
			t.Helper()
			now = now.Add(after)
			if _, err := s.RemoveLeftovers(t.Context(), now); err != nil {
				t.Fatal(err)
			}
		}
		remove := func(name string, v refstore.Version) {
			t.Helper()
			if err := s.Delete(t.Context(), inputs(name), v); err != nil {
				t.Fatal(err)
			}
		}
		a, b := put(t, s, refstore.Record{Key: inputs("a")}), put(t, s, refstore.Record{Key: inputs("b")})
		task := []string{"task"}
		remove("a", a)
		sweep(time.Hour)
		want("soon after", task, []string{"a", "b"})
		// Another process, which has not put the item before, puts a record.
		a = put(t, other, refstore.Record{Key: inputs("a")})
		sweep(25 * time.Hour)
		want("when there is one again", task, []string{"a", "b"})
		remove("a", a)
		sweep(25 * time.Hour)
		want("a day after", task, []string{"b"})
		remove("b", b)
		sweep(25 * time.Hour)
		want("when the task has none", task, nil)
		sweep(25 * time.Hour)
		want("a day after that", nil, nil)
		put(t, s, refstore.Record{Key: inputs("a")})
		want("when it is executed again", task, []string{"a"})
	})
}

// TestDyingLogs continues the deletion of an execution that was interrupted after the deletion of the record.
func TestDyingLogs(t *testing.T) {
	o := minidyn().options(t)
	o.Patience = 50 * time.Millisecond
	s := open(t, o)
	broken, p := behind(t, o)
	v := put(t, s, refstore.Record{Key: execution})
	log := refstore.Key{Partition: "LOG/task/inputs/id", Sort: "stdout.txt"}
	pieces(t, s, log, nil, 3, 10<<10)
	p.Faults(1, testserver.Rule{Op: "DeleteItem", Skip: 1, Fault: testserver.DropBefore})
	if err := broken.Delete(t.Context(), execution, v); err == nil {
		t.Fatal("the deletion was to be cut off")
	}
	if _, err := s.Get(t.Context(), execution); !errors.Is(err, refstore.ErrNotFound) {
		t.Fatalf("get: got error %v, want %v", err, refstore.ErrNotFound)
	}
	if _, err := s.RemoveLeftovers(t.Context(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Size(t.Context(), log); err != nil {
		t.Errorf("soon after: %v", err)
	}
	// The logs, and the enumeration item.
	if n, err := s.RemoveLeftovers(t.Context(), time.Now().Add(25*time.Hour)); n != 2 || err != nil {
		t.Errorf("a day after: removed %d, %v, want 2", n, err)
	}
	if _, err := s.Size(t.Context(), log); !errors.Is(err, refstore.ErrNotFound) {
		t.Errorf("a day after: got error %v, want %v", err, refstore.ErrNotFound)
	}
	if got := o.Blobs.(*blobs).names(); len(got) > 0 {
		t.Errorf("a day after there are the blobs %q", got)
	}
}

// daily returns a function that removes leftovers some time later, after the end of all earlier sessions, and returns
// their number.
func daily(t *testing.T, o *dynamo.Options) (sweep func(s *dynamo.Store, after time.Duration) (int, error)) {
	now := time.Now()
	o.Now = func() time.Time { return now }
	return func(s *dynamo.Store, after time.Duration) (int, error) {
		now = now.Add(after)
		return s.RemoveLeftovers(t.Context(), now)
	}
}

// TestLogsWithoutRecord removes the logs of an execution whose process died before it had a record, and no others.
func TestLogsWithoutRecord(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		o := srv.options(t)
		sweep := daily(t, &o)
		s := open(t, o)
		dead, late := refstore.Key{Partition: "LOG/task/inputs/dead", Sort: "stdout.txt"}, refstore.Key{Partition: "LOG/task/inputs/id", Sort: "stdout.txt"}
		want := func(when string, after time.Duration, n int, logs ...refstore.Key) {
			t.Helper()
			if got, err := sweep(s, after); got != n || err != nil {
				t.Errorf("%s: removed %d, %v, want %d", when, got, err, n)
			}
			for _, log := range []refstore.Key{dead, late} {
				_, err := s.Size(t.Context(), log)
				if there := slices.Contains(logs, log); there && err != nil || !there && !errors.Is(err, refstore.ErrNotFound) {
					t.Errorf("%s: %s: %v", when, log, err)
				}
			}
		}
		pieces(t, s, dead, nil, 3, 10<<10)
		want("at first", 25*time.Hour, 0, dead)
		pieces(t, s, late, nil, 3, 10<<10)
		want("soon", time.Hour, 0, dead, late)
		v := put(t, s, refstore.Record{Key: execution})
		want("a day after", 25*time.Hour, 1, late)
		want("another day after", 25*time.Hour, 0, late)
		if err := s.Delete(t.Context(), execution, v); err != nil {
			t.Fatal(err)
		}
		want("without the other", 0, 0)
		if got := o.Blobs.(*blobs).names(); len(got) > 0 {
			t.Errorf("there are the blobs %q", got)
		}
		for p, err := range s.ListPartitions(t.Context(), "LOG") {
			t.Errorf("there is %s, %v", p, err)
		}
	})
}

// TestUndatedEnumerations: enumeration items of executions or runs that a crash left without a date are removed.
func TestUndatedEnumerations(t *testing.T) {
	o := minidyn().options(t)
	o.Patience = 50 * time.Millisecond
	sweep := daily(t, &o)
	s := open(t, o)
	broken, p := behind(t, o)
	want := func(when string, after time.Duration, tasks, inputs, runs []string) {
		t.Helper()
		if _, err := sweep(s, after); err != nil {
			t.Fatal(err)
		}
		for partition, want := range map[string][]string{"TASKS": tasks, "INPUTS/task": inputs, "RUNS": runs} {
			if got := sorts(t, s, partition); !slices.Equal(got, want) {
				t.Errorf("%s: got the %s %q, want %q", when, partition, got, want)
			}
		}
	}
	task, inputs, run := []string{"task"}, []string{"inputs"}, []string{"w"}
	record := refstore.Key{Partition: "DATAFLOW/w", Sort: "r"}
	v, r := put(t, s, refstore.Record{Key: execution}), put(t, s, refstore.Record{Key: record})
	pieces(t, s, events, nil, 1, 10)

	p.Faults(1, testserver.Rule{Op: "Query", Skip: 1, Fault: testserver.DropBefore})
	if err := broken.Delete(t.Context(), execution, v); err == nil {
		t.Fatal("the deletion was to be cut off")
	}
	want("after the deletion was cut off", time.Hour, task, inputs, run)
	p.Faults(1, testserver.Rule{Op: "UpdateItem", Fault: testserver.DropBefore})
	if _, err := sweep(broken, 25*time.Hour); err == nil {
		t.Fatal("the collection was to be cut off")
	}
	if err := s.Delete(t.Context(), record, r); err != nil {
		t.Fatal(err)
	}
	want("after the collection was cut off", 0, task, nil, run)
	want("a day after", 25*time.Hour, nil, nil, run) // it has events
	if err := s.Remove(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	want("without events", 0, nil, nil, run)
	r = put(t, open(t, o), refstore.Record{Key: record})
	want("when there is a run again", 25*time.Hour, nil, nil, run)
	if err := s.Delete(t.Context(), record, r); err != nil {
		t.Fatal(err)
	}
	want("without runs", 0, nil, nil, run)
	want("a day after that", 25*time.Hour, nil, nil, nil)
}
