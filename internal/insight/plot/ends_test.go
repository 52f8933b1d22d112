package plot_test

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/internal/insight/markup"
	"e3/internal/insight/plot"
)

var endNames = regexp.MustCompile(`<text class="end" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)<`)

// TestNamesAtEnds: each line has its name beside its end, and none covers another; of too many lines the first, the last and
// those between are named.
func TestNamesAtEnds(t *testing.T) {
	for _, n := range []int{2, 12, 60} {
		c := &plot.Lines{X: "step", Y: "loss"}
		for i := range n {
			c.Lines = append(c.Lines, plot.Line{Name: fmt.Sprintf("rate=%d", i), X: []float64{0, 1}, Y: []float64{5, float64(i) / 100}})
		}
		for _, look := range []plot.Look{{}, {Large: true}} {
			svg := markup.String(c.Drawing("title", look))
			var ys []float64
			var names []string
			for _, m := range endNames.FindAllStringSubmatch(svg, -1) {
				y, err := strconv.ParseFloat(m[2], 64)
				if err != nil {
					t.Fatal(err)
				}
				ys, names = append(ys, y), append(names, m[3])
			}
			want := min(n, map[bool]int{false: 13, true: 31}[look.Large])
			if len(names) != want || names[0] != fmt.Sprintf("rate=%d", n-1) || names[len(names)-1] != "rate=0" {
				t.Fatalf("%d lines, %+v: names %q, want %d from the greatest to the least", n, look, names, want)
			}
			for i := 1; i < len(ys); i++ {
				if ys[i]-ys[i-1] < 12.9 {
					t.Errorf("%d lines, %+v: %s stands %.1f below %s, want 13", n, look, names[i], ys[i]-ys[i-1], names[i-1])
				}
			}
		}
	}
}

// TestLogarithmicAxes: powers of ten have equal distances; what is not above zero is left out, and told.
func TestLogarithmicAxes(t *testing.T) {
	c := &plot.Lines{X: "rate", Y: "loss", Lines: []plot.Line{{X: []float64{0, 0.001, 0.01, 0.1, 1}, Y: []float64{1, 1, 10, 100, -3}}}}
	look := plot.Look{LogX: true, LogY: true}
	svg := markup.String(c.Drawing("title", look))
	wantIn(t, svg, `d="M52 194h0L221 112L390 30"`, ">0.001<", ">0.01<", ">0.1<", ">10<", ">100<")
	if got, want := c.Note(look), "2 points at or below zero have no place on a logarithmic axis"; got != want {
		t.Errorf("note %q, want %q", got, want)
	}
	if note := c.Note(plot.Look{}); note != "" {
		t.Errorf("note of plain axes %q, want none", note)
	}
}

// TestKinds: lines of one kind have one colour.
func TestKinds(t *testing.T) {
	c := &plot.Lines{Lines: []plot.Line{{Name: "a", Kind: "k=1"}, {Name: "b", Kind: "k=2"}, {Name: "c", Kind: "k=1"}, {Name: "d"}}}
	got := c.Colours()
	if got[0] != got[2] || got[0] == got[1] || got[3] == got[0] || got[3] == got[1] {
		t.Errorf("colours %q: want those of a and c alike, and b and d with their own", got)
	}
}

// TestSummaries: the value nearest to a place, the extremes and the last value, and what a script reads.
func TestSummaries(t *testing.T) {
	none := math.NaN()
	c := &plot.Lines{X: "step", Y: "loss", Lines: []plot.Line{
		{Name: "a", X: []float64{0, 10, 20}, Y: []float64{3, 1, 2}}, {Name: "short", X: []float64{0, 10}, Y: []float64{5, none}}, {Name: "none", X: []float64{0}, Y: []float64{none}},
	}}
	got := fmt.Sprint(c.Summaries(14))
	if want := "[{1 1 3 2 false} {NaN 5 5 5 true} {NaN NaN NaN NaN true}]"; got != want {
		t.Errorf("at 14: %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(c.Summaries(15)[0].At), "1"; got != want {
		t.Errorf("between two points: %s, want the earlier, %s", got, want)
	}
	if got, want := fmt.Sprint(c.Places()), "[0 10 20]"; got != want {
		t.Errorf("places %s, want %s", got, want)
	}
	svg := markup.String(c.Drawing("title", plot.Look{Values: true}))
	wantIn(t, svg, `data-x="0 10 20" data-y="3 1 2"`, `data-x="0" data-y="5"`, `data-scale="linear 52 390 194 0 20"`, `data-axis="step"`)
	if strings.Contains(markup.String(c.Drawing("title", plot.Look{})), "data-x") {
		t.Error("a drawing without values has values")
	}
}

// TestValuesOfLargeTables: a page with values of 200 lines stays small.
func TestValuesOfLargeTables(t *testing.T) {
	text := "step,loss\n"
	for i := range 2000 {
		text += fmt.Sprintf("%d,%.9f\n", i, math.Sin(float64(i)))
	}
	_, charts := drawn(t, record.Plot{}, slices.Repeat([]string{text}, 200)...)
	if n := len(markup.String(charts[0].Drawing("title", plot.Look{Values: true, Large: true}))); n > 320<<10 {
		t.Errorf("%d bytes, want at most 320 KiB", n)
	}
}
