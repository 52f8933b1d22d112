package plot

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	h "e3/internal/insight/markup"
)

// Measures of a chart, in its own pixels. At a page width of 420 pixels a chart is about that wide, so texts keep their size.
const (
	width, height = 400.0, 228.0
	left, right   = 52.0, 10.0
	top, bottom   = 30.0, 34.0
	wideText      = 6.2 // of a character
	mostNamed     = 12  // lines with a name below the chart
	mostPoints    = 800 // of all lines together, at least two per line: more would exceed the chart's pixels
)

// Style is for pages that show charts. Colours are legible on light and dark ground; --text, --dim and --rule are the page's.
const Style = `.chart{display:block;width:100%;max-width:36rem;height:auto;font:12px system-ui,sans-serif}
.chart text{fill:var(--dim,#5b6675)}.chart .y{fill:var(--text,#1f2328);font-weight:600}
.chart .grid{stroke:var(--rule,#e1e5ea);fill:none}.chart .l{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}.chart .many{stroke-width:1.1;opacity:.75}
.chart g:hover>.l{stroke-width:3;opacity:1}
.chart .dots{stroke-width:5;opacity:.8}.chart .faint{opacity:.3}.chart g:hover>.dots{stroke-width:6}
.chart .cell{stroke:var(--rule,#e1e5ea)}.chart .on{fill:#fff}
`

// colours are the colours of the first lines. People with colour blindness can also tell them apart (Okabe and Ito,
// darker yellow).
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7a5195", "#8c564b"}

// colour is the colour of line i of n: one of colours while the lines are few, else from blue to red in the order of
// the lines.
func colour(i, n int) string {
	if n <= len(colours) {
		return colours[i]
	}
	return fmt.Sprintf("hsl(%d 65%% 48%%)", 220+int(math.Round(float64(i)/float64(n-1)*140)))
}

// Lines are lines or points over one x axis.
type Lines struct {
	X, Y     string
	Labels   []string // of the x axis: x is an index of them; nil: x is a number
	Lines    []Line
	template string
}

// A Line is a line of a chart. NaN in X or Y breaks it.
type Line struct {
	Name string
	X, Y []float64
}

// Caption says what is drawn.
func (c *Lines) Caption() string {
	if c.Y == "" {
		return ""
	}
	return c.Y + " by " + c.X
}

// Drawing draws the chart. It is no more than some 100 KiB.
func (c *Lines) Drawing(title string) h.Node {
	x, y := c.extents()
	named := len(c.Lines) <= mostNamed && (len(c.Lines) > 1 || len(c.Lines) == 1 && c.Lines[0].Name != "")
	all := make([]string, len(c.Lines))
	for i := range c.Lines {
		all[i] = c.Lines[i].Name
	}
	names, rows := legendOf(all, height-3, named)
	full := height + 17*rows
	if rows > 0 {
		full += 6
	}
	ticks := h.Map(y.ticks(), func(v float64) h.Node {
		at := h.Decimal(y.place(v, height-bottom, top))
		return h.Group{
			h.El("path.grid", h.Attr("d", fmt.Sprintf("M%g %sH%g", left, at, width-right))),
			h.El("text", h.Number("x", left-5), h.Attr("y", at), h.Attr("text-anchor", "end"),
				h.Attr("dominant-baseline", "middle"), h.Text(number(v))),
		}
	})
	lines := make(h.Group, len(c.Lines))
	for i := range c.Lines {
		lines[i] = c.line(i, x, y)
	}
	return h.El("svg.chart", h.Attr("viewBox", fmt.Sprintf("0 0 %g %g", width, full)), h.Attr("role", "img"),
		h.Attr("aria-label", title),
		h.If(c.Y != "", h.El("text.y", h.Attr("x", "4"), h.Attr("y", "13"), h.Text(h.Shorten(c.Y, 52)))), ticks, c.axis(x), lines,
		h.El("text", h.Number("x", (left+width-right)/2), h.Number("y", height-4), h.Attr("text-anchor", "middle"),
			h.Text(h.Shorten(c.X, 50))), names)
}

// Note describes the lines of a chart that is too full to name each; "" if the chart names them.
func (c *Lines) Note() string {
	if n := len(c.Lines); n > mostNamed {
		return fmt.Sprintf("%d lines, from %s (blue) to %s (red); point at a line for its name", n, c.Lines[0].Name,
			c.Lines[n-1].Name)
	}
	return ""
}

// axis draws the x axis: numbers, or as many labels as fit.
func (c *Lines) axis(x extent) h.Node {
	text := func(v float64, s string) h.Node {
		at := x.place(v, left, width-right)
		anchor := "middle"
		if half := float64(utf8.RuneCountInString(s)) * wideText / 2; at+half > width-2 {
			anchor, at = "end", width-2
		}
		return h.El("text", h.Number("x", at), h.Number("y", height-bottom+14), h.Attr("text-anchor", anchor), h.Text(s))
	}
	if c.Labels == nil {
		return h.Map(x.ticks(), func(v float64) h.Node { return text(v, number(v)) })
	}
	long := 3
	for _, l := range c.Labels {
		long = max(long, utf8.RuneCountInString(l))
	}
	long = min(long, 14)
	fit := max(2, int((width-left-right)/(float64(long+1)*wideText)))
	var texts h.Group
	for i := 0; i < len(c.Labels); i += (len(c.Labels) + fit - 1) / fit {
		texts = append(texts, text(float64(i), h.Shorten(c.Labels[i], 14)))
	}
	return texts
}

// line draws a line, and points where it has no neighbour; or the points alone, or a smooth line over them.
func (c *Lines) line(i int, x, y extent) h.Node {
	l := &c.Lines[i]
	switch c.template {
	case "scatter":
		return c.path(i, l, "l dots", x, y)
	case "smooth":
		over := smooth(l, max(2, mostPoints/max(len(c.Lines), 4)))
		return h.Group{c.path(i, l, "l dots faint", x, y), c.path(i, over, "l", x, y)}
	}
	if len(c.Lines) > mostNamed {
		return c.path(i, l, "l many", x, y)
	}
	return c.path(i, l, "l", x, y)
}

// path draws a line, or points if the class says so.
func (c *Lines) path(i int, l *Line, class string, x, y extent) h.Node {
	points := strings.Contains(class, "dots")
	most := max(2, mostPoints*mostNamed/max(len(c.Lines), mostNamed))
	step := (len(l.X) + most - 1) / most
	var path strings.Builder
	pen := "M"
	for k := 0; k < len(l.X); k += max(step, 1) {
		if k+step >= len(l.X) {
			k = len(l.X) - 1 // the last point is drawn in any case
		}
		if math.IsNaN(l.X[k]) || math.IsNaN(l.Y[k]) {
			pen = "M"
			continue
		}
		path.WriteString(pen + h.Decimal(x.place(l.X[k], left, width-right)) + " " + h.Decimal(y.place(l.Y[k], height-bottom,
			top)))
		if pen == "M" {
			path.WriteString("h0") // round ends make a point of it
		}
		if pen = "L"; points {
			pen = "M"
		}
	}
	return h.El("g", h.El("path", h.Class(class), h.Attr("stroke", colour(i, len(c.Lines))), h.Attr("d", path.String())),
		h.If(l.Name != "", h.El("title", h.Text(l.Name))))
}

// extent is the range of an axis.
type extent struct{ from, to float64 }

func (c *Lines) extents() (x, y extent) {
	x, y = extent{math.Inf(1), math.Inf(-1)}, extent{math.Inf(1), math.Inf(-1)}
	for i := range c.Lines {
		l := &c.Lines[i]
		for k := range l.X {
			if !math.IsNaN(l.X[k]) && !math.IsNaN(l.Y[k]) {
				x.add(l.X[k])
				y.add(l.Y[k])
			}
		}
	}
	y.widen()
	x.widen()
	return x, y.rounded()
}

func (e *extent) add(v float64) { e.from, e.to = min(e.from, v), max(e.to, v) }

// widen makes a range if there is no value or only one.
func (e *extent) widen() {
	if e.from > e.to {
		e.from, e.to = 0, 1
	}
	if e.to-e.from <= math.Abs(e.to)*1e-12 {
		d := math.Abs(e.to) / 10
		if d == 0 || math.IsInf(e.from-d, 0) {
			d = 1
		}
		e.from, e.to = e.from-d, e.to+d
	}
}

// step is the distance of round ticks, of which there are three to seven.
func (e extent) step() float64 {
	raw := (e.to/5 - e.from/5) * 0.9999
	p := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if raw <= m*p {
			return m * p
		}
	}
	return 10 * p
}

// rounded begins and ends at a tick.
func (e extent) rounded() extent {
	s := e.step()
	return extent{math.Floor(e.from/s) * s, math.Ceil(e.to/s) * s}
}

func (e extent) ticks() []float64 {
	s := e.step()
	var list []float64
	for i := math.Ceil(e.from/s - 1e-9); i*s <= e.to+s*1e-9 && len(list) < 12; i++ {
		v := i * s
		if math.Abs(v) < s*1e-9 {
			v = 0
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		return slices.Compact([]float64{e.from, e.to})
	}
	return list
}

// place maps a value to a range of pixels.
func (e extent) place(v, from, to float64) float64 {
	return from + (v/2-e.from/2)/(e.to/2-e.from/2)*(to-from)
}

// number is the text of a tick.
func number(v float64) string {
	if a := math.Abs(v); a != 0 && (a < 1e-4 || a >= 1e6) {
		return strings.Replace(strconv.FormatFloat(v, 'g', 3, 64), "e+0", "e", 1)
	}
	return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64)
}
