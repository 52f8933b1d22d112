package ui

import (
	"fmt"
	"math"
	"time"
)

// plot is a row of bars: one for each value, the earliest at the left.
type plot struct {
	W, H  float64
	Bars  []plotBar
	Top   string // the value at the upper edge
	Begin string
	End   string
}

type plotBar struct {
	X, Y, W, H float64
	State      string
	URL        string
	Tip        string
}

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
)

// plotOf draws values; nil if there are fewer than two.
func plotOf(list []point, text func(float64) string) *plot {
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
	wide := math.Min(widestBar, plotWidth/float64(len(list)))
	p := &plot{W: math.Ceil(wide * float64(len(list))), H: plotHeight, Top: text(top), Begin: stamp(list[0].at), End: stamp(list[len(list)-1].at)}
	for i, v := range list {
		high := math.Max(2, math.Round(v.value/top*(plotHeight-2)*10)/10)
		p.Bars = append(p.Bars, plotBar{
			X: math.Round(float64(i)*wide*10)/10 + 1, Y: plotHeight - high, W: math.Max(1, math.Round((wide-2)*10)/10), H: high,
			State: v.state, URL: v.url, Tip: fmt.Sprintf("%s, %s, %s", v.text, v.state, stamp(v.at)),
		})
	}
	return p
}
