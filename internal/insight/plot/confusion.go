package plot

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"e3/internal/format/record"
	"e3/internal/insight/figures"
	h "e3/internal/insight/markup"
)

// maxClasses bounds the rows and the columns of a confusion matrix.
const maxClasses = 30

// A Matrix is a confusion matrix: how many rows of a table have a pair of values.
type Matrix struct {
	x, y       string
	task       string
	classes    []string
	counts     map[[2]string]int // by x and y
	normalized bool
	left       int // classes that are left out
}

// pairs has the texts of two columns.
func pairs(t *figures.Table, p *record.Plot, x int, y []int) (*Table, error) {
	other := 1
	if len(y) > 0 {
		other = y[0]
	} else if x == 1 {
		other = 0
	}
	if other >= len(t.Head) || x >= len(t.Head) || other == x {
		return nil, notATable("it has fewer than two columns")
	}
	return &Table{X: name(t.Head[x]), TextsX: textsOf(t, x), Y: name(t.Head[other]), Texts: textsOf(t, other)}, nil
}

func matrices(items []Item, p *record.Plot) []Chart {
	var charts []Chart
	for _, it := range items {
		m := &Matrix{
			x: cmp.Or(name(p.XLabel), it.X), y: cmp.Or(name(p.YLabel), it.Y), task: it.Name, counts: map[[2]string]int{},
			normalized: p.Template == "confusion_normalized",
		}
		for i := range it.Texts {
			x, y := it.TextsX[i], it.Texts[i]
			m.counts[[2]string{x, y}]++
			m.classes = append(m.classes, x, y)
		}
		slices.SortFunc(m.classes, classOrder)
		m.classes = slices.Compact(m.classes)
		if n := len(m.classes); n > maxClasses {
			m.classes, m.left = m.classes[:maxClasses], n-maxClasses
		}
		charts = append(charts, m)
	}
	return charts
}

// classOrder orders numbers by size, before texts.
func classOrder(a, b string) int {
	u, errA := strconv.ParseFloat(a, 64)
	v, errB := strconv.ParseFloat(b, 64)
	switch {
	case errA == nil && errB == nil:
		return cmp.Or(cmp.Compare(u, v), cmp.Compare(a, b))
	case (errA == nil) != (errB == nil):
		return cmp.Compare(b2i(errB == nil), b2i(errA == nil))
	}
	return cmp.Compare(a, b)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Task names the task whose pairs are counted; "" if there is only one.
func (m *Matrix) Task() string { return m.task }

// Caption says what is drawn.
func (m *Matrix) Caption() string {
	text := m.y + " by " + m.x
	if m.task != "" {
		text += " of " + m.task
	}
	return text
}

// Note says what is left out.
func (m *Matrix) Note(Look) string {
	if m.left > 0 {
		return fmt.Sprintf("the first %d of %d classes", maxClasses, maxClasses+m.left)
	}
	return ""
}

// Drawing draws a square for each pair. It is the darker, the greater its number is: of the whole matrix, or as a share
// of its row.
func (m *Matrix) Drawing(title string, _ Look) h.Node {
	n := float64(len(m.classes))
	const begin = 84.0
	size := min((width-right-begin)/n, 48)
	greatest, sums := 1, map[string]int{}
	for pair, count := range m.counts {
		greatest = max(greatest, count)
		sums[pair[1]] += count
	}
	var parts h.Group
	for r, y := range m.classes {
		mid := top + size*(float64(r)+0.5)
		parts = append(parts, h.El("text", h.Number("x", begin-5), h.Number("y", mid), h.Attr("text-anchor", "end"),
			h.Attr("dominant-baseline", "middle"), h.Text(h.Shorten(y, 12))))
		for c, x := range m.classes {
			count := m.counts[[2]string{x, y}]
			share, text := float64(count)/float64(greatest), strconv.Itoa(count)
			if m.normalized {
				share = float64(count) / float64(max(sums[y], 1))
				text = strconv.FormatFloat(share, 'f', 2, 64)
			}
			if count == 0 && n > 12 {
				continue
			}
			at := begin + size*float64(c)
			cell := h.Group{h.El("rect.cell", h.Number("x", at), h.Number("y", top+size*float64(r)),
				h.Number("width", size), h.Number("height", size),
				h.Attr("fill", "#0072b2"), h.Attr("fill-opacity", h.Decimal(share*0.9)))}
			if size >= float64(len(text))*wideText+2 {
				class := "text"
				if share > 0.5 {
					class = "text.on"
				}
				cell = append(cell, h.El(class, h.Number("x", at+size/2), h.Number("y", mid), h.Attr("text-anchor", "middle"),
					h.Attr("dominant-baseline", "middle"), h.Text(text)))
			}
			parts = append(parts, h.El("g", cell, h.El("title", h.Text(fmt.Sprintf("%s %s, %s %s: %s", m.x, x, m.y, y, text)))))
		}
	}
	end := top + size*n
	step := max(1, int(40/size))
	for c := 0; c < len(m.classes); c += step {
		parts = append(parts, h.El("text", h.Number("x", begin+size*(float64(c)+0.5)), h.Number("y", end+14),
			h.Attr("text-anchor", "middle"), h.Text(h.Shorten(m.classes[c], max(3, int(size*float64(step)/wideText))))))
	}
	return h.El("svg.chart", h.Attr("viewBox", fmt.Sprintf("0 0 %g %s", width, h.Decimal(end+34))), h.Attr("role", "img"),
		h.Attr("aria-label", title), h.El("text.y", h.Attr("x", "4"), h.Attr("y", "13"), h.Text(h.Shorten(m.y, 52))), parts,
		h.El("text", h.Number("x", begin+size*n/2), h.Number("y", end+29), h.Attr("text-anchor", "middle"),
			h.Text(h.Shorten(m.x, 40))))
}
