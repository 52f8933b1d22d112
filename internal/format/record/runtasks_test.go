package record_test

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"e3/internal/format/record"
)

func TestRunTasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := runEntries.Draw(t, "entries")
		tasks := record.NewRunTasks(slices.Values(want))
		if tasks.Len() != len(want) {
			t.Fatalf("Len is %d, want %d", tasks.Len(), len(want))
		}
		if got := slices.Collect(tasks.All()); !slices.Equal(got, want) {
			t.Fatalf("All: got %v, want %v", got, want)
		}
		cached := tasks.AllCached()
		if cached.Len() != len(want) {
			t.Fatalf("AllCached: Len is %d, want %d", cached.Len(), len(want))
		}
		i := 0
		for got := range cached.All() {
			e := want[i]
			e.Cached = true
			if got != e {
				t.Fatalf("AllCached: entry %d is %v, want %v", i, got, e)
			}
			i++
		}
		if i != len(want) {
			t.Fatalf("AllCached yields %d entries, want %d", i, len(want))
		}
		if got := slices.Collect(tasks.All()); !slices.Equal(got, want) {
			t.Fatalf("AllCached changed the map it was made from: %v, want %v", got, want)
		}
	})
}

func TestRunTasksZero(t *testing.T) {
	var tasks record.RunTasks
	if tasks.Len() != 0 || tasks.AllCached().Len() != 0 {
		t.Errorf("the zero map has %d entries", tasks.Len())
	}
	for e := range tasks.All() {
		t.Errorf("the zero map yields %v", e)
	}
}

func TestRunTasksStop(t *testing.T) {
	tasks := record.NewRunTasks(manyTasks(10))
	n := 0
	for range tasks.All() {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("%d entries were yielded, want 3", n)
	}
}

// A map of many tasks takes its bytes of memory, without an allocation for each task.
func TestRunTasksAllocations(t *testing.T) {
	run := &record.Run{Tasks: record.NewRunTasks(manyTasks(10_000))}
	data := run.Encode()
	per := testing.AllocsPerRun(5, func() {
		run, err := record.DecodeRun(data)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for range run.Tasks.AllCached().All() {
			n++
		}
		if n != 10_000 {
			t.Fatalf("%d entries", n)
		}
	})
	if per > 100 {
		t.Errorf("decoding and walking 10,000 tasks takes %.0f allocations", per)
	}
}

func BenchmarkRunTasks(b *testing.B) {
	const n = 100_000
	run := &record.Run{Tasks: record.NewRunTasks(manyTasks(n))}
	data := run.Encode()
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			record.NewRunTasks(manyTasks(n))
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, err := record.DecodeRun(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("all cached", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			run.Tasks.AllCached()
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			run.Encode()
		}
	})
	b.Run("walk", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for e := range run.Tasks.All() {
				if e.Task == "" {
					b.Fatal("a task without a name")
				}
			}
		}
	})
}

func manyTasks(n int) iter.Seq[record.TaskExecution] {
	return func(yield func(record.TaskExecution) bool) {
		for i := range n {
			e := record.TaskExecution{Task: fmt.Sprintf("task-%d", i), ExecutionID: "0194fdc2-fa2f-7cc0-81d3-ff12045b73c8", Cached: i%2 == 0}
			if !yield(e) {
				return
			}
		}
	}
}
