package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"e3/internal/human"
	h "e3/internal/insight/markup"
)

// Measures of a chart, in its own pixels. At a page width of 420 pixels a chart is about that wide, so texts keep their
// size.
const (
	width, height = 400.0, 228.0
	left, right   = 52.0, 10.0
	top, bottom   = 30.0, 34.0
	wideText      = 6.2 // of a character
	mostNamed     = 12  // lines of one chart that are drawn with full strength
	mostPoints    = 800 // of all lines together, at least two per line: more would exceed the chart's pixels
)

// A Look says how charts of lines are drawn.
type Look struct {
	LogX, LogY bool // logarithmic axes, on which only numbers above zero have a place
	Large      bool // as wide as a page
	Values     bool // with the values of the points, for a script that shows those at the pointer
}

// size is the size of the drawing without the names at its right.
func (k Look) size() (wide, high float64) {
	if k.Large {
		return 2 * width, 2 * height
	}
	return width, height
}

// Lines are lines or points over one x axis.
type Lines struct {
	X, Y     string
	Labels   []string // of the x axis: x is an index of them; nil: x is a number
	Lines    []Line
	Template string // linear, smooth or scatter
}

// A Line is a line of a chart. NaN in X or Y breaks it.
type Line struct {
	Name string
	Kind string // lines of one kind have one colour; "": a colour of its own
	Of   int    // a number of the caller's
	X, Y []float64
}

// Caption says what is drawn.
func (c *Lines) Caption() string {
	if c.Y == "" {
		return ""
	}
	return c.Y + " by " + c.X
}

// Drawing draws the chart, with names at the ends of its lines. It is no more than some 100 KiB, or 300 KiB with values.
func (c *Lines) Drawing(title string, look Look) h.Node {
	b := c.box(look)
	wide, high := look.size()
	ends, names := c.ends(b)
	wide += names
	ticks := h.Map(b.y.ticks(), func(v float64) h.Node {
		at := h.Decimal(b.placeY(v))
		return h.Group{
			h.El("path.grid", h.Attr("d", fmt.Sprintf("M%g %sH%g", left, at, b.right))),
			h.El("text", h.Number("x", left-5), h.Attr("y", at), h.Attr("text-anchor", "end"),
				h.Attr("dominant-baseline", "middle"), h.Text(number(v))),
		}
	})
	lines := make(h.Group, len(c.Lines))
	for i := range c.Lines {
		lines[i] = c.line(i, b)
	}
	class := "chart"
	if look.Large {
		class = "chart wide"
	}
	return h.Group{h.El("svg", h.Class(class), h.Attr("viewBox", fmt.Sprintf("0 0 %s %g", h.Decimal(wide), high)), h.Attr("role", "img"),
		h.Attr("aria-label", title), h.If(look.Values, c.scale(b)),
		h.If(c.Y != "", h.El("text.y", h.Attr("x", "4"), h.Attr("y", "13"), h.Text(h.Shorten(c.Y, 52)))), ticks, c.axis(b), lines, ends,
		h.El("text", h.Number("x", (left+b.right)/2), h.Number("y", b.bottom+bottom-4), h.Attr("text-anchor", "middle"),
			h.Text(h.Shorten(c.X, 50)))), h.If(c.legendary(), legendOf(c.kinds(), c.class()))}
}

// legendary reports whether a legend names the lines, by their kinds, instead of a name at each line's end.
func (c *Lines) legendary() bool {
	byKind := c.Template == "scatter" && len(c.Lines) > 1 || slices.ContainsFunc(c.Lines, func(l Line) bool { return l.Kind != "" })
	return byKind && len(c.kinds()) <= mostLooks
}

// class is how the lines are drawn.
func (c *Lines) class() string {
	switch {
	case c.Template == "scatter":
		return "l dots"
	case c.Template != "smooth" && len(c.Lines) > mostNamed:
		return "l many"
	}
	return "l"
}

// box is the area of a drawing in which lines are.
type box struct {
	look          Look
	x, y          extent
	right, bottom float64
	looks         []string // of the lines
}

func (c *Lines) box(look Look) box {
	x, y := c.extents(look)
	wide, high := look.size()
	return box{look: look, x: x, y: y, right: wide - right, bottom: high - bottom, looks: c.Looks()}
}

func (b *box) placeX(v float64) float64 { return b.x.place(v, left, b.right) }
func (b *box) placeY(v float64) float64 { return b.y.place(v, b.bottom, top) }

// has reports whether a point has a place.
func (b *box) has(x, y float64) bool { return b.x.has(x) && b.y.has(y) }

// Note describes the lines of a chart that is too full to name each, and what has no place on its axes.
func (c *Lines) Note(look Look) string {
	var notes []string
	if n := len(c.Lines); !c.legendary() && n > 1 {
		if bare := n - len(c.named(c.box(look))); bare > 0 {
			notes = append(notes, fmt.Sprintf("without a label: %d of %d lines; point at a line for its name", bare, n))
		}
	}
	if n := len(c.kinds()); n > mostLooks {
		notes = append(notes, fmt.Sprintf("there are %d looks, which repeat", mostLooks))
	}
	if look.LogX || look.LogY {
		lost, b := 0, box{x: extent{log: look.LogX && c.Labels == nil}, y: extent{log: look.LogY}}
		for i := range c.Lines {
			for k, v := range c.Lines[i].X {
				if w := c.Lines[i].Y[k]; !math.IsNaN(v) && !math.IsNaN(w) && !b.has(v, w) {
					lost++
				}
			}
		}
		if lost > 0 {
			notes = append(notes, human.Count(lost, "point")+" at or below zero have no place on a logarithmic axis")
		}
	}
	return strings.Join(notes, "; ")
}

// kinds are the kinds of lines, in the order of the lines; a line without one is a kind of its own.
func (c *Lines) kinds() []string {
	var list []string
	seen := map[string]bool{}
	for i := range c.Lines {
		k := c.Lines[i].Kind
		if k == "" || !seen[k] {
			list = append(list, cmp.Or(k, c.Lines[i].Name))
			seen[k] = true
		}
	}
	return list
}

// Looks are the looks of the lines, as classes of [Style].
func (c *Lines) Looks() []string {
	list, at := make([]string, len(c.Lines)), map[string]int{}
	next := 0
	for i := range c.Lines {
		k := c.Lines[i].Kind
		place, known := at[k]
		if k == "" || !known {
			place = next
			at[k], next = next, next+1
		}
		list[i] = lookOf(place)
	}
	return list
}

// axis draws the x axis: numbers, or as many labels as fit.
func (c *Lines) axis(b box) h.Node {
	text := func(v float64, s string) h.Node {
		at := b.placeX(v)
		anchor := "middle"
		if half := float64(utf8.RuneCountInString(s)) * wideText / 2; at+half > b.right+right-2 {
			anchor, at = "end", b.right+right-2
		}
		return h.El("text", h.Number("x", at), h.Number("y", b.bottom+14), h.Attr("text-anchor", anchor), h.Text(s))
	}
	if c.Labels == nil {
		return h.Map(b.x.ticks(), func(v float64) h.Node { return text(v, number(v)) })
	}
	long := 3
	for _, l := range c.Labels {
		long = max(long, utf8.RuneCountInString(l))
	}
	long = min(long, 14)
	fit := max(2, int((b.right-left)/(float64(long+1)*wideText)))
	var texts h.Group
	for i := 0; i < len(c.Labels); i += (len(c.Labels) + fit - 1) / fit {
		texts = append(texts, text(float64(i), h.Shorten(c.Labels[i], 14)))
	}
	return texts
}

// line draws a line, and points where it has no neighbour; or the points alone, or a smooth line over them.
func (c *Lines) line(i int, b box) h.Node {
	l := &c.Lines[i]
	if c.Template == "smooth" {
		over := smooth(l, max(2, mostPoints/max(len(c.Lines), 4)))
		return h.Group{c.path(i, l, "l dots faint", b), c.path(i, over, "l", b)}
	}
	return c.path(i, l, c.class(), b)
}

// drawn are the indices of the points of a line that are drawn.
func (c *Lines) drawn(l *Line) []int {
	most := max(2, mostPoints*mostNamed/max(len(c.Lines), mostNamed))
	step := max((len(l.X)+most-1)/most, 1)
	list := make([]int, 0, len(l.X)/step+1)
	for k := 0; k < len(l.X); k += step {
		if k+step >= len(l.X) {
			k = len(l.X) - 1 // the last point is drawn in any case
		}
		list = append(list, k)
	}
	return list
}

// path draws a line, or points if the class says so.
func (c *Lines) path(i int, l *Line, class string, b box) h.Node {
	points := strings.Contains(class, "dots")
	var path strings.Builder
	pen := "M"
	for _, k := range c.drawn(l) {
		if !b.has(l.X[k], l.Y[k]) {
			pen = "M"
			continue
		}
		path.WriteString(pen + h.Decimal(b.placeX(l.X[k])) + " " + h.Decimal(b.placeY(l.Y[k])))
		if pen == "M" {
			path.WriteString("h0") // round ends make a point of it
		}
		if pen = "L"; points {
			pen = "M"
		}
	}
	return h.El("g", h.If(b.look.Values, c.values(l)),
		h.El("path", h.Class(class+" "+b.looks[i]), h.Attr("d", path.String())),
		h.If(l.Name != "", h.El("title", h.Text(l.Name))))
}

// extent is the range of an axis, whose numbers are logarithms if log is true.
type extent struct {
	from, to float64
	log      bool
}

func (c *Lines) extents(look Look) (x, y extent) {
	x, y = extent{math.Inf(1), math.Inf(-1), look.LogX && c.Labels == nil}, extent{math.Inf(1), math.Inf(-1), look.LogY}
	for i := range c.Lines {
		l := &c.Lines[i]
		for k := range l.X {
			if x.has(l.X[k]) && y.has(l.Y[k]) {
				x.add(l.X[k])
				y.add(l.Y[k])
			}
		}
	}
	y.widen()
	x.widen()
	return x, y.rounded()
}

// has reports whether a number has a place on the axis.
func (e extent) has(v float64) bool { return !math.IsNaN(v) && (!e.log || v > 0) }

// along is the number whose distance on the axis counts.
func (e extent) along(v float64) float64 {
	if e.log {
		return math.Log10(v)
	}
	return v
}

func (e *extent) add(v float64) {
	v = e.along(v)
	e.from, e.to = min(e.from, v), max(e.to, v)
}

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

// step is the distance of round ticks, of which there are three to seven. On a logarithmic axis it is one power of ten
// or more.
func (e extent) step() float64 {
	if e.log {
		return max(1, math.Ceil((e.to-e.from)/7))
	}
	raw := (e.to/5 - e.from/5) * 0.9999
	p := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if raw <= m*p {
			return m * p
		}
	}
	return 10 * p
}

// rounded begins and ends at a round number, of which most are ticks.
func (e extent) rounded() extent {
	if e.log {
		return extent{roundLog(e.from, false), roundLog(e.to, true), true}
	}
	s := e.step()
	return extent{math.Floor(e.from/s) * s, math.Ceil(e.to/s) * s, false}
}

// roundLog is the logarithm of the next power of ten, or of its double or fivefold.
func roundLog(v float64, up bool) float64 {
	p, found := math.Floor(v), math.Inf(-1)
	for _, m := range []float64{1, 2, 5, 10} {
		at := p + math.Log10(m)
		if up && at >= v-1e-9 {
			return at
		}
		if at <= v+1e-9 {
			found = at
		}
	}
	return found
}

// fine reports whether a logarithmic axis is so short that it needs ticks between powers of ten.
func (e extent) fine() bool { return e.log && e.to-e.from < 2 }

func (e extent) ticks() []float64 {
	if e.log {
		return e.logTicks()
	}
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

// logTicks are powers of ten, with their double and fivefold if the axis is short; its ends if it is too short for these.
func (e extent) logTicks() (list []float64) {
	between := []float64{1}
	if e.fine() {
		between = []float64{1, 2, 5}
	}
	for p := math.Floor(e.from); p <= e.to; p += e.step() {
		for _, m := range between {
			if at := p + math.Log10(m); at >= e.from-1e-9 && at <= e.to+1e-9 {
				list = append(list, m*math.Pow(10, p))
			}
		}
	}
	if len(list) < 2 {
		list = []float64{math.Pow(10, e.from), math.Pow(10, e.to)}
	}
	return list
}

// place maps a value to a range of pixels.
func (e extent) place(v, from, to float64) float64 {
	v = e.along(v)
	return from + (v/2-e.from/2)/(e.to/2-e.from/2)*(to-from)
}

// number is the text of a tick.
func number(v float64) string {
	if a := math.Abs(v); a != 0 && (a < 1e-4 || a >= 1e6) {
		return strings.Replace(strconv.FormatFloat(v, 'g', 3, 64), "e+0", "e", 1)
	}
	return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64)
}
