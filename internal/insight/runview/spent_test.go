package runview_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"e3/dataflow/graph"
	"e3/dataflow/graph/graphtest"
	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// A chain has a critical path; a wide matrix has none, since its last task says nothing. The sums are those of the
// attempts, also of those that failed.
func TestSpent(t *testing.T) {
	began := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	span := func(task string, from, to int) runview.Span {
		return runview.Span{Task: task, State: runview.TaskSuccess, Start: began.Add(time.Duration(from) * time.Second), End: began.Add(time.Duration(to) * time.Second)}
	}
	var wide []string
	var matrix []runview.Span
	for i := range 40 {
		wide = append(wide, fmt.Sprintf("fit[%d]:", i))
		matrix = append(matrix, span(fmt.Sprintf("fit[%d]", i), i/4, i/4+1))
	}
	chain := []runview.Span{span("a", 0, 4), span("b", 4, 5), span("b", 5, 10)}
	for _, test := range []struct {
		name            string
		flow            []string
		spans           []runview.Span
		path, said      string
		average, longer float64
		took            time.Duration
	}{
		{"chain", []string{"a:", "b: a"}, chain, "a 4s, b 6s", "The critical path, of 2 tasks, took 10.0s.", 1, 5, 10 * time.Second},
		{"matrix", wide, matrix, "", "the cores were the limit", 4, 1, 40 * time.Second},
		{"idle", []string{"a:"}, []runview.Span{span("a", 9, 10)}, "", "in a run of 10.0s.", 0.1, 1, time.Second},
	} {
		g, err := graph.New(graphtest.Flow(test.flow...))
		if err != nil {
			t.Fatal(err)
		}
		r := &runview.Report{Run: &record.Run{StartedAt: began, CompletedAt: began.Add(10 * time.Second), State: record.RunCompleted}, Limits: &events.Limits{Cores: 4}}
		s := runview.SpentOf(g, &runview.Spans{Ended: test.spans}, r, time.Time{})
		var path []string
		for _, p := range s.Path {
			path = append(path, fmt.Sprintf("%s %v", p.Task, p.Took.Duration()))
		}
		if got := strings.Join(path, ", "); got != test.path {
			t.Errorf("%s: the path is %q, want %q", test.name, got, test.path)
		}
		if got := s.Text(); !strings.Contains(got, test.said) {
			t.Errorf("%s: it says %q, want %q", test.name, got, test.said)
		}
		if s.Took != moment.Millis(test.took) || s.Cores.Average != test.average || s.Families[0].Longest.Duration().Seconds() != test.longer {
			t.Errorf("%s: %v together, %.1f cores, the longest of %s %v; want %v, %.1f, %.0fs", test.name, s.Took.Duration(), s.Cores.Average,
				s.Families[0].Name, s.Families[0].Longest.Duration(), test.took, test.average, test.longer)
		}
	}
	if s := runview.SpentOf(nil, &runview.Spans{}, &runview.Report{Run: &record.Run{}}, began); s != nil {
		t.Errorf("where nothing ran the time went to %+v", s)
	}
}
