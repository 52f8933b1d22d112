// Package modeltest drives a store and a model of it with the same random calls. It is apart from
// [e3/refstore/refstoretest] because it links package testing.
package modeltest

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"e3/refstore"
)

// Store is the store under test.
type Store interface {
	refstore.Store
	refstore.Streams
}

// Check runs random calls against stores that open makes, and compares every answer with the model's.
func Check(t *testing.T, open func(t *rapid.T) Store) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{
			store: open(rt), ctx: t,
			records: make(map[refstore.Key]*record), used: make(map[refstore.Key]map[refstore.Version]bool),
			streams: make(map[refstore.Key]*stream),
		}
		rt.Repeat(rapid.StateMachineActions(m))
	})
}

type machine struct {
	store   Store
	ctx     testing.TB
	records map[refstore.Key]*record
	used    map[refstore.Key]map[refstore.Version]bool // every version that a key had
	streams map[refstore.Key]*stream
}

type record struct {
	value   []byte
	fields  map[string][]byte
	version refstore.Version
}

type stream struct {
	data   []byte
	sealed bool
}

// An execution, and a log of it that may be older than its record.
var (
	logged      = refstore.Key{Partition: "EXECUTION/t/i", Sort: "a"}
	logOfLogged = refstore.Key{Partition: "LOG/t/i/a", Sort: "stdout.txt"}
)

var (
	recordKeys = rapid.Map(rapid.Custom(func(t *rapid.T) [2]string {
		return [2]string{
			rapid.SampledFrom([]string{"INDEX/a", "INDEX/a/b", "EXECUTION/t/i", "QUEUE/q", "WORKSPACE", "PACKAGE"}).Draw(t, "partition"),
			rapid.SampledFrom([]string{"a", "a/b", "b/é", "../c", "b"}).Draw(t, "sort"),
		}
	}), func(k [2]string) refstore.Key {
		if k[0] == "PACKAGE" { // its sort keys are pairs
			k[1] = "p/" + k[1]
		}
		return refstore.Key{Partition: k[0], Sort: k[1]}
	})
	streamKeys = rapid.SampledFrom([]refstore.Key{
		{Partition: "EVENTS/w", Sort: "r"}, logOfLogged, {Partition: "LOG/t/i/x", Sort: "other"},
	})
	fieldNames = rapid.SampledFrom([]string{"output", "detail.beast2", "f/g"})
	contents   = rapid.SliceOfN(rapid.Byte(), 0, 20)
)

// Check compares everything after each call.
func (m *machine) Check(t *rapid.T) {
	for key, want := range m.streams {
		info, err := m.store.Size(m.ctx.Context(), key)
		if err != nil || info.Size != int64(len(want.data)) || info.Sealed != want.sealed {
			t.Fatalf("size of %q: got %+v, %v, want %d, %v", key, info, err, len(want.data), want.sealed)
		}
	}
}

// version draws the key's current version, one that it had, or absence.
func (m *machine) version(t *rapid.T, key refstore.Key) refstore.Version {
	old := slices.Sorted(maps.Keys(m.used[key]))
	choices := append(old, refstore.Absent)
	if rec := m.records[key]; rec != nil {
		choices = append(choices, rec.version, rec.version, rec.version)
	}
	// Versions differ from run to run, so what is drawn is an index.
	return choices[rapid.IntRange(0, 1<<20).Draw(t, "version")%len(choices)]
}

func (m *machine) current(key refstore.Key) refstore.Version {
	if rec := m.records[key]; rec != nil {
		return rec.version
	}
	return refstore.Absent
}

// Put puts with a version that is right or wrong.
func (m *machine) Put(t *rapid.T) {
	key := recordKeys.Draw(t, "key")
	r := refstore.Record{Key: key, Value: contents.Draw(t, "value"), Version: m.version(t, key)}
	for _, name := range rapid.SliceOfNDistinct(fieldNames, 0, 2, rapid.ID).Draw(t, "fields") {
		r.Fields = append(r.Fields, refstore.Field{Name: name, Value: contents.Draw(t, "field")})
	}
	v, err := m.store.Put(m.ctx.Context(), r)
	if r.Version != m.current(key) {
		wantErr(t, "put", err, refstore.ErrConflict)
		return
	}
	if err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
	if m.used[key][v] || v == refstore.Absent {
		t.Fatalf("put %q: version %q recurs", key, v)
	}
	if m.used[key] == nil {
		m.used[key] = make(map[refstore.Version]bool)
	}
	m.used[key][v] = true
	rec := m.records[key]
	if rec == nil {
		rec = &record{fields: make(map[string][]byte)}
		m.records[key] = rec
	}
	rec.value, rec.version = r.Value, v
	for _, f := range r.Fields {
		rec.fields[f.Name] = f.Value
	}
}

// Delete deletes with a version that is right or wrong.
func (m *machine) Delete(t *rapid.T) {
	key := recordKeys.Draw(t, "key")
	if key == logged && m.streams[logOfLogged] != nil {
		t.Skip("a backend may delete the logs of an execution with it")
	}
	v := m.version(t, key)
	err := m.store.Delete(m.ctx.Context(), key, v)
	switch m.current(key) {
	case refstore.Absent:
		wantErr(t, "delete", err, refstore.ErrNotFound)
	case v:
		if err != nil {
			t.Fatalf("delete %q: %v", key, err)
		}
		delete(m.records, key)
	default:
		wantErr(t, "delete", err, refstore.ErrConflict)
	}
}

// Get reads a record with all fields.
func (m *machine) Get(t *rapid.T) {
	key := recordKeys.Draw(t, "key")
	got, err := m.store.Get(m.ctx.Context(), key, "output", "detail.beast2", "f/g")
	if m.records[key] == nil {
		wantErr(t, "get", err, refstore.ErrNotFound)
		return
	}
	if err != nil {
		t.Fatalf("get %q: %v", key, err)
	}
	m.compare(t, got)
}

func (m *machine) compare(t *rapid.T, got refstore.Record) {
	want := m.records[got.Key]
	if want == nil {
		t.Fatalf("got record %q, which does not exist", got.Key)
	}
	if got.Version != want.version || !bytes.Equal(got.Value, want.value) || len(got.Fields) != len(want.fields) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for _, f := range got.Fields {
		if value, ok := want.fields[f.Name]; !ok || !bytes.Equal(value, f.Value) {
			t.Fatalf("%q: field %q is %q, want %q (%v)", got.Key, f.Name, f.Value, value, ok)
		}
	}
}

// List runs a query.
func (m *machine) List(t *rapid.T) {
	q := refstore.Query{
		Partition:  recordKeys.Draw(t, "in").Partition,
		Prefix:     rapid.SampledFrom([]string{"", "a", "b", "../"}).Draw(t, "prefix"),
		After:      rapid.SampledFrom([]string{"", "a", "b", "z"}).Draw(t, "after"),
		Limit:      rapid.IntRange(0, 3).Draw(t, "limit"),
		Descending: rapid.Bool().Draw(t, "descending"),
		Fields:     []string{"output", "detail.beast2", "f/g"},
	}
	var want []string
	for key := range m.records {
		if key.Partition == q.Partition {
			want = append(want, key.Sort)
		}
	}
	want = slices.Clone(q.Select(want))
	if q.Limit > 0 {
		want = want[:min(q.Limit, len(want))]
	}
	var got []string
	for r, err := range m.store.List(m.ctx.Context(), q) {
		if err != nil {
			t.Fatalf("list %+v: %v", q, err)
		}
		m.compare(t, r)
		got = append(got, r.Key.Sort)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("list %+v: got %q, want %q", q, got, want)
	}
}

// Append appends at an offset that is right or wrong.
func (m *machine) Append(t *rapid.T) {
	key, data := streamKeys.Draw(t, "stream"), contents.Draw(t, "data")
	st := m.streams[key]
	size := int64(0)
	if st != nil {
		size = int64(len(st.data))
	}
	offset := max(0, size+int64(rapid.SampledFrom([]int{0, 0, 0, 1, -1}).Draw(t, "off by")))
	err := m.store.Append(m.ctx.Context(), key, offset, data)
	switch {
	case st != nil && st.sealed:
		wantErr(t, "append", err, refstore.ErrSealed)
	case offset != size:
		wantErr(t, "append", err, refstore.ErrConflict)
	case err != nil:
		t.Fatalf("append to %q: %v", key, err)
	default:
		if st == nil {
			st = new(stream)
			m.streams[key] = st
		}
		st.data = append(st.data, data...)
	}
}

// Cut cuts a stream.
func (m *machine) Cut(t *rapid.T) {
	key, size := streamKeys.Draw(t, "stream"), rapid.IntRange(0, 30).Draw(t, "size")
	err := m.store.Cut(m.ctx.Context(), key, int64(size))
	switch st := m.streams[key]; {
	case st == nil:
		wantErr(t, "cut", err, refstore.ErrNotFound)
	case st.sealed:
		wantErr(t, "cut", err, refstore.ErrSealed)
	case size > len(st.data):
		wantErr(t, "cut", err, refstore.ErrConflict)
	case err != nil:
		t.Fatalf("cut %q: %v", key, err)
	default:
		st.data = st.data[:size]
	}
}

// SealOrRemove ends a stream, rarely.
func (m *machine) SealOrRemove(t *rapid.T) {
	key := streamKeys.Draw(t, "stream")
	switch rapid.IntRange(0, 5).Draw(t, "what") {
	case 0:
		if err := m.store.Seal(m.ctx.Context(), key); err != nil {
			t.Fatalf("seal %q: %v", key, err)
		}
		m.streams[key] = cmp.Or(m.streams[key], new(stream))
		m.streams[key].sealed = true
	case 1:
		err := m.store.Remove(m.ctx.Context(), key)
		if m.streams[key] == nil {
			wantErr(t, "remove", err, refstore.ErrNotFound)
		} else if err != nil {
			t.Fatalf("remove %q: %v", key, err)
		}
		delete(m.streams, key)
	}
}

// Read reads a stream.
func (m *machine) Read(t *rapid.T) {
	key, offset := streamKeys.Draw(t, "stream"), rapid.IntRange(0, 30).Draw(t, "offset")
	r, err := m.store.Open(m.ctx.Context(), key, int64(offset))
	st := m.streams[key]
	if st == nil {
		wantErr(t, "open", err, refstore.ErrNotFound)
		return
	}
	if err != nil {
		t.Fatalf("open %q: %v", key, err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatalf("read %q: %v", key, err)
	}
	if want := st.data[min(offset, len(st.data)):]; !bytes.Equal(got, want) {
		t.Fatalf("read %q from %d: got %q, want %q", key, offset, got, want)
	}
}

func wantErr(t *rapid.T, what string, got, want error) {
	if !errors.Is(got, want) {
		t.Fatalf("%s: got error %v, want %v", what, got, want)
	}
}
