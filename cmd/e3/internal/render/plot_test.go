package render

import (
	"math"
	"strings"
	"testing"
	"time"

	"e3/cmd/e3/internal/term"
)

// points makes one point per day, in milliseconds; negative ones are failures.
func points(ms ...int64) []Point {
	list := make([]Point, len(ms))
	for i, n := range ms {
		at := time.Date(2026, 11, 1+i, 12, 0, 0, 0, time.Local)
		list[i] = Point{At: at, Took: time.Duration(max(n, -n)) * time.Millisecond, Status: "success", Bad: n < 0}
	}
	return list
}

func TestPlot(t *testing.T) {
	for _, test := range []struct {
		name   string
		plot   Plot
		screen string
	}{
		{"columns", Plot{what: "execution", points: points(1000, 2000, -500, 4000), width: 60}, `
4.0s ┤            ███
     ┤            ███
2.0s ┤    ▄▄▄     ███
     ┤▂▂▂ ███     ███
     ┤███ ███ ▅▅▅ ███
 0ms ┼────────×───────
      2026-11-01 12:00:00 to 2026-11-04 12:00:00
      4 executions: min 1.0s, median 2.0s, max 4.0s; × 1 did not succeed and are not in these numbers
`},
		{"plain", Plot{what: "run", points: points(1000, 2000, -500, 4000), width: 60, ascii: true}, `
4.0s |            ###
     |            ###
2.0s |    :::     ###
     |... ###     ###
     |### ### ::: ###
 0ms +--------x-------
      2026-11-01 12:00:00 to 2026-11-04 12:00:00
      4 runs: min 1.0s, median 2.0s, max 4.0s; x 1 did not succeed and are not in these numbers
`},
		{"one that failed", Plot{what: "run", points: points(-1000), width: 60, ascii: true}, `
1.0s |###
     |###
500ms |###
`},
		{"nothing took any time", Plot{what: "run", points: points(0, 0), width: 60}, `
0ms ┤
    ┤
0ms ┤
    ┤
    ┤▁▁▁ ▁▁▁
0ms ┼────────
     2026-11-01 12:00:00 to 2026-11-02 12:00:00
     2 runs: min 0ms, median 0ms, max 0ms
`},
		{"nothing", Plot{what: "run", width: 60}, "\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var b strings.Builder
			test.plot.Write(&b)
			want := strings.TrimPrefix(test.screen, "\n")
			if test.name == "one that failed" {
				if got := b.String(); !strings.Contains(got, "+x---") || strings.Contains(got, "not in these numbers") || !strings.Contains(got, "min 1.0s") {
					t.Errorf("got\n%s", got)
				}
				return
			}
			if got := b.String(); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// A plot is never wider than the screen, for any number of points.
func TestPlotFits(t *testing.T) {
	many := make([]int64, 1000)
	for i := range many {
		many[i] = int64(i)
	}
	many[500] = -many[500]
	for _, width := range []int{1, 20, 40, 80, 300} {
		for _, n := range []int{1, 2, 30, 79, 1000} {
			p := Plot{what: "run", points: points(many[:n]...), width: width}
			var b strings.Builder
			p.Write(&b)
			lines := strings.Split(b.String(), "\n")
			for _, line := range lines[:plotRows+1] {
				if got := term.Columns(line); got > max(width, 17) {
					t.Errorf("%d points, %d columns: %d in %q", n, width, got, line)
				}
			}
			if n == 1000 && (strings.Count(lines[plotRows], "×") != 1 || !strings.Contains(b.String(), "a column is the median of up to")) {
				t.Errorf("%d columns: got\n%s", width, b.String())
			}
		}
	}
}

// Foreign records may hold anything.
func TestPlotHostile(t *testing.T) {
	p := Plot{what: "run", width: 80, points: []Point{{Took: math.MaxInt64}, {Took: 1}, {Took: math.MaxInt64, At: time.Unix(1<<40, 0)}}}
	var b strings.Builder
	p.Write(&b)
	if !strings.Contains(b.String(), "2562047h47m") {
		t.Errorf("got\n%s", b.String())
	}
}
