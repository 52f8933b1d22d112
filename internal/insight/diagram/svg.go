package diagram

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"

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
func (g *Graph) SVG(w io.Writer) error { return g.svg(w, false) }

// InlineSVG writes the graph as an element for an HTML page, which needs [Style].
func (g *Graph) InlineSVG(w io.Writer) error { return g.svg(w, true) }

func (g *Graph) svg(w io.Writer, inline bool) error {
	if err := g.check(); err != nil {
		return err
	}
	sizes := make([]size, len(g.Nodes))
	for i := range g.Nodes {
		sizes[i] = g.Nodes[i].size()
	}
	p := arrange(g, sizes)
	b := bufio.NewWriter(w)
	if !inline {
		b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n")
	}
	wide, high := p.w+2*margin, p.h+2*margin
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" class="graph" role="group" aria-label="%s" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f">`,
		escape(clean(g.Title)), math.Ceil(wide), math.Ceil(high), math.Ceil(wide), math.Ceil(high))
	if !inline {
		fmt.Fprintf(b, "<title>%s</title><style>%s</style>", escape(clean(g.Title)), Style())
	}
	b.WriteString(`<defs><marker id="graph-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">` +
		`<path class="m" d="M0 0.6 7.4 4 0 7.4z" fill="#98a2b0"/></marker></defs>`)
	fmt.Fprintf(b, `<g class="e" fill="none" stroke="#98a2b0" stroke-width="1.3" transform="translate(%g %g)">`, margin, margin)
	for k, e := range g.Edges {
		if p.ways[k] == nil {
			continue
		}
		marker := `marker-end="url(#graph-arrow)"`
		if p.nodes[e.From].x > p.nodes[e.To].x { // the path was computed from left to right
			marker = `marker-start="url(#graph-arrow)"`
		}
		fmt.Fprintf(b, "<path %s d=\"%s\"/>", marker, curve(p.ways[k]))
	}
	fmt.Fprintf(b, "</g><g transform=\"translate(%g %g)\">\n", margin, margin)
	for i := range g.Nodes {
		g.Nodes[i].draw(b, p.nodes[i], sizes[i])
	}
	b.WriteString("</g></svg>\n")
	return b.Flush()
}

// draw writes a node with its middle at a point.
func (n *Node) draw(b *bufio.Writer, at point, s size) {
	class := n.Status.class()
	c := lightInks[class]
	x, y := math.Round(at.x-s.w/2), math.Round(at.y-s.h/2)
	label, caption := n.label(), n.caption()
	tip := label
	if caption != "" {
		tip += "\n" + caption
	}
	fmt.Fprintf(b, `<g class="s-%s">`, class)
	href := n.Href
	if href == "" && n.Anchor != "" {
		href = "#" + n.Anchor
	}
	if href != "" {
		fmt.Fprintf(b, `<a href="%s">`, escape(href))
	}
	fmt.Fprintf(b, `<title>%s</title>`, escape(tip))
	round, dash := 8.0, ""
	if n.Kind == Input {
		round, dash = s.h/2, ` stroke-dasharray="4 3"`
	}
	box := func(dx, dy float64) {
		fmt.Fprintf(b, `<rect class="b" x="%g" y="%g" width="%g" height="%g" rx="%g" fill="%s" stroke="%s"%s/>`, x+dx, y+dy, s.w, s.h, round, c.fill, c.line, dash)
	}
	if n.Tallies != nil { // a pile
		box(4, 4)
	}
	box(0, 0)
	baseline := y + s.h/2 + labelSize*0.36
	if caption != "" {
		baseline = y + 19
		fmt.Fprintf(b, `<text class="c" x="%g" y="%g" font-size="%g" font-family="sans-serif" fill="%s">%s</text>`,
			x+padding, y+34, captionSize, c.line, escape(shorten(caption, longest+6)))
	}
	fmt.Fprintf(b, `<text class="l" x="%g" y="%g" font-size="%g" font-family="sans-serif" fill="#1f2328">%s</text>`,
		x+padding, math.Round(baseline), labelSize, escape(shorten(label, longest)))
	n.bar(b, x, y, s)
	if href != "" {
		b.WriteString("</a>")
	}
	b.WriteString("</g>\n")
}

// bar draws the shares of a node's tallies along its lower edge.
func (n *Node) bar(b *bufio.Writer, x, y float64, s size) {
	if len(n.Tallies) < 2 {
		return
	}
	room, from := s.w-2*padding, x+padding
	for _, t := range n.Tallies {
		w := room * float64(t.Count) / float64(n.count())
		class := t.Status.class()
		fmt.Fprintf(b, `<rect class="s-%s c" x="%.1f" y="%g" width="%.1f" height="3" fill="%s"/>`, class, from, y+s.h-6, w, lightInks[class].line)
		from += w
	}
}

// size is the size of the box for a node's lines.
func (n *Node) size() size {
	w := textWidth(shorten(n.label(), longest), labelSize)
	h := 30.0
	if caption := n.caption(); caption != "" {
		w = max(w, textWidth(shorten(caption, longest+6), captionSize))
		h = 43
	}
	if len(n.Tallies) > 1 {
		h += 6
	}
	return size{math.Ceil(max(w+2*padding, 64)), h}
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

func escape(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(s)) // a write to memory does not fail
	return b.String()
}
