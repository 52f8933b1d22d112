package remaining_test

import (
	"fmt"
	"iter"
	"testing"
	"time"

	"e3/dataflow/graph"
	"e3/dataflow/graph/graphtest"
	"e3/dataflow/remaining"
	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/insight/runview"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// seen is a view of some tasks, while others wait.
func seen(waiting int64, tasks ...runview.TaskReport) remaining.View {
	return func() (iter.Seq[*runview.TaskReport], int64) {
		return (&runview.Report{Tasks: tasks}).Each(), waiting
	}
}

// runs, took and hit are tasks that have had their turn.
func runs(name string, since time.Duration) runview.TaskReport {
	return runview.TaskReport{Task: name, State: runview.TaskRunning, StartedAt: moment.At(noon.Add(since))}
}

func took(name string, d time.Duration) runview.TaskReport {
	return runview.TaskReport{Task: name, State: runview.TaskSuccess, Duration: moment.Millis(d)}
}

func hit(name string) runview.TaskReport {
	return runview.TaskReport{Task: name, State: runview.TaskCached}
}

func proven(name string) runview.TaskReport {
	return runview.TaskReport{Task: name, State: runview.TaskCached, Proven: true}
}

// A Run is looked at once: a later look within a second repeats the first.
func TestLook(t *testing.T) {
	const s = time.Second
	diamond := []string{"a:", "b: a", "c: b", "d:"}
	known := map[string]time.Duration{"a": 10 * s, "b": 20 * s, "c": 30 * s, "d": 60 * s}
	limits := func(cores int) *events.Data { return &events.Data{Limits: &events.Limits{Cores: cores}} }
	for _, test := range []struct {
		name    string
		flow    []string
		known   map[string]time.Duration
		started *events.Data
		at      time.Duration
		view    remaining.View
		want    string
	}{
		{"one core does all", diamond, known, limits(1), 0, seen(4), "about 2m00s"},
		{"the longest path", diamond, known, limits(4), 0, seen(4), "about 1m00s"},
		{"running", diamond, known, limits(4), 5 * s, seen(2, runs("a", 0), runs("d", 0)), "about 55s"},
		{"results take no time", diamond, known, limits(1), 5 * s, seen(0, hit("a"), hit("b"), hit("c"), runs("d", 0)), "about 55s"},
		{"proven ones say nothing of others", diamond, known, limits(1), 0, seen(2, proven("a"), proven("b")), "about 1m30s"},
		{"a filter", diamond, known, &events.Data{Filter: "b", Limits: &events.Limits{Cores: 1}}, 0, seen(2), "about 30s"},
		{"an overdue command, as late again", []string{"a:", "b: a"}, map[string]time.Duration{"a": 10 * s, "b": 7 * s}, limits(1), 12 * s, seen(1, runs("a", 0)), "about 9s"},
		{"nothing is known", diamond, nil, limits(1), 0, seen(4), ""},
		{"some is known", []string{"a:", "b:"}, map[string]time.Duration{"a": 10 * s}, limits(1), 0, seen(2), "at least 10s"},
		{"a running command of which nothing is known", []string{"a:", "b:"}, map[string]time.Duration{"a": 10 * s}, limits(1), 2 * s, seen(1, runs("b", 0)), "at least 10s"},
		{"items take as long as others in this run", []string{"fit[1]:", "fit[2]:", "fit[3]:"}, nil, limits(1), 4 * s, seen(2, took("fit[1]", 4*s)), "about 8s"},
		{"a new item takes as long as the others did", []string{"fit[1]:", "fit[2]:"}, map[string]time.Duration{"fit[1]": 6 * s}, limits(1), 0, seen(2), "about 12s"},
		{"a person is waited for", []string{"a:", "b: a", "c:"}, known, limits(1), 0, seen(3, runview.TaskReport{Task: "a", State: runview.TaskDeferred}), "at least 30s"},
		{"tasks that the package lacks", []string{"a:"}, known, limits(1), 0, seen(20), "at least 10s"},
		{"as many workers as are seen", []string{"a:", "b:", "c:", "d:"}, map[string]time.Duration{"a": 10 * s, "b": 10 * s, "c": 10 * s, "d": 10 * s}, &events.Data{}, 0, seen(2, runs("a", 0), runs("b", 0)), "about 20s"},
		{"short commands tell nothing of long ones", []string{"a:", "b:"}, map[string]time.Duration{"a": s / 10, "b": 100 * s}, limits(1), s, seen(1, took("a", s/50)), "about 1m40s"},
		{"commands of about the same length do", []string{"a:", "b:"}, map[string]time.Duration{"a": 50 * s, "b": 100 * s}, limits(1), 25 * s, seen(1, took("a", 25*s)), "about 1m23s"},
		{"the last moment", []string{"a:"}, known, limits(1), 9*s + s/2, seen(0, runs("a", 0)), "less than 1s"},
	} {
		g, err := graph.New(graphtest.Flow(test.flow...))
		if err != nil {
			t.Fatal(err)
		}
		r := remaining.Of(g, test.started, func(task string) time.Duration { return test.known[task] })
		if got := r.Look(test.view, noon.Add(test.at)).Text(); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// Tasks that turn out to have results take the durations on record out of the estimate, one after the other.
func TestLookLearnsOfResults(t *testing.T) {
	var lines []string
	for i := range 100 {
		lines = append(lines, fmt.Sprintf("fit[%d]:", i))
	}
	g, err := graph.New(graphtest.Flow(lines...))
	if err != nil {
		t.Fatal(err)
	}
	last := time.Duration(1 << 62)
	for n := range 50 {
		r := remaining.Of(g, &events.Data{Limits: &events.Limits{Cores: 1}}, func(string) time.Duration { return time.Minute })
		var tasks []runview.TaskReport
		for i := range n {
			tasks = append(tasks, hit(fmt.Sprintf("fit[%d]", i)))
		}
		got := r.Look(seen(int64(100-n), tasks...), noon).Left
		if got >= last {
			t.Errorf("after %d results: %v left, want less than %v", n, got, last)
		}
		last = got
	}
	if last > 2*time.Minute {
		t.Errorf("after 49 results of 49, of 51 tasks of a minute: %v left, want about one task", last)
	}
}

// A look at 10,000 tasks is quick enough to be made each second.
func BenchmarkLook(b *testing.B) {
	var lines []string
	for i := range 10_000 {
		lines = append(lines, fmt.Sprintf("t[%d]:", i))
	}
	g, err := graph.New(graphtest.Flow(lines...))
	if err != nil {
		b.Fatal(err)
	}
	at := noon
	for b.Loop() {
		at = at.Add(time.Hour)
		r := remaining.Of(g, &events.Data{Limits: &events.Limits{Cores: 4}}, func(string) time.Duration { return time.Second })
		r.Look(seen(10_000), at)
	}
}
