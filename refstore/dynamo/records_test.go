package dynamo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"e3/refstore"
	"e3/refstore/dynamo"
)

var execution = refstore.Key{Partition: "EXECUTION/task/inputs", Sort: "id"}

// put puts a record that must be accepted.
func put(t testing.TB, s *dynamo.Store, r refstore.Record) refstore.Version {
	t.Helper()
	v, err := s.Put(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sorts lists a partition.
func sorts(t testing.TB, s *dynamo.Store, partition string) []string {
	t.Helper()
	var got []string
	for r, err := range s.List(t.Context(), refstore.Query{Partition: partition, KeysOnly: true}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Key.Sort)
	}
	return got
}

func TestRepositoriesAreApart(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		o := srv.options(t)
		names := []string{"a", "a.b", "A", "a-b", o.Repository}
		for _, name := range names {
			o.Repository, o.Blobs = name, newBlobs()
			s := open(t, o)
			put(t, s, refstore.Record{Key: execution, Value: []byte(name)})
			put(t, s, refstore.Record{Key: refstore.Key{Partition: "WORKSPACE", Sort: "w"}, Value: []byte(name)})
			if err := s.Append(t.Context(), refstore.Key{Partition: "EVENTS/" + name, Sort: "r"}, 0, []byte(name)); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range names {
			o.Repository = name
			s := open(t, o)
			for r, err := range s.List(t.Context(), refstore.Query{Partition: "WORKSPACE"}) {
				if err != nil || string(r.Value) != name {
					t.Errorf("repository %s has the record %q, %v", name, r.Value, err)
				}
			}
			var events []string
			for p, err := range s.ListPartitions(t.Context(), "EVENTS") {
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, p)
			}
			if want := []string{"EVENTS/" + name}; !slices.Equal(events, want) {
				t.Errorf("repository %s has the partitions %q, want %q", name, events, want)
			}
		}
	})
}

func TestOpenRefusesNames(t *testing.T) {
	for _, o := range []dynamo.Options{
		{Table: "t!", Repository: "r", Blobs: newBlobs()},
		{Table: "ta", Repository: "r", Blobs: newBlobs()},
		{Table: "table", Repository: "", Blobs: newBlobs()},
		{Table: "table", Repository: "a/b", Blobs: newBlobs()},
		{Table: "table", Repository: ".a", Blobs: newBlobs()},
		{Table: "table", Repository: strings.Repeat("a", 65), Blobs: newBlobs()},
		{Table: "table", Repository: "r"},
	} {
		if _, err := dynamo.Open(o); !errors.Is(err, refstore.ErrInvalid) {
			t.Errorf("open %q, %q: got error %v, want %v", o.Table, o.Repository, err, refstore.ErrInvalid)
		}
	}
}

func TestLargeRecords(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		o := srv.options(t)
		b := o.Blobs.(*blobs)
		s := open(t, o)
		want := func(when string, n int) {
			t.Helper()
			if got := b.names(); len(got) != n {
				t.Errorf("%s there are the blobs %q, want %d", when, got, n)
			}
		}
		big, small := bytes.Repeat([]byte("b"), 40<<10), []byte("small")
		v := put(t, s, refstore.Record{Key: execution, Value: small, Fields: []refstore.Field{{Name: "big", Value: big}, {Name: "s", Value: small}}})
		want("after a large creation", 1)
		for _, name := range b.names() {
			if !strings.HasPrefix(name, "records/") {
				t.Errorf("blob %q is not below records/", name)
			}
		}
		r, err := s.Get(t.Context(), execution, "big", "s")
		if err != nil || !bytes.Equal(r.Value, small) || !bytes.Equal(r.Fields[0].Value, big) || !bytes.Equal(r.Fields[1].Value, small) {
			t.Fatalf("got %.200v, %v", r, err)
		}
		v = put(t, s, refstore.Record{Key: execution, Value: big, Version: v})
		want("after the value has grown too", 2)
		if _, err := s.Put(t.Context(), refstore.Record{Key: execution, Value: big}); !errors.Is(err, refstore.ErrConflict) {
			t.Errorf("create what exists: got error %v, want %v", err, refstore.ErrConflict)
		}
		want("after a conflict", 3) // the request may be delivered again
		if n, err := s.RemoveLeftovers(t.Context(), time.Now().Add(time.Hour)); n != 1 || err != nil {
			t.Errorf("%d leftovers went, %v; want 1", n, err)
		}
		want("after the leftover has gone", 2)
		v = put(t, s, refstore.Record{Key: execution, Value: small, Fields: []refstore.Field{{Name: "big", Value: small}}, Version: v})
		want("after all was overwritten", 0)
		v = put(t, s, refstore.Record{Key: execution, Value: big, Fields: []refstore.Field{{Name: "big", Value: big}}, Version: v})
		want("after all has grown", 2)
		if err := s.Delete(t.Context(), execution, v); err != nil {
			t.Fatal(err)
		}
		want("after deletion", 0)
	})
}

// TestManyFields puts many fields, one after another, none of which is large.
func TestManyFields(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		s := open(t, srv.options(t))
		r := refstore.Record{Key: refstore.Key{Partition: "INDEX/a", Sort: "a"}}
		field := bytes.Repeat([]byte("f"), 30<<10)
		var names []string
		for i := range 20 {
			names = append(names, fmt.Sprintf("field %d", i))
			r.Fields = []refstore.Field{{Name: names[i], Value: field}}
			r.Version = put(t, s, r)
		}
		got, err := s.Get(t.Context(), r.Key, names...)
		if err != nil || len(got.Fields) != len(names) {
			t.Fatalf("got %d fields, %v, want %d", len(got.Fields), err, len(names))
		}
		for _, f := range got.Fields {
			if !bytes.Equal(f.Value, field) {
				t.Errorf("field %q has other bytes than were written", f.Name)
			}
		}
	})
}

func TestDamagedBlobs(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(b *blobs, name string)
	}{
		{"gone", func(b *blobs, name string) { delete(b.data, name) }},
		{"empty", func(b *blobs, name string) { b.data[name] = nil }},
		{"cut", func(b *blobs, name string) { b.data[name] = b.data[name][:len(b.data[name])-1] }},
		{"changed", func(b *blobs, name string) { b.data[name][len(b.data[name])-1] ^= 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := minidyn().options(t)
			b := o.Blobs.(*blobs)
			s := open(t, o)
			put(t, s, refstore.Record{Key: execution, Value: make([]byte, 40<<10)})
			c.damage(b, b.names()[0])
			_, err := s.Get(t.Context(), execution)
			if err == nil || errors.Is(err, refstore.ErrNotFound) || !strings.Contains(err.Error(), "records/") {
				t.Errorf("get: got error %v, want one that names the blob", err)
			}
			for _, err := range s.List(t.Context(), refstore.Query{Partition: execution.Partition}) {
				if err == nil || errors.Is(err, refstore.ErrNotFound) {
					t.Errorf("list: got error %v, want one that names the blob", err)
				}
			}
		})
	}
}

// TestReadWhileOverwriting reads a large record that is being overwritten: its blobs are deleted during the read.
func TestReadWhileOverwriting(t *testing.T) {
	s := open(t, minidyn().options(t))
	big := func(c byte) []byte { return bytes.Repeat([]byte{c}, 40<<10) }
	r := refstore.Record{Key: execution, Value: big('a')}
	r.Version = put(t, s, r)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		defer stop()
		for i := range 100 {
			r.Value = big('a' + byte(i%20))
			var err error
			if r.Version, err = s.Put(t.Context(), r); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for ctx.Err() == nil {
		got, err := s.Get(t.Context(), execution)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Value, big(got.Value[0])) {
			t.Fatal("got a mixture of two values")
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestEnumerations(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		o := srv.options(t)
		s := open(t, o)
		v := put(t, s, refstore.Record{Key: execution})
		put(t, s, refstore.Record{Key: refstore.Key{Partition: "EXECUTION/task/other", Sort: "id"}})
		put(t, s, refstore.Record{Key: refstore.Key{Partition: "DATAFLOW/w", Sort: "run"}})
		for partition, want := range map[string][]string{"TASKS": {"task"}, "INPUTS/task": {"inputs", "other"}, "INPUTS/none": nil, "RUNS": {"w"}} {
			if got := sorts(t, s, partition); !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", partition, got, want)
			}
		}
		if r, err := s.Get(t.Context(), refstore.Key{Partition: "TASKS", Sort: "task"}); err != nil || r.Version == refstore.Absent || len(r.Value) > 0 {
			t.Errorf("get: got %+v, %v, want a record without a value", r, err)
		}
		if err := s.Delete(t.Context(), execution, v); err != nil {
			t.Fatal(err)
		}
		for _, partition := range []string{"EXECUTION/task", "EXECUTION/task/inputs/more", "EXECUTION", "EXECUTION//inputs", "DATAFLOW", "DATAFLOW/a/b"} {
			if _, err := s.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: partition, Sort: "a"}}); !errors.Is(err, refstore.ErrInvalid) {
				t.Errorf("put in %s: got error %v, want %v", partition, err, refstore.ErrInvalid)
			}
		}
		tasks := refstore.Key{Partition: "TASKS", Sort: "task"}
		if _, err := s.Put(t.Context(), refstore.Record{Key: tasks, Value: []byte("x")}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("put of a task with a value: got error %v, want %v", err, errors.ErrUnsupported)
		}
		if err := s.Delete(t.Context(), tasks, "0"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("delete of a task: got error %v, want %v", err, errors.ErrUnsupported)
		}
	})
}

// TestLogsGoWithTheirExecution deletes an execution that has logs, short and long.
func TestLogsGoWithTheirExecution(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		o := srv.options(t)
		s := open(t, o)
		v := put(t, s, refstore.Record{Key: execution, Fields: []refstore.Field{{Name: "stderr.txt", Value: []byte("short")}}})
		log := refstore.Key{Partition: "LOG/task/inputs/id", Sort: "stdout.txt"}
		other := refstore.Key{Partition: "LOG/task/inputs/id2", Sort: "stdout.txt"}
		for _, key := range []refstore.Key{log, other} {
			if err := s.Append(t.Context(), key, 0, make([]byte, 100<<10)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Delete(t.Context(), execution, v); err != nil {
			t.Fatal(err)
		}
		for _, sort := range []string{"stdout.txt", "stderr.txt"} {
			if _, err := s.Size(t.Context(), refstore.Key{Partition: log.Partition, Sort: sort}); !errors.Is(err, refstore.ErrNotFound) {
				t.Errorf("size of %s: got error %v, want %v", sort, err, refstore.ErrNotFound)
			}
		}
		if _, err := s.Size(t.Context(), other); err != nil {
			t.Errorf("size of another execution's log: %v", err)
		}
		if got := o.Blobs.(*blobs).names(); len(got) != 1 {
			t.Errorf("there are the blobs %q, want one", got)
		}
		var partitions []string
		for p, err := range s.ListPartitions(t.Context(), "LOG") {
			if err != nil {
				t.Fatal(err)
			}
			partitions = append(partitions, p)
		}
		if want := []string{other.Partition}; !slices.Equal(partitions, want) {
			t.Errorf("got the partitions %q, want %q", partitions, want)
		}
	})
}

// TestHostileItems reads items that this program cannot have written.
func TestHostileItems(t *testing.T) {
	o := minidyn().options(t)
	s := open(t, o)
	client := dynamodb.NewFromConfig(o.Config, func(c *dynamodb.Options) { c.BaseEndpoint = &o.Endpoint })
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	size := func(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }
	binary := func(n int) types.AttributeValue { return &types.AttributeValueMemberB{Value: make([]byte, n)} }
	blob := func(name, length string, sum int) types.AttributeValue {
		return &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{"n": text(name), "s": size(length), "h": binary(sum)}}
	}
	key := refstore.Key{Partition: "EVENTS/w", Sort: "r"}
	for _, c := range []struct {
		name string
		item map[string]types.AttributeValue
	}{
		{"nothing", nil},
		{"no version", map[string]types.AttributeValue{"d": binary(1)}},
		{"version of another type", map[string]types.AttributeValue{"v": size("1"), "d": binary(1)}},
		{"value of another type", map[string]types.AttributeValue{"v": text("1"), "d": text("x"), "n": text("x")}},
		{"an empty map", map[string]types.AttributeValue{"v": text("1"), "d": &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{}}, "n": size("-1")}},
		{"a blob elsewhere", map[string]types.AttributeValue{"v": text("1"), "d": blob("../objects/x", "1", 32), "n": size("1")}},
		{"a negative blob", map[string]types.AttributeValue{"v": text("1"), "d": blob("x", "-1", 32), "n": size("99999999999999999999")}},
		{"a short sum", map[string]types.AttributeValue{"v": text("1"), "d": blob("x", "1", 31), "n": size("1"), "t": binary(2)}},
		{"a blob that is not there", map[string]types.AttributeValue{"v": text("1"), "d": blob("x", "9223372036854775807", 32), "n": size("24"), "p": binary(24)}},
		{"torn parts", map[string]types.AttributeValue{"v": text("1"), "n": size("1"), "p": binary(23)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for prefix, use := range map[string]func() error{
				"": func() error {
					_, err := s.Get(t.Context(), key)
					for _, listed := range s.List(t.Context(), refstore.Query{Partition: key.Partition}) {
						if listed == nil {
							t.Error("list: got no error")
						}
					}
					return err
				},
				"STREAM.": func() error {
					if err := s.Append(t.Context(), key, 0, []byte("x")); err == nil {
						t.Error("append: got no error")
					}
					r, err := s.Open(t.Context(), key, 0)
					if err != nil {
						t.Fatal(err)
					}
					_, err = io.ReadAll(r)
					return errors.Join(err, r.Close())
				},
			} {
				item := map[string]types.AttributeValue{"PK": text(prefix + "EVENTS/" + o.Repository + "/w"), "SK": text("r")}
				for name, value := range c.item {
					item[name] = value
				}
				if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &o.Table, Item: item}); err != nil {
					t.Fatal(err)
				}
				err := use()
				if err == nil || errors.Is(err, refstore.ErrNotFound) || !strings.Contains(err.Error(), "EVENTS/"+o.Repository+"/w") {
					t.Errorf("%q: got error %v, want one that names the item", prefix, err)
				}
			}
		})
	}
}
