package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"
)

// durationPoint is how long something took, for a plot and for programs.
type durationPoint struct {
	at     time.Time
	took   time.Duration
	status string
	bad    bool // it did not succeed
}

// A plot draws durations as columns of blocks, the oldest left.
type plot struct {
	what   string // "attempt": what a point is
	points []durationPoint
	width  int // columns of the screen
	ascii  bool
	style  style
}

const (
	plotRows  = 5
	plotWidth = 120 // more makes nothing clearer
	fewest    = 3   // points that are worth a plot
)

// blocks are the fillings of a cell, from nothing to all of it.
func (p *plot) blocks() []string {
	if p.ascii {
		return []string{" ", ".", ":", "#"}
	}
	return []string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}
}

// write draws the plot and says in a line below what the durations are.
func (p *plot) write(w io.Writer) {
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
		top = max(top, q.took)
	}
	labels := [plotRows]string{0: elapsed(top), plotRows / 2: elapsed(top / 2)}
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
				eighths = int(math.Ceil(float64(q.took) / float64(top) * float64(plotRows*full)))
			}
			eighths = max(eighths, 1) // that there was one is seen
			fill := min(max(eighths-(plotRows-1-row)*full, 0), full)
			cell := strings.Repeat(blocks[fill], wide)
			if q.bad && fill > 0 {
				cell = p.style.red + cell + p.style.endOf(p.style.red)
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
		if q.bad {
			mark = p.style.red + fault + p.style.endOf(p.style.red) + strings.Repeat(line, wide-1)
		}
		b.WriteString(mark + strings.Repeat(line, gap))
	}
	for _, q := range p.points {
		if q.bad {
			bad++
		}
	}
	fmt.Fprintln(w, b.String())
	first, last := stamp(p.points[0].at), stamp(p.points[len(p.points)-1].at)
	if space := len(columns)*(wide+gap) - len(first) - len(last); space > 0 {
		fmt.Fprintf(w, "%*s  %s%s%s\n", margin, "", first, strings.Repeat(" ", space), last)
	} else {
		fmt.Fprintf(w, "%*s  %s to %s\n", margin, "", first, last)
	}
	notes := fmt.Sprintf("%s: min %s, median %s, max %s", plural(int64(len(p.points)), p.what), elapsed(low), elapsed(mid), elapsed(high))
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

// numbers are of the successes, of which there are so many; of all if there is none.
func (p *plot) numbers() (low, mid, high time.Duration, of int) {
	var took []time.Duration
	for _, q := range p.points {
		if !q.bad {
			took = append(took, q.took)
		}
	}
	of = len(took)
	if of == 0 {
		for _, q := range p.points {
			took = append(took, q.took)
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

// columns puts neighbours together where there are more points than columns: so many in each.
func (p *plot) columns(most int) (list []durationPoint, each int) {
	each = (len(p.points) + most - 1) / most
	for part := range slices.Chunk(p.points, each) {
		q := part[0]
		took := make([]time.Duration, len(part))
		for i := range part {
			took[i] = part[i].took
			q.bad = q.bad || part[i].bad
		}
		slices.Sort(took)
		q.took = median(took)
		list = append(list, q)
	}
	return list, each
}

// ascii tells whether the screen, or whoever reads what is piped, may show other characters wrongly: the locale says so, or a
// terminal that is known to have few.
func (a *app) ascii() bool {
	switch a.getenv("TERM") {
	case "dumb", "linux", "vt100", "vt220":
		return true
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(a.getenv(name)); v != "" {
			return !strings.Contains(v, "utf-8") && !strings.Contains(v, "utf8")
		}
	}
	return runtime.GOOS != "windows" && runtime.GOOS != "darwin" // there it is the rule to have no locale, and UTF-8
}

// columnsOf is the width of the terminal that w is; 80 where it is none.
func columnsOf(w io.Writer) int {
	if f := terminal(w); f != nil {
		return widthOf(int(f.Fd()))()
	}
	return 80
}

// durationJSON is a point for programs.
type durationJSON struct {
	At       *string `json:"at"`
	Duration int64   `json:"ms"`
	Status   string  `json:"status"`
}

func durationsOf(points []durationPoint) []durationJSON {
	list := make([]durationJSON, len(points))
	for i, p := range points {
		list[i] = durationJSON{moment(p.at), p.took.Milliseconds(), p.status}
	}
	return list
}
