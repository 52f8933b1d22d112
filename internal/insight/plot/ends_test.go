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

var endNames = regexp.MustCompile(`<text class="end [^"]*" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)<`)

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

// TestShortLinesAreNamedWhereTheyEnd: no name is led across the chart to a line that ends before the others, and lines
// without a name are counted.
func TestShortLinesAreNamedWhereTheyEnd(t *testing.T) {
	c := &plot.Lines{X: "step", Y: "loss"}
	for i := range 24 {
		last := 60.0
		if i%2 == 1 {
			last = 30
		}
		c.Lines = append(c.Lines, plot.Line{Name: fmt.Sprintf("rate=%d", i), X: []float64{0, last}, Y: []float64{5, float64(i) / 100}})
	}
	look := plot.Look{Large: true}
	svg := markup.String(c.Drawing("title", look))
	for _, m := range regexp.MustCompile(`class="lead [^"]*" d="M([\d.]+) [\d.]+L([\d.]+)`).FindAllStringSubmatch(svg, -1) {
		from, errFrom := strconv.ParseFloat(m[1], 64)
		to, errTo := strconv.ParseFloat(m[2], 64)
		if errFrom != nil || errTo != nil || to-from > 40 {
			t.Errorf("a line leads from %s to %s to a name, want at most 40 pixels", m[1], m[2])
		}
	}
	named, inside := 0, 0
	for _, m := range endNames.FindAllStringSubmatch(svg, -1) {
		x, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		if named++; x < 600 {
			inside++
		}
	}
	if inside == 0 {
		t.Error("no short line is named where it ends")
	}
	if want := fmt.Sprintf("without a label: %d of 24 lines; point at a line for its name", 24-named); c.Note(look) != want {
		t.Errorf("%d names; the note is %q, want %q", named, c.Note(look), want)
	}
}

// TestLinesAreToldApart: 32 lines have looks of their own, of which neighbours differ in colour, and names are legible on
// either ground.
func TestLinesAreToldApart(t *testing.T) {
	c := &plot.Lines{Lines: make([]plot.Line, 32)}
	known := map[string]bool{}
	for i, look := range c.Looks() {
		if known[look] || i > 0 && look[:2] == c.Looks()[i-1][:2] {
			t.Errorf("line %d looks like another: %s", i, look)
		}
		known[look] = true
	}
	light := func(hex string) (sum float64) {
		for i, part := range []float64{0.2126, 0.7152, 0.0722} {
			v, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			x := float64(v) / 255
			if x = math.Pow((x+0.055)/1.055, 2.4); v < 11 {
				x = float64(v) / 255 / 12.92
			}
			sum += part * x
		}
		return sum
	}
	inks := regexp.MustCompile(`\.k\d\{color:#(\w{6})\}`).FindAllStringSubmatch(plot.Style, -1)
	for i, m := range inks {
		ground := "ffffff"
		if i >= len(inks)/2 {
			ground = "1b2028"
		}
		a, b := light(m[1]), light(ground)
		if contrast := (max(a, b) + 0.05) / (min(a, b) + 0.05); contrast < 4.5 {
			t.Errorf("the contrast of #%s on #%s is %.1f, want 4.5", m[1], ground, contrast)
		}
	}
	if len(inks) != 16 {
		t.Errorf("%d colours in the style, want 8 for each ground", len(inks))
	}
}

// TestKinds: lines of one kind have one colour, and a legend names the kinds.
func TestKinds(t *testing.T) {
	c := &plot.Lines{Lines: []plot.Line{{Name: "a", Kind: "k=1"}, {Name: "b", Kind: "k=2"}, {Name: "c", Kind: "k=1"}, {Name: "d"}}}
	got := c.Looks()
	if got[0] != got[2] || got[0] == got[1] || got[3] == got[0] || got[3] == got[1] {
		t.Errorf("colours %q: want those of a and c alike, and b and d with their own", got)
	}
	svg := markup.String(c.Drawing("title", plot.Look{}))
	wantIn(t, svg, "> k=1</li>", "> k=2</li>", "> d</li>")
	if n := len(endNames.FindAllString(svg, -1)); n > 0 || c.Note(plot.Look{}) != "" {
		t.Errorf("%d names beside the legend, and the note %q", n, c.Note(plot.Look{}))
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
