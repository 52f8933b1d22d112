package ui

import (
	"fmt"
	"math"
	"time"

	h "e3/internal/insight/markup"
)

// point is a value of a plot.
type point struct {
	at    time.Time
	value float64
	state string
	url   string
	text  string
}

// Measures of a plot, in pixels.
const (
	plotHeight = 96.0
	plotWidth  = 720.0
	widestBar  = 22.0
	narrowPlot = 400.0 // a narrower plot has few bars: keys reach each bar, and the scale stands close
)

// plotOf draws values as a row of bars, the earliest at the left; nil if there are fewer than two.
func plotOf(list []point, text func(float64) string) h.Node {
	if len(list) < 2 {
		return nil
	}
	top := 0.0
	for _, p := range list {
		top = math.Max(top, p.value)
	}
	if top <= 0 {
		top = 1
	}
	step := math.Min(widestBar, plotWidth/float64(len(list)))
	wide := math.Ceil(step * float64(len(list)))
	bars := make(h.Group, len(list))
	for i, p := range list {
		bars[i] = p.bar(float64(i)*step+1, math.Max(1, step-2), math.Max(2, p.value/top*(plotHeight-2)), wide > narrowPlot)
	}
	scale := "scale"
	if wide < narrowPlot {
		scale += " near"
	}
	highest := "up to " + text(top)
	return h.Group{
		h.El("svg.plot", h.Attr("viewBox", fmt.Sprintf("0 0 %.0f %.0f", wide, plotHeight)), h.Number("width", wide),
			h.Number("height", plotHeight),
			h.Attr("role", "group"), h.Attr("aria-label", "A bar for each; "+highest), bars),
		h.El("p", h.Class(scale), h.El("span", h.Text(stamp(list[0].at))), h.El("span", h.Text(highest)),
			h.El("span", h.Text(stamp(list[len(list)-1].at)))),
	}
}

// bar draws a value. A bar with a link can also be clicked above its top. Where bars are many, keys do not stop at
// each: the list below has the same links.
func (p point) bar(x, wide, high float64, many bool) h.Node {
	tip := fmt.Sprintf("%s, %s, %s", p.text, p.state, stamp(p.at))
	column := func(class string, y, high float64, more ...h.Node) h.Node {
		return h.El("rect", h.Class(class), h.Number("x", x), h.Number("width", wide), h.Number("y", y),
			h.Number("height", high), h.Group(more))
	}
	bar := h.El("g", h.Class("s-"+p.state), h.El("title", h.Text(tip)),
		h.If(p.url != "", column("hold", 0, plotHeight)), column("ink", plotHeight-high, high, h.Attr("rx", "1")))
	if p.url == "" {
		return bar
	}
	return h.El("a", h.Attr("href", p.url), h.Attr("aria-label", tip), h.If(many, h.Attr("tabindex", "-1")), bar)
}
