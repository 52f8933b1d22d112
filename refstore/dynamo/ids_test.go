package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/refstore"
	"e3/refstore/dynamo"
)

// TestFindExecutions: an execution is found by its id, or the beginning of it, under whatever key, until it is gone.
func TestFindExecutions(t *testing.T) {
	onServers(t, func(t *testing.T, server server) {
		o := server.options(t)
		s := open(t, o)
		other := o
		other.Repository += "2"
		ctx := t.Context()
		find := func(s *dynamo.Store, prefix string) []string {
			t.Helper()
			var keys []string
			for key, err := range s.FindExecutions(ctx, prefix) {
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, key.String())
			}
			slices.Sort(keys)
			return keys
		}
		versions := map[refstore.Key]refstore.Version{}
		for i := range 40 {
			key := refstore.Key{
				Partition: fmt.Sprintf("EXECUTION/task%d/inputs%d", i%3, i%5),
				Sort:      fmt.Sprintf("0190%04x-0000-7000-8000-%012x", i/4, i*7),
			}
			versions[key] = put(t, s, refstore.Record{Key: key, Value: []byte("x")})
		}
		for i := range 20 { // too many to list one by one
			key := refstore.Key{Partition: fmt.Sprintf("EXECUTION/task1/many%d", i), Sort: fmt.Sprintf("0190%04x-0000-7000-8000-%012x", i/4, 1000+i)}
			versions[key] = put(t, s, refstore.Record{Key: key, Value: []byte("x")})
		}
		twice := refstore.Key{Partition: "EXECUTION/else/where", Sort: "01900000-0000-7000-8000-000000000000"}
		versions[twice] = put(t, s, refstore.Record{Key: twice, Value: []byte("x")})
		put(t, s, refstore.Record{Key: refstore.Key{Partition: "EXECUTION/task0/inputs0", Sort: "no id"}, Value: []byte("x")})
		put(t, s, refstore.Record{Key: refstore.Key{Partition: "PIN", Sort: "01900000-0000-7000-8000-00000000000a"}, Value: []byte("x")})
		for _, task := range []string{"task0", "task1", "else", "none"} {
			for _, after := range []string{"", "01900003-0000-7000-8000-000000000054", twice.Sort, "02"} {
				var got, want []string
				for key, err := range s.ExecutionsAfter(ctx, task, after) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, key.String())
				}
				for key := range versions {
					if strings.HasPrefix(key.Partition, "EXECUTION/"+task+"/") && key.Sort > after {
						want = append(want, key.String())
					}
				}
				got = slices.DeleteFunc(got, func(key string) bool { return strings.HasSuffix(key, "no id") })
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s after %q: got %q, want %q", task, after, got, want)
				}
			}
		}
		for _, prefix := range []string{"", "0190", "01900003", "0190000", twice.Sort, "01900001-0000-7000-8000-00000000001c", "0191", "a/b", strings.Repeat("f", 36)} {
			var want []string
			for key := range versions {
				if strings.HasPrefix(key.Sort, prefix) {
					want = append(want, key.String())
				}
			}
			slices.Sort(want)
			if got := find(s, prefix); !slices.Equal(got, want) {
				t.Errorf("%q: got %q, want %q", prefix, got, want)
			}
			if got := find(open(t, other), prefix); len(got) > 0 {
				t.Errorf("%q: another repository has %q", prefix, got)
			}
		}
		if err := s.Delete(ctx, twice, "wrong"); !errors.Is(err, refstore.ErrConflict) {
			t.Errorf("delete with another version: got %v, want a conflict", err)
		}
		if got := find(s, twice.Sort); len(got) != 2 {
			t.Errorf("after a deletion that failed: found %q, want two", got)
		}
		for key, v := range versions {
			if err := s.Delete(ctx, key, v); err != nil {
				t.Fatal(err)
			}
		}
		if got := find(s, "0190"); len(got) > 0 {
			t.Errorf("after all were deleted: found %q", got)
		}
	})
}

// TestPermit: a process that has lost its lease sends no further write, not even a retry; reads continue.
func TestPermit(t *testing.T) {
	onServers(t, func(t *testing.T, server server) {
		o := server.options(t)
		lost := errors.New("lost")
		var asked []string
		var refuse bool
		o.Permit = func(_ context.Context, partition string, _ time.Time) error {
			asked = append(asked, partition)
			if refuse && partition != "LEASE/sessions" {
				return lost
			}
			return nil
		}
		s := open(t, o)
		ctx := t.Context()
		r := refstore.Record{Key: refstore.Key{Partition: "WORKSPACE", Sort: "a"}, Value: []byte("1")}
		r.Version = put(t, s, r)
		if !slices.Equal(asked, []string{"WORKSPACE"}) {
			t.Errorf("asked for %q, want one write to WORKSPACE", asked)
		}
		refuse = true
		stream := refstore.Key{Partition: "EVENTS/a", Sort: "1"}
		for name, write := range map[string]func() error{
			"create": func() error {
				_, err := s.Put(ctx, refstore.Record{Key: refstore.Key{Partition: "WORKSPACE", Sort: "b"}})
				return err
			},
			"execution": func() error {
				_, err := s.Put(ctx, refstore.Record{Key: refstore.Key{Partition: "EXECUTION/a/b", Sort: "1"}})
				return err
			},
			"update": func() error { _, err := s.Put(ctx, r); return err },
			"delete": func() error { return s.Delete(ctx, r.Key, r.Version) },
			"append": func() error { return s.Append(ctx, stream, 0, []byte("x")) },
		} {
			if err := write(); !errors.Is(err, lost) {
				t.Errorf("%s: got %v, want what Permit says", name, err)
			}
		}
		put(t, s, refstore.Record{Key: refstore.Key{Partition: "LEASE/sessions", Sort: "a"}})
		refuse = false
		if got, err := s.Get(ctx, r.Key); err != nil || string(got.Value) != "1" || got.Version != r.Version {
			t.Errorf("got %q at %q, %v: something was written", got.Value, got.Version, err)
		}
		if _, err := s.Size(context.WithoutCancel(ctx), stream); !errors.Is(err, refstore.ErrNotFound) {
			t.Errorf("the stream: got %v, want none", err)
		}
	})
}
