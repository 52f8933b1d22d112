package render

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"e3/cmd/e3/internal/term"
	"e3/internal/human"
)

// Point is a duration in a plot.
type Point struct {
	At     time.Time
	Took   time.Duration
	Status string
	Bad    bool // it did not succeed
}

// A Plot draws durations as columns of blocks, the oldest left.
type Plot struct {
	what   string // "attempt": what a point is
	points []Point
	width  int // columns of the screen
	ascii  bool
	style  term.Style
}

const (
	plotRows  = 5
	plotWidth = 120 // a wider plot is no clearer
	Fewest    = 3   // points below which a plot is not worth it
)

// blocks are the characters that fill a cell in steps, from empty to full.
func (p *Plot) blocks() []string {
	if p.ascii {
		return []string{" ", ".", ":", "#"}
	}
	return []string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}
}

// Write draws the plot and a line below with the range and the median.
func (p *Plot) Write(w io.Writer) {
	if len(p.points) == 0 {
		return
	}
	axis, line, corner, fault := "┤", "─", "┼", "×"
	if p.ascii {
		axis, line, corner, fault = "|", "-", "+", "x"
	}
	low, mid, high, of := p.numbers()
	top := time.Duration(0)
	for _, q := range p.points {
		top = max(top, q.Took)
	}
	labels := [plotRows]string{0: human.Duration(top), plotRows / 2: human.Duration(top / 2)}
	margin := len("0ms")
	for _, l := range labels {
		margin = max(margin, len(l))
	}
	columns, each := p.columns(max(10, min(p.width, plotWidth)-margin-2))
	wide, gap := 1, 0
	if room := max(10, min(p.width, plotWidth)-margin-2) / len(columns); room >= 2 {
		wide, gap = min(room-1, 3), 1
	}
	blocks := p.blocks()
	full := len(blocks) - 1
	for row := range plotRows {
		var b strings.Builder
		fmt.Fprintf(&b, "%*s %s", margin, labels[row], axis)
		for _, q := range columns {
			eighths := 0
			if top > 0 {
				eighths = int(math.Ceil(float64(q.Took) / float64(top) * float64(plotRows*full)))
			}
			eighths = max(eighths, 1) // each point is visible
			fill := min(max(eighths-(plotRows-1-row)*full, 0), full)
			cell := strings.Repeat(blocks[fill], wide)
			if q.Bad && fill > 0 {
				cell = p.style.Red + cell + p.style.EndOf(p.style.Red)
			}
			b.WriteString(cell + strings.Repeat(" ", gap))
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%*s %s", margin, "0ms", corner)
	bad := 0
	for _, q := range columns {
		mark := strings.Repeat(line, wide)
		if q.Bad {
			mark = p.style.Red + fault + p.style.EndOf(p.style.Red) + strings.Repeat(line, wide-1)
		}
		b.WriteString(mark + strings.Repeat(line, gap))
	}
	for _, q := range p.points {
		if q.Bad {
			bad++
		}
	}
	fmt.Fprintln(w, b.String())
	first, last := human.Stamp(p.points[0].At), human.Stamp(p.points[len(p.points)-1].At)
	if space := len(columns)*(wide+gap) - len(first) - len(last); space > 0 {
		fmt.Fprintf(w, "%*s  %s%s%s\n", margin, "", first, strings.Repeat(" ", space), last)
	} else {
		fmt.Fprintf(w, "%*s  %s to %s\n", margin, "", first, last)
	}
	notes := fmt.Sprintf("%s: min %s, median %s, max %s", human.Count(len(p.points), p.what), human.Duration(low), human.Duration(mid), human.Duration(high))
	if bad > 0 {
		notes += fmt.Sprintf("; %s %d did not succeed", fault, bad)
		if of > 0 {
			notes += " and are not in these numbers"
		}
	}
	if each > 1 {
		notes += fmt.Sprintf("; a column is the median of up to %d", each)
	}
	fmt.Fprintf(w, "%*s  %s\n", margin, "", notes)
}

// numbers returns the least, median and greatest duration of the successes and their number; of all points if there are
// no successes.
func (p *Plot) numbers() (low, mid, high time.Duration, of int) {
	var took []time.Duration
	for _, q := range p.points {
		if !q.Bad {
			took = append(took, q.Took)
		}
	}
	of = len(took)
	if of == 0 {
		for _, q := range p.points {
			took = append(took, q.Took)
		}
	}
	slices.Sort(took)
	return took[0], median(took), took[len(took)-1], of
}

// median is the middle of sorted durations.
func median(sorted []time.Duration) time.Duration {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return sorted[n/2-1] + (sorted[n/2]-sorted[n/2-1])/2
}

// columns merges neighbouring points, each of them per column, if there are more points than columns.
func (p *Plot) columns(most int) (list []Point, each int) {
	each = (len(p.points) + most - 1) / most
	for part := range slices.Chunk(p.points, each) {
		q := part[0]
		took := make([]time.Duration, len(part))
		for i := range part {
			took[i] = part[i].Took
			q.Bad = q.Bad || part[i].Bad
		}
		slices.Sort(took)
		q.Took = median(took)
		list = append(list, q)
	}
	return list, each
}
