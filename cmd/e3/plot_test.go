package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

// points are one a day, in milliseconds; what is below 0 did not succeed.
func points(ms ...int64) []durationPoint {
	list := make([]durationPoint, len(ms))
	for i, n := range ms {
		at := time.Date(2026, 11, 1+i, 12, 0, 0, 0, time.Local)
		list[i] = durationPoint{at: at, took: time.Duration(max(n, -n)) * time.Millisecond, status: "success", bad: n < 0}
	}
	return list
}

func TestPlot(t *testing.T) {
	for _, test := range []struct {
		name   string
		plot   plot
		screen string
	}{
		{"columns", plot{what: "execution", points: points(1000, 2000, -500, 4000), width: 60}, `
4.0s ┤            ███
     ┤            ███
2.0s ┤    ▄▄▄     ███
     ┤▂▂▂ ███     ███
     ┤███ ███ ▅▅▅ ███
 0ms ┼────────×───────
      2026-11-01 12:00:00 to 2026-11-04 12:00:00
      4 executions: min 1.0s, median 2.0s, max 4.0s; × 1 did not succeed and are not in these numbers
`},
		{"plain", plot{what: "run", points: points(1000, 2000, -500, 4000), width: 60, ascii: true}, `
4.0s |            ###
     |            ###
2.0s |    :::     ###
     |... ###     ###
     |### ### ::: ###
 0ms +--------x-------
      2026-11-01 12:00:00 to 2026-11-04 12:00:00
      4 runs: min 1.0s, median 2.0s, max 4.0s; x 1 did not succeed and are not in these numbers
`},
		{"one that failed", plot{what: "run", points: points(-1000), width: 60, ascii: true}, `
1.0s |###
     |###
500ms |###
`},
		{"nothing took any time", plot{what: "run", points: points(0, 0), width: 60}, `
0ms ┤
    ┤
0ms ┤
    ┤
    ┤▁▁▁ ▁▁▁
0ms ┼────────
     2026-11-01 12:00:00 to 2026-11-02 12:00:00
     2 runs: min 0ms, median 0ms, max 0ms
`},
		{"nothing", plot{what: "run", width: 60}, "\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var b strings.Builder
			test.plot.write(&b)
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

// However many there are and however narrow the screen, it is not wider.
func TestPlotFits(t *testing.T) {
	many := make([]int64, 1000)
	for i := range many {
		many[i] = int64(i)
	}
	many[500] = -many[500]
	for _, width := range []int{1, 20, 40, 80, 300} {
		for _, n := range []int{1, 2, 30, 79, 1000} {
			p := plot{what: "run", points: points(many[:n]...), width: width}
			var b strings.Builder
			p.write(&b)
			lines := strings.Split(b.String(), "\n")
			for _, line := range lines[:plotRows+1] {
				if got := columns(line); got > max(width, 17) {
					t.Errorf("%d points, %d columns: %d in %q", n, width, got, line)
				}
			}
			if n == 1000 && (strings.Count(lines[plotRows], "×") != 1 || !strings.Contains(b.String(), "a column is the median of up to")) {
				t.Errorf("%d columns: got\n%s", width, b.String())
			}
		}
	}
}

// Records of others may say anything.
func TestPlotHostile(t *testing.T) {
	p := plot{what: "run", width: 80, points: []durationPoint{{took: math.MaxInt64}, {took: 1}, {took: math.MaxInt64, at: time.Unix(1<<40, 0)}}}
	var b strings.Builder
	p.write(&b)
	if !strings.Contains(b.String(), "2562047h47m") {
		t.Errorf("got\n%s", b.String())
	}
}

func TestASCII(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string
		want bool
	}{
		{"UTF-8", map[string]string{"LANG": "de_DE.UTF-8"}, false},
		{"utf8", map[string]string{"LC_CTYPE": "C.utf8", "LANG": "C"}, false},
		{"LC_ALL wins", map[string]string{"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, true},
		{"Latin-1", map[string]string{"LANG": "de_DE.ISO-8859-1"}, true},
		{"a dumb terminal", map[string]string{"LANG": "de_DE.UTF-8", "TERM": "dumb"}, true},
		{"NO_COLOR is about colours", map[string]string{"LANG": "de_DE.UTF-8", "NO_COLOR": "1"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := &app{getenv: func(name string) string { return test.env[name] }}
			if got := a.ascii(); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestWhen(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.Local)
	a := &app{now: func() time.Time { return now }}
	for _, test := range []struct {
		text string
		want time.Time // zero: refused
	}{
		{"2h", now.Add(-2 * time.Hour)},
		{"1w", now.Add(-7 * 24 * time.Hour)},
		{"2026-11-19", time.Date(2026, 11, 19, 0, 0, 0, 0, time.Local)},
		{"2026-11-19T08:30", time.Date(2026, 11, 19, 8, 30, 0, 0, time.Local)},
		{"2026-11-19 08:30:01", time.Date(2026, 11, 19, 8, 30, 1, 0, time.Local)},
		{"2026-11-19T08:30:01.5Z", time.Date(2026, 11, 19, 8, 30, 1, 5e8, time.UTC)},
		{"yesterday", time.Time{}},
		{"2026-13-01", time.Time{}},
		{"-2h", time.Time{}},
	} {
		t.Run(test.text, func(t *testing.T) {
			got, err := a.when("since", test.text)
			if (err != nil) != test.want.IsZero() || !got.Equal(test.want) {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
}
