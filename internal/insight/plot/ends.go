package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"e3/internal/insight/figures"
	h "e3/internal/insight/markup"
)

const (
	endStep  = 13.0 // between the names of two lines
	endNames = 26   // characters of a name
	endLead  = 14.0 // between the lines and their names
	endNear  = 24.0 // from the right, where a line has its name beside the chart
	endAside = 4.0  // between the end of a line that ends before, and its name
)

// end is the name of a line, and where it stands.
type end struct {
	line       int
	x, from, y float64 // x and from: the line's last point
	name       string
	aside      bool // the line ends before the others: its name stands there
}

// wide is the width of the name.
func (e *end) wide() float64 { return float64(utf8.RuneCountInString(e.name)+1) * wideText }

// named are the lines that have their names at their ends. Names of lines that reach the right stand below each other;
// where they are too many, those are named whose ends are spread evenly from top to bottom. A line that ends before is
// named where it ends, if there is room.
func (c *Lines) named(b box) []end {
	if c.Template == "scatter" || c.legendary() || len(c.Lines) == 1 && c.Lines[0].Name == "" {
		return nil
	}
	var list, aside []end
	for i := range c.Lines {
		l := &c.Lines[i]
		for k := len(l.X) - 1; k >= 0; k-- {
			if b.has(l.X[k], l.Y[k]) {
				at := b.placeY(l.Y[k])
				e := end{line: i, x: b.placeX(l.X[k]), from: at, y: at, name: h.Shorten(l.Name, endNames)}
				if e.aside = b.right-e.x > endNear; e.aside {
					aside = append(aside, e)
				} else {
					list = append(list, e)
				}
				break
			}
		}
	}
	slices.SortStableFunc(list, func(u, v end) int { return cmp.Compare(u.from, v.from) })
	if most := int((b.bottom-top)/endStep) + 1; len(list) > most {
		for i := range most {
			list[i] = list[i*(len(list)-1)/(most-1)]
		}
		list = list[:most]
	}
	apart(list, top, b.bottom)
	placed := len(list)
	for _, e := range aside {
		if e.x+endAside+e.wide() > b.right { // above the line's end, where it has come from
			e.x, e.y = e.x-endAside-e.wide(), max(e.y-endStep/2, top)
		}
		e.x += endAside
		if !slices.ContainsFunc(list[placed:], func(o end) bool {
			return math.Abs(o.y-e.y) < endStep && e.x < o.x+o.wide() && o.x < e.x+e.wide()
		}) {
			list = append(list, e)
		}
	}
	return list
}

// ends draws the names of lines at their ends. wide is the width of those beside the lines.
func (c *Lines) ends(b box) (drawn h.Node, wide float64) {
	list := c.named(b)
	names := make(h.Group, len(list))
	for i, e := range list {
		at, lead := e.x, h.Node(nil)
		if !e.aside {
			wide, at = max(wide, endLead+e.wide()), b.right+endLead
			lead = h.El("path", h.Class("lead "+b.looks[e.line]), h.Attr("d", fmt.Sprintf("M%s %sL%s %s", h.Decimal(e.x), h.Decimal(e.from),
				h.Decimal(at-3), h.Decimal(e.y))))
		}
		names[i] = h.Group{lead, h.El("text", h.Class("end "+b.looks[e.line]), h.Number("x", at), h.Number("y", e.y),
			h.Attr("dominant-baseline", "middle"), h.Text(e.name))}
	}
	return names, wide
}

// apart moves names, sorted by their place, until none covers another and all are between two places.
func apart(list []end, from, to float64) {
	for i := range list {
		list[i].y = max(list[i].y, from+endStep*float64(i))
		if i > 0 {
			list[i].y = max(list[i].y, list[i-1].y+endStep)
		}
	}
	for i := len(list) - 1; i >= 0; i-- {
		list[i].y = min(list[i].y, to-endStep*float64(len(list)-1-i))
		if i < len(list)-1 {
			list[i].y = min(list[i].y, list[i+1].y-endStep)
		}
	}
}

// scale tells a script where numbers are on the x axis.
func (c *Lines) scale(b box) h.Node {
	mode := "linear"
	if b.x.log {
		mode = "log"
	}
	return h.Group{
		h.Attr("data-scale", fmt.Sprintf("%s %g %g %g %g %g", mode, left, b.right, b.bottom, b.x.from, b.x.to)),
		h.Attr("data-axis", c.X),
		h.If(c.Labels != nil, h.Attr("data-labels", strings.Join(c.Labels, "\n"))),
	}
}

// values are the points of a line for a script.
func (c *Lines) values(l *Line) h.Node {
	var xs, ys []string
	for _, k := range c.drawn(l) {
		if !math.IsNaN(l.X[k]) && !math.IsNaN(l.Y[k]) {
			xs, ys = append(xs, strconv.FormatFloat(l.X[k], 'g', 9, 64)), append(ys, figures.ShortNumber(l.Y[k]))
		}
	}
	return h.Group{h.Attr("data-x", strings.Join(xs, " ")), h.Attr("data-y", strings.Join(ys, " "))}
}

// Summary is a line in numbers; all are NaN if it has no point.
type Summary struct {
	At, Least, Greatest, Last float64
	None                      bool // the line has no point, or none around the place of At
}

// Places are the numbers on the x axis at which a line has a point, from the least.
func (c *Lines) Places() []float64 {
	var list []float64
	for i := range c.Lines {
		l := &c.Lines[i]
		for _, k := range c.drawn(l) {
			if !math.IsNaN(l.X[k]) && !math.IsNaN(l.Y[k]) {
				list = append(list, l.X[k])
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// PlaceText is a place on the x axis as a reader knows it: a label or a number.
func (c *Lines) PlaceText(x float64) string {
	if i := int(x); c.Labels != nil && i >= 0 && i < len(c.Labels) {
		return c.Labels[i]
	}
	return strconv.FormatFloat(x, 'g', 9, 64)
}

// Summaries are the lines in numbers. At is the value of the point that is nearest to x, of two the earlier; a line that
// does not reach x has none.
func (c *Lines) Summaries(x float64) []Summary {
	list := make([]Summary, len(c.Lines))
	for i := range c.Lines {
		l, none := &c.Lines[i], math.NaN()
		s := Summary{none, none, none, none, true}
		near, first, last := math.Inf(1), math.Inf(1), math.Inf(-1)
		for _, k := range c.drawn(l) {
			at, v := l.X[k], l.Y[k]
			if math.IsNaN(at) || math.IsNaN(v) {
				continue
			}
			first, last, s.Last = min(first, at), max(last, at), v
			if s.None {
				s.Least, s.Greatest, s.None = v, v, false
			}
			s.Least, s.Greatest = min(s.Least, v), max(s.Greatest, v)
			if d := math.Abs(at - x); d < near {
				near, s.At = d, v
			}
		}
		if s.None = x < first || x > last; s.None {
			s.At = none
		}
		list[i] = s
	}
	return list
}
