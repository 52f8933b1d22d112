package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"e3/cmd/e3/internal/term"
	"e3/dataflow/graph"
	"e3/internal/events"
	"e3/internal/format/digest"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// many returns the events of a run of n tasks that take 100 ms each, one after the other. Every failing-th one fails.
func many(n, failing int, from time.Time) []events.Event {
	list := []events.Event{
		{Type: events.RunStarted, Run: "01234567-89ab-7cde", Time: from, Data: &events.Data{Limits: &events.Limits{Cores: 1}}},
		{Type: events.TaskCreated, Time: from, Data: &events.Data{Tasks: n}},
	}
	for i := range n {
		at := from.Add(time.Duration(i) * 100 * time.Millisecond)
		name := fmt.Sprintf("fit[%d]", i)
		list = append(list, events.Event{Type: events.TaskStarted, Task: name, Time: at, Data: &events.Data{Attempt: 1}})
		end := events.Event{Type: events.TaskCompleted, Task: name, Time: at.Add(100 * time.Millisecond), Data: &events.Data{Duration: 100}}
		if failing > 0 && i%failing == failing-1 {
			end.Type, end.Data = events.TaskFailed, &events.Data{ExitCode: 3, Duration: 100}
		}
		list = append(list, end)
	}
	return list
}

func expecting(n int) *ahead {
	pkg := &record.Package{}
	for i := range n {
		pkg.Tasks = append(pkg.Tasks, record.PackageTask{Name: fmt.Sprintf("fit[%d]", i), Task: digest.Sum([]byte{byte(i), byte(i >> 8)}).String()})
	}
	g, err := graph.New(pkg)
	if err != nil {
		panic(err) // the names differ
	}
	return &ahead{graph: g, expected: func(string) time.Duration { return 100 * time.Millisecond }, fold: runview.NewFold()}
}

func printed(t testing.TB, verbose bool, n int, list []events.Event) string {
	t.Helper()
	var out strings.Builder
	tr := newTranscript(&out, term.Hidden(), term.Style{})
	tr.brief.verbose, tr.brief.ahead = verbose, expecting(n)
	for _, e := range list {
		tr.event(e)
	}
	if err := tr.close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// The output of a run is in proportion to what a person has to know, not to its tasks.
func TestTranscriptInProportion(t *testing.T) {
	noon := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		tasks, failing int
		verbose        bool
		lines          int
	}{
		{maxWhole, 0, false, 1 + 2*maxWhole}, // each has two lines
		{maxWhole + 1, 0, false, 1 + 9},
		{400, 0, false, 1 + 9},
		{400, 100, false, 1 + 9 + 4},
		{400, 0, true, 1 + 800},
		{10_000, 0, false, 1 + 9},
		{10_000, 2, false, 1 + 9 + maxNotable + 1},
	} {
		got := printed(t, test.verbose, test.tasks, many(test.tasks, test.failing, noon))
		if n := strings.Count(got, "\n"); n != test.lines {
			t.Errorf("%d tasks, verbose %t: %d lines, want %d:\n%.2000s", test.tasks, test.verbose, n, test.lines, got)
		}
	}
	got := printed(t, false, 400, many(400, 300, noon))
	for _, want := range []string{
		"\n  [ 10%]   40 of 400 done; about 36s left\n", "\n  [failed] fit[299] (exit code 3, 100ms)\n", "\n  [ 80%]   320 of 400 done, 1 failed; about 8s left\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
}

// Tasks that are cached as in an earlier run share a line if they are many.
func TestTranscriptProven(t *testing.T) {
	for _, n := range []int{3, maxWhole + 1} {
		list := []events.Event{{Type: events.RunStarted}}
		for i := range n {
			list = append(list, events.Event{Type: events.TaskCached, Task: fmt.Sprint("t", i), Data: &events.Data{As: "r"}})
		}
		list = append(list, events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 1}}, events.Event{Type: events.TaskStarted, Task: "last"})
		got := printed(t, false, n, list)
		want := "  [cached] t0\n  [cached] t1\n  [cached] t2\n"
		if n > maxWhole {
			want = fmt.Sprintf("  [cached] %d tasks\n", n)
		}
		if !strings.HasSuffix(got, want+"  [start]  last\n") {
			t.Errorf("%d tasks: printed\n%s", n, got)
		}
	}
}

// A run whose tasks take long shows that it is alive, ever more rarely.
func TestTranscriptBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		tr := newTranscript(&out, term.Hidden(), term.Style{})
		for _, e := range many(1, 0, time.Now())[:3] {
			tr.event(e)
		}
		end := tr.beats(time.Now)
		time.Sleep(10 * time.Hour)
		end()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) < 10 || len(lines) > 50 {
			t.Errorf("%d lines in ten hours:\n%s", len(lines), out.String())
		}
		if want := "  [  0%]   0 of 1 done; runs fit[0] 1m00s"; lines[2] != want {
			t.Errorf("got %q, want %q", lines[2], want)
		}
	})
}

// BenchmarkTranscript measures the cost of one task's progress, to be compared with the millisecond that the shortest command takes.
func BenchmarkTranscript(b *testing.B) {
	list := many(10_000, 0, time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC))
	for b.Loop() {
		tr := newTranscript(io.Discard, term.Hidden(), term.Style{})
		tr.brief.ahead = expecting(10_000)
		for _, e := range list {
			tr.event(e)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/task")
}
