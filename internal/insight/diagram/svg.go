package diagram

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"

	h "e3/internal/insight/markup"

	"golang.org/x/text/width"
)

// Measures of a drawing, in pixels.
const (
	labelSize   = 13.0
	captionSize = 11.0
	longest     = 34 // characters of a label that are drawn; the tooltip has all of them
	margin      = 12.0
	padding     = 12.0
)

// SVG writes the graph as a complete file. It follows the viewer's light or dark preference, and is light without style
// sheets.
func (g *Graph) SVG(w io.Writer) error {
	title := clean(g.Title)
	drawing, err := g.draw(h.El("title", h.Text(title)), h.El("style", h.Raw(Style())))
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+h.String(drawing)+"\n")
	return err
}

// Drawing returns the graph as an element of a page, which needs [Style].
func (g *Graph) Drawing() (h.Node, error) { return g.draw() }

// draw draws the graph in an element that begins with head.
func (g *Graph) draw(head ...h.Node) (h.Node, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	sizes := make([]size, len(g.Nodes))
	for i := range g.Nodes {
		sizes[i] = g.Nodes[i].size()
	}
	p := arrange(g, sizes)
	wide, high := math.Ceil(p.w+2*margin), math.Ceil(p.h+2*margin)
	shift := h.Attr("transform", fmt.Sprintf("translate(%g %g)", margin, margin))
	nodes := make(h.Group, len(g.Nodes))
	for i := range g.Nodes {
		nodes[i] = h.Group{g.Nodes[i].draw(p.nodes[i], sizes[i]), h.Text("\n")} // lines, so that two drawings can be compared
	}
	return h.El("svg", h.Attr("xmlns", "http://www.w3.org/2000/svg"), h.Class("graph"), h.Attr("role", "group"),
		h.Attr("aria-label", clean(g.Title)),
		h.Number("width", wide), h.Number("height", high), h.Attr("viewBox",
			fmt.Sprintf("0 0 %.0f %.0f", wide, high)), h.Group(head),
		h.El("defs", arrow()),
		h.El("g.e", h.Attr("fill", "none"), h.Attr("stroke", "#98a2b0"), h.Attr("stroke-width", "1.3"), shift, g.ways(p)),
		h.El("g", shift, nodes)), nil
}

func arrow() h.Node {
	return h.El("marker", h.ID("graph-arrow"), h.Attr("viewBox", "0 0 8 8"), h.Attr("refX", "7"), h.Attr("refY", "4"),
		h.Attr("markerWidth", "7"), h.Attr("markerHeight", "7"), h.Attr("orient", "auto"),
		h.El("path.m", h.Attr("d", "M0 0.6 7.4 4 0 7.4z"), h.Attr("fill", "#98a2b0")))
}

// ways draws the edges.
func (g *Graph) ways(p *placed) h.Node {
	var paths h.Group
	for k, e := range g.Edges {
		if p.ways[k] == nil {
			continue
		}
		end := "marker-end"
		if p.nodes[e.From].x > p.nodes[e.To].x { // the path was computed from left to right
			end = "marker-start"
		}
		paths = append(paths, h.El("path", h.Attr(end, "url(#graph-arrow)"), h.Attr("d", curve(p.ways[k]))))
	}
	return paths
}

// draw draws a node with its middle at a point.
func (n *Node) draw(at point, s size) h.Node {
	x, y := math.Round(at.x-s.w/2), math.Round(at.y-s.h/2)
	label, caption := n.label(), n.caption()
	tip := label
	if caption != "" {
		tip += "\n" + caption
	}
	if n.Tallies != nil && n.Note != "" {
		tip += ": " + clean(n.Note)
	}
	text := func(name string, y, size float64, fill, s string) h.Node {
		return h.El(name, h.Number("x", x+padding), h.Number("y", y), h.Number("font-size", size),
			h.Attr("font-family", "sans-serif"),
			h.Attr("fill", fill), h.Text(s))
	}
	baseline := y + s.h/2 + labelSize*0.36
	parts := h.Group{h.El("title", h.Text(tip)), h.If(n.Tallies != nil, n.box(x+4, y+4, s)),
		n.box(x, y, s)} // tallies: a pile
	if caption != "" {
		baseline = y + 19
		parts = append(parts, text("text.c", y+34, captionSize, lightInk(n.Status.class()).line,
			h.Shorten(caption, longest+6)))
	}
	parts = append(parts, text("text.l", math.Round(baseline), labelSize, "#1f2328", h.Shorten(label, longest)),
		n.bar(x, y, s))
	var drawn h.Node = parts
	switch {
	case n.Href != "":
		drawn = h.El("a", h.Attr("href", n.Href), parts)
	case n.Anchor != "":
		drawn = h.El("a", h.Attr("href", "#"+n.Anchor), parts)
	}
	return h.El("g", h.Class("s-"+n.Status.class()), drawn)
}

func (n *Node) box(x, y float64, s size) h.Node {
	c := lightInk(n.Status.class())
	round, dash := 8.0, ""
	if n.Kind == Input {
		round, dash = s.h/2, "4 3"
	}
	return h.El("rect.b", h.Number("x", x), h.Number("y", y), h.Number("width", s.w), h.Number("height", s.h),
		h.Number("rx", round),
		h.Attr("fill", c.fill), h.Attr("stroke", c.line), h.If(dash != "", h.Attr("stroke-dasharray", dash)))
}

// bar draws the shares of a node's tallies along its lower edge.
func (n *Node) bar(x, y float64, s size) h.Node {
	if len(n.Tallies) < 2 {
		return nil
	}
	const least = 4.0 // pixels: a few failures among many are seen
	room, from := s.w-2*padding-least*float64(len(n.Tallies)), x+padding
	return h.Map(n.Tallies, func(t Tally) h.Node {
		w := least + max(room, 0)*float64(t.Count)/float64(n.count())
		class := t.Status.class()
		share := h.El("rect", h.Class("s-"+class+" c"), h.Number("x", from), h.Number("y", y+s.h-6), h.Number("width", w),
			h.Attr("height", "3"),
			h.Attr("fill", lightInk(class).line))
		from += w
		return share
	})
}

// size is the size of the box for a node's lines.
func (n *Node) size() size {
	w := textWidth(h.Shorten(n.label(), longest), labelSize)
	high := 30.0
	if caption := n.caption(); caption != "" {
		w = max(w, textWidth(h.Shorten(caption, longest+6), captionSize))
		high = 43
	}
	if len(n.Tallies) > 1 {
		high += 6
	}
	return size{math.Ceil(max(w+2*padding, 64)), high}
}

// curve is a path through points from left to right: horizontal at each point, and straight between points of equal
// height.
func curve(way []point) string {
	var b strings.Builder
	num := func(f float64) string { return strconv.FormatFloat(math.Round(f*2)/2, 'f', -1, 64) }
	fmt.Fprintf(&b, "M%s %s", num(way[0].x), num(way[0].y))
	for i := 1; i < len(way); i++ {
		from, to := way[i-1], way[i]
		if math.Abs(from.y-to.y) < 0.5 {
			fmt.Fprintf(&b, "L%s %s", num(to.x), num(to.y))
			continue
		}
		half := (from.x + to.x) / 2
		fmt.Fprintf(&b, "C%s %s %s %s %s %s", num(half), num(from.y), num(half), num(to.y), num(to.x), num(to.y))
	}
	return b.String()
}

// textWidth estimates the width of text in a usual sans serif font, rather too wide than too narrow.
func textWidth(s string, px float64) float64 {
	em := 0.0
	for _, r := range s {
		switch {
		case strings.ContainsRune("ijl.,:;'|![](){}ftr ", r):
			em += 0.38
		case strings.ContainsRune("mwMW×—…", r):
			em += 0.92
		case r < 0x300 && unicode.IsUpper(r):
			em += 0.72
		case r < 0x300:
			em += 0.6
		case unicode.In(r, unicode.Mn, unicode.Me):
		default:
			em += 0.68
			if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
				em += 0.36
			}
		}
	}
	return em * px
}
