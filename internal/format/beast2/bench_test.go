package beast2_test

import (
	"fmt"
	"testing"

	"e3/internal/format/beast2"
)

// run returns a DataflowRun with n task executions.
func run(tb testing.TB, n int) (beast2.Type, []byte) {
	tb.Helper()
	typ := recordTypes["DataflowRun"]
	tasks := &beast2.Map{}
	for i := range n {
		tasks.Entries = append(tasks.Entries, beast2.Entry{
			Key:   fmt.Sprintf("task-%05d", i),
			Value: beast2.Record{fmt.Sprintf("018f3b4c-9a2d-7def-8abc-%012d", i), i%2 == 0},
		})
	}
	some := func(v beast2.Value) beast2.Case { return beast2.Case{Tag: 1, Value: v} }
	data, err := beast2.Encode(typ, beast2.Record{
		"018f3b4c-9a2d-7def-8abc-123456789015", "prod", "forecast-model@1.0.0", int64(1705314642000),
		some(int64(1705314645000)), some(beast2.Record{}), "aa", some("bb"), tasks,
		beast2.Record{int64(n), int64(n), int64(n / 2), int64(0), int64(0)},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return typ, data
}

const entries = 10_000

func BenchmarkDecode(b *testing.B) {
	typ, data := run(b, entries)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := beast2.DecodeAs(data, typ); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	typ, data := run(b, entries)
	v, err := beast2.DecodeAs(data, typ)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := beast2.Encode(typ, v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkToJSON(b *testing.B) {
	_, data := run(b, entries)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := beast2.ToJSON(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFromJSON(b *testing.B) {
	_, data := run(b, entries)
	doc, err := beast2.ToJSON(data)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := beast2.FromJSON(doc); err != nil {
			b.Fatal(err)
		}
	}
}
