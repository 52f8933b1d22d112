package ui

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"e3/internal/human"
	h "e3/internal/insight/markup"
	"e3/internal/insight/runview"
)

// Bounds and measures of a timeline, in pixels.
const (
	maxNamed  = 2_000 // bars that are drawn one by one
	maxLanes  = 600
	lineWidth = 1120.0
	lineAxis  = 22.0
)

// lineBar is one attempt in a run, or a wait. The caller sets the fields before X; timelineOf sets the others.
type lineBar struct {
	runview.Span
	Href       string // address of a page about it; "" none
	Wait       string // what it waited for, in words; "": it is an attempt
	Critical   bool   // on the critical path: marked
	X, Y, W, H float64
	Label      string // "" where there is no room
	Tip        string
	lane       int
}

// lanesOf names the group of lanes of a bar: its worker, or that of all waits.
func (b *lineBar) lanesOf() string {
	switch {
	case b.Wait != "":
		return "Waits"
	case b.Worker == "":
		return "Commands" // of the run's process, or of a worker that is not on record
	}
	return human.Line(b.Worker)
}

// timeline shows the times of executions. Overlapping executions are in different lanes.
type timeline struct {
	H      float64
	Bars   []*lineBar
	Small  []smalls
	Ticks  []tick
	Groups []group
	Note   string
}

// smalls are bars of one state that are drawn as one path.
type smalls struct{ State, Path string }

type tick struct {
	X    float64
	Text string
}

// group is the lanes of a worker.
type group struct {
	Name string
	Y    float64
}

// timelineOf lays out bars, and sorts them; from and to are extended to hold all of them. It is nil if there are no
// bars.
func timelineOf(bars []lineBar, from, to time.Time) *timeline {
	if len(bars) == 0 {
		return nil
	}
	slices.SortFunc(bars, func(a, b lineBar) int {
		return cmp.Or(first(a.Wait != "")-first(b.Wait != ""), cmp.Compare(a.Worker, b.Worker), a.Start.Compare(b.Start), cmp.Compare(a.Task, b.Task),
			cmp.Compare(a.Attempt, b.Attempt))
	})
	for i := range bars {
		if bars[i].End.Before(bars[i].Start) { // a clock went back
			bars[i].End = bars[i].Start
		}
		if from.IsZero() || bars[i].Start.Before(from) {
			from = bars[i].Start
		}
		if bars[i].End.After(to) {
			to = bars[i].End
		}
	}
	l := &timeline{}
	lanes, left := l.lanes(bars, to.Sub(from)*2/lineWidth)
	high := math.Max(4, math.Min(22, 900/float64(lanes)))
	span := math.Max(to.Sub(from).Seconds(), 0.001)
	x := func(t time.Time) float64 { return math.Round(t.Sub(from).Seconds()/span*lineWidth*10) / 10 }
	heads := 0.0
	if len(l.Groups) > 1 {
		heads = 18
	}
	lane, groups := "", 0
	drawn := make([]*lineBar, 0, len(bars))
	for i := range bars {
		at := &bars[i]
		if i == 0 || at.lanesOf() != lane {
			lane = at.lanesOf()
			groups++
			l.Groups[groups-1].Y = lineAxis + float64(groups-1)*heads + float64(max(at.lane, 0))*high + 13
		}
		if at.lane < 0 {
			continue
		}
		at.X, at.W = x(at.Start), math.Max(x(at.End)-x(at.Start), 1.2)
		at.Y, at.H = lineAxis+float64(groups)*heads+float64(at.lane)*high+1, high-2
		drawn = append(drawn, at)
	}
	if heads == 0 {
		l.Groups = nil
	}
	l.H = lineAxis + float64(groups)*heads + float64(lanes)*high + 4
	slices.SortStableFunc(drawn, func(a, b *lineBar) int {
		return cmp.Or(first(b.Critical)-first(a.Critical), cmp.Compare(b.End.Sub(b.Start), a.End.Sub(a.Start)))
	})
	for _, at := range drawn[:min(len(drawn), maxNamed)] {
		name := human.Line(at.Task)
		did := string(at.State)
		if at.Wait != "" {
			name, did = cmp.Or(name, "the run"), "waited for "+at.Wait
		}
		at.Tip = fmt.Sprintf("%s: %s, %s, after %s", name, did, human.Duration(at.End.Sub(at.Start)),
			human.Duration(at.Start.Sub(from)))
		if at.Attempt > 1 {
			at.Tip += fmt.Sprintf(", attempt %d", at.Attempt)
		}
		if at.Critical {
			at.Tip += ", on the critical path"
		}
		if room := int((at.W - 10) / 6.6); high >= 16 && room >= 4 {
			at.Label = h.Shorten(name, room)
		}
		l.Bars = append(l.Bars, at)
	}
	l.rest(drawn)
	l.ticks(to.Sub(from))
	if left > 0 {
		l.Note = fmt.Sprintf("%d executions that ran beside %d others are not drawn.", left, maxLanes)
	} else if len(l.Small) > 0 {
		l.Note = fmt.Sprintf("The longest %d of %d executions have their names as tooltips.", maxNamed, len(drawn))
	}
	return l
}

// lanes gives each bar the first free lane of its worker. Commands that seem to overlap for less than slack, a small part
// of their time, ran one after the other: an attempt's times include what happens around its command. It returns the
// number of lanes, and the number of bars without a lane.
func (l *timeline) lanes(bars []lineBar, slack time.Duration) (lanes, left int) {
	var ends []time.Time // of the worker's lanes
	first := 0
	for i := range bars {
		if i == 0 || bars[i].lanesOf() != bars[i-1].lanesOf() {
			first += len(ends)
			ends = ends[:0]
			l.Groups = append(l.Groups, group{Name: bars[i].lanesOf()})
		}
		free := bars[i].Start.Add(min(slack, bars[i].Took()/4))
		lane := slices.IndexFunc(ends, func(t time.Time) bool { return !t.After(free) })
		switch {
		case lane >= 0:
			ends[lane] = bars[i].End
		case first+len(ends) < maxLanes:
			lane = len(ends)
			ends = append(ends, bars[i].End)
		default:
			bars[i].lane = -1
			left++
			continue
		}
		bars[i].lane = first + lane
	}
	return max(first+len(ends), 1), left
}

// first is 0 for bars that sort first, else 1.
func first(is bool) int {
	if is {
		return 1
	}
	return 0
}

// rest draws the bars beyond maxNamed, as one path for each state.
func (l *timeline) rest(drawn []*lineBar) {
	if len(drawn) <= maxNamed {
		return
	}
	paths := map[runview.TaskState]*strings.Builder{}
	for _, at := range drawn[maxNamed:] {
		p := paths[at.State]
		if p == nil {
			p = &strings.Builder{}
			paths[at.State] = p
			l.Small = append(l.Small, smalls{State: string(at.State)})
		}
		fmt.Fprintf(p, "M%.1f %.1fh%.1fv%.1fh-%.1fz", at.X, at.Y, at.W, at.H, at.W)
	}
	for i := range l.Small {
		l.Small[i].Path = paths[runview.TaskState(l.Small[i].State)].String()
	}
}

// ticks are at most eight round times along the axis.
func (l *timeline) ticks(span time.Duration) {
	step := span / 8 / (7 * 24 * time.Hour) * (7 * 24 * time.Hour) // whole weeks, for longer spans
	const ms, s, m, h = time.Millisecond, time.Second, time.Minute, time.Hour
	for _, round := range []time.Duration{
		ms, 2 * ms, 5 * ms, 10 * ms, 20 * ms, 50 * ms, 100 * ms, 200 * ms, 500 * ms, s, 2 * s, 5 * s, 10 * s, 15 * s, 30 * s,
		m, 2 * m, 5 * m, 10 * m, 15 * m, 30 * m, h, 2 * h, 3 * h, 6 * h, 12 * h, 24 * h, 48 * h, 7 * 24 * h,
	} {
		if span/round <= 8 {
			step = round
			break
		}
	}
	for t := time.Duration(0); t <= span; t += max(step, ms) {
		x := math.Round(float64(t)/float64(max(span, 1))*lineWidth*10) / 10
		text := clock(t)
		if x > lineWidth-40 { // the label would be cut off
			text = ""
		}
		l.Ticks = append(l.Ticks, tick{X: x, Text: text})
	}
}

// clock is a time along the axis.
func clock(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%gs", math.Round(d.Seconds()*10)/10)
	case d < time.Hour && d%time.Minute == 0:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return human.Duration(d)
}

// draw draws the timeline.
func (l *timeline) draw() h.Node {
	wide, high := fmt.Sprintf("%.0f", lineWidth+4), fmt.Sprintf("%.0f", l.H) // with the strokes of elements at the edges
	ticks := h.Map(l.Ticks, func(t tick) h.Node {
		return h.Group{
			h.El("line.grid", h.Number("x1", t.X), h.Number("x2", t.X), h.Number("y1", lineAxis), h.Number("y2", l.H)),
			h.El("text.tick", h.Number("x", t.X), h.Attr("y", "14"), h.Text(t.Text)),
		}
	})
	groups := h.Map(l.Groups, func(g group) h.Node {
		return h.El("text.group", h.Attr("x", "0"), h.Number("y", g.Y),
			h.Text(g.Name))
	})
	rest := h.Map(l.Small, func(s smalls) h.Node {
		return h.El("path", h.Class("s-"+s.State+" span"),
			h.Attr("d", s.Path))
	})
	return h.El("svg.line", h.Attr("viewBox", "-2 0 "+wide+" "+high), h.Attr("width", wide), h.Attr("height", high),
		h.Attr("role", "group"),
		h.Attr("aria-label", "When the executions of this run began and ended"), ticks, groups, rest, h.Map(l.Bars,
			(*lineBar).draw))
}

func (b *lineBar) draw() h.Node {
	class := "s-" + string(b.State)
	if b.Critical {
		class += " critical"
	}
	bar := h.El("g", h.Class(class), h.El("title", h.Text(b.Tip)),
		h.El("rect.span", h.Number("x", b.X), h.Number("y", b.Y), h.Number("width", b.W), h.Number("height", b.H),
			h.Attr("rx", "3")),
		h.If(b.Label != "", h.El("text.name", h.Number("x", b.X+6), h.Number("y", b.Y+b.H/2+4), h.Text(b.Label))))
	if b.Href == "" {
		return bar
	}
	return h.El("a", h.Attr("href", b.Href), h.Attr("tabindex", "-1"), bar)
}
