package events_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"e3/internal/events"
	"e3/internal/testing/suite"
	"e3/refstore"
	"e3/refstore/fs"
)

// large writes a log of n events, like that of a run of many tasks: four events each, some with a message.
func large(t testing.TB, s refstore.Streams, ws, run string, n int) (bytes int64) {
	t.Helper()
	at := refstore.Key{Partition: "EVENTS/" + ws, Sort: run}
	key := strings.Repeat("0123456789abcdef", 4) + "/" + strings.Repeat("fedcba9876543210", 4)
	var buf []byte
	for i := range n {
		e := events.Event{Seq: int64(i + 1), Time: epoch.Add(time.Duration(i) * time.Millisecond), Run: run, Workspace: ws, Task: fmt.Sprintf("train[%d]", i/4)}
		d := &events.Data{Key: key}
		switch i % 4 {
		case 0:
			e.Type = events.TaskMarkedReady
		case 1:
			e.Type, e.Execution, d.Attempt, e.Data = events.TaskStarted, run, 1, d
		case 2:
			e.Type, e.Execution, d.ExitCode, d.Message, e.Data = events.TaskFailed, run, 1, "it said \"no\"", d
			if i%100 != 2 {
				e.Type, d.ExitCode, d.Message, d.Output = events.TaskCompleted, 0, "", key[:64]
			}
		case 3:
			e.Type, e.Execution, d.Output, e.Data = events.TaskCached, run, key[:64], d
		}
		var err error
		if buf, err = events.AppendLine(buf, &e); err != nil {
			t.Fatal(err)
		}
		if len(buf) > 1<<20 || i == n-1 {
			if err := s.Append(context.Background(), at, bytes, buf); err != nil {
				t.Fatal(err)
			}
			bytes += int64(len(buf))
			buf = buf[:0]
		}
	}
	return bytes
}

// peak runs f and returns the approximate growth of the heap during f.
func peak(f func()) uint64 {
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	var most atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			runtime.ReadMemStats(&now)
			most.Store(max(most.Load(), now.HeapAlloc))
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	f()
	close(stop)
	<-stopped
	return max(most.Load(), before.HeapAlloc) - before.HeapAlloc
}

// A query over a million events takes little time and memory.
func TestQueryMillion(t *testing.T) {
	suite.Thorough(t)
	s, err := fs.Open(t.TempDir(), fs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n := 1_000_000
	if raced {
		n /= 10
	}
	size := large(t, s, ws, runID, n)
	for _, test := range []struct {
		name string
		f    events.Filter
		want int
		heap uint64
	}{
		{"one task", events.Filter{Task: "train[12345]"}, 4, 16 << 20},
		{"a pattern", events.Filter{Task: "*[1234?]"}, 40, 16 << 20},
		{"one execution of none", events.Filter{Execution: "ffff"}, 0, 16 << 20},
		{"the last failures", events.Filter{Failed: true, Last: 10}, 10, 16 << 20},
		{"all of them", events.Filter{}, n, 32 << 20},
	} {
		began := suite.ProcessorTime(t)
		got := 0
		heap := peak(func() {
			for _, err := range events.Query(t.Context(), s, test.f) {
				if err != nil {
					t.Fatal(err)
				}
				got++
			}
		})
		took := suite.ProcessorTime(t) - began
		t.Logf("%s: %v of processor time over %d MB, heap at most %d KiB more", test.name, took.Round(time.Millisecond), size>>20, heap>>10)
		if got != test.want {
			t.Errorf("%s: %d events, want %d", test.name, got, test.want)
		}
		if heap > test.heap {
			t.Errorf("%s: the heap grew by %d KiB, want at most %d", test.name, heap>>10, test.heap>>10)
		}
		if test.want < n && took > 3*time.Second { // a fraction of a second
			t.Errorf("%s: took %v of processor time", test.name, took)
		}
	}
}

func BenchmarkQuery(b *testing.B) {
	s, err := fs.Open(b.TempDir(), fs.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const n = 100_000
	size := large(b, s, ws, runID, n)
	none := func(context.Context, string, events.RunRef) (bool, error) { return false, nil }
	for _, bench := range []struct {
		name string
		f    events.Filter
	}{
		{"task", events.Filter{Task: "train[12345]", HasTask: none}}, {"named", events.Filter{Task: "train[12345]"}}, {"pattern", events.Filter{Task: "*[123?]"}},
		{"failed", events.Filter{Failed: true}}, {"all", events.Filter{}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				for _, err := range events.Query(b.Context(), s, bench.f) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
	b.Run("read", func(b *testing.B) { // a lower bound for the scan
		b.SetBytes(size)
		buf := make([]byte, 256<<10)
		for b.Loop() {
			r, err := s.Open(b.Context(), refstore.Key{Partition: "EVENTS/" + ws, Sort: runID}, 0)
			if err != nil {
				b.Fatal(err)
			}
			for err == nil {
				_, err = r.Read(buf)
			}
			if r.Close(); err != io.EOF {
				b.Fatal(err)
			}
		}
	})
}

// The cost of an event for a run.
func BenchmarkEmit(b *testing.B) {
	s, err := fs.Open(b.TempDir(), fs.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	log := events.Create(s, ws, runID, time.Now)
	key := strings.Repeat("0123456789abcdef", 4) + "/" + strings.Repeat("fedcba9876543210", 4)
	b.ReportAllocs()
	for b.Loop() {
		log.Emit(events.Event{Type: events.TaskCompleted, Task: "train[4]", Execution: runID, Data: &events.Data{Key: key, Duration: 12, Output: key[:64]}})
	}
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkParse(b *testing.B) {
	key := strings.Repeat("0123456789abcdef", 4) + "/" + strings.Repeat("fedcba9876543210", 4)
	line, err := events.AppendLine(nil, &events.Event{Seq: 1, Time: epoch, Run: runID, Workspace: ws, Type: events.TaskCompleted, Task: "train[4]", Execution: runID,
		Data: &events.Data{Key: key, Duration: 12, Output: key[:64]}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := events.Parse(line); err != nil {
			b.Fatal(err)
		}
	}
}
