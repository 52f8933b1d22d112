package report

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"e3/internal/insight/figures"
	h "e3/internal/insight/markup"
	"e3/internal/insight/plot"
)

// A Curve is a line of a chart in numbers. Texts of numbers are short; "" is none.
type Curve struct {
	Name                      string
	Swatch                    h.Node // a piece of the line
	At, Least, Greatest, Last string
	Of                        int // as in Plotted
	Index                     int // of the line in its drawing

	numbers plot.Summary
}

// Curves are the lines of a chart in numbers.
type Curves struct {
	X, Y  string // names of the axes
	Place string // on the x axis, of which At is the value
	First string // place
	Last  string // place
	Lines []Curve
}

// Curves returns the lines of a chart in numbers; nil if the chart has no lines. at is a place on the x axis, a number or
// a label; without a known one it is the last one.
func (c *Chart) Curves(at string) *Curves {
	lines, ok := c.of.(*plot.Lines)
	if !ok {
		return nil
	}
	out := &Curves{X: lines.X, Y: lines.Y}
	places := lines.Places()
	if len(places) == 0 {
		return out
	}
	x, err := strconv.ParseFloat(at, 64)
	if i := slices.Index(lines.Labels, at); i >= 0 {
		x = float64(i)
	} else if err != nil || lines.Labels != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		x = places[len(places)-1]
	}
	out.Place, out.First, out.Last = lines.PlaceText(x), lines.PlaceText(places[0]), lines.PlaceText(places[len(places)-1])
	looks := lines.Looks()
	for i, s := range lines.Summaries(x) {
		text := func(v float64) string {
			if math.IsNaN(v) {
				return ""
			}
			return figures.ShortNumber(v)
		}
		out.Lines = append(out.Lines, Curve{
			Name: lines.Lines[i].Name, Swatch: plot.Swatch("l " + looks[i]), Of: lines.Lines[i].Of, Index: i, At: text(s.At), Least: text(s.Least), Greatest: text(s.Greatest), Last: text(s.Last), numbers: s,
		})
	}
	return out
}

// Sort orders the lines by their name (line) or by at, least, greatest or last, with a leading "-" from the greatest; lines
// without a value come last. Another key changes nothing.
func (c *Curves) Sort(key string) {
	key, down := strings.CutPrefix(key, "-")
	number := map[string]func(*plot.Summary) float64{
		"at": func(s *plot.Summary) float64 { return s.At }, "least": func(s *plot.Summary) float64 { return s.Least },
		"greatest": func(s *plot.Summary) float64 { return s.Greatest }, "last": func(s *plot.Summary) float64 { return s.Last },
	}[key]
	if number == nil && key != "line" {
		return
	}
	slices.SortStableFunc(c.Lines, func(a, b Curve) int {
		order := 0
		if key == "line" {
			order = cmp.Compare(a.Name, b.Name)
		} else {
			v, w := number(&a.numbers), number(&b.numbers)
			switch {
			case math.IsNaN(v) && math.IsNaN(w):
				return 0
			case math.IsNaN(v):
				return 1
			case math.IsNaN(w):
				return -1
			}
			order = cmp.Compare(v, w)
		}
		if down {
			return -order
		}
		return order
	})
}

// Best are the lines with the best last value, and those with the best value anywhere: the least one, or the greatest.
func (c *Curves) Best(least bool) (last, anywhere map[int]bool) {
	of := func(number func(*plot.Summary) float64) map[int]bool {
		top, found, worse := math.NaN(), map[int]bool{}, false
		for i := range c.Lines {
			switch v := number(&c.Lines[i].numbers); {
			case math.IsNaN(v):
			case math.IsNaN(top), v != top && (v < top) == least:
				worse = worse || !math.IsNaN(top)
				top, found = v, map[int]bool{i: true}
			case v == top:
				found[i] = true
			default:
				worse = true
			}
		}
		if !worse { // where all are alike, none is best
			return nil
		}
		return found
	}
	anywhere = of(func(s *plot.Summary) float64 {
		if least {
			return s.Least
		}
		return s.Greatest
	})
	return of(func(s *plot.Summary) float64 { return s.Last }), anywhere
}

// ScatterPoint is a point of a scatter plot with its name. Points of one kind have one colour.
type ScatterPoint struct {
	Name, Kind string
	X, Y       string // X is a number or a word, Y a number
}

// Scatter draws points over an x axis of numbers, or of words if not all are numbers. A point without a number for y is
// left out; nil: none is left.
func Scatter(x, y string, points []ScatterPoint) *Chart {
	chart := &plot.Lines{X: visible(x), Y: visible(y), Template: "scatter"}
	numbers := !slices.ContainsFunc(points, func(p ScatterPoint) bool { return !finite(p.X) })
	if !numbers {
		for _, p := range points {
			if !slices.Contains(chart.Labels, visible(p.X)) {
				chart.Labels = append(chart.Labels, visible(p.X))
			}
		}
		slices.Sort(chart.Labels)
	}
	for _, p := range points {
		if !finite(p.Y) {
			continue
		}
		at := float64(slices.Index(chart.Labels, visible(p.X)))
		if numbers {
			at, _ = strconv.ParseFloat(p.X, 64)
		}
		v, _ := strconv.ParseFloat(p.Y, 64)
		chart.Lines = append(chart.Lines, plot.Line{Name: visible(p.Name), Kind: visible(p.Kind), X: []float64{at}, Y: []float64{v}})
	}
	if len(chart.Lines) == 0 {
		return nil
	}
	return &Chart{Title: visible(y) + " by " + visible(x), of: chart}
}

// finite reports whether a text is a number that a chart can show.
func finite(text string) bool {
	v, err := strconv.ParseFloat(text, 64)
	return err == nil && !math.IsNaN(v) && math.Abs(v) < 1e290
}
