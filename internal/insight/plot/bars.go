package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"e3/internal/format/record"
	"e3/internal/insight/figures"
	h "e3/internal/insight/markup"
)

const (
	maxBars   = 60 // names of one chart
	barHeight = 13.0
	barNames  = 120.0 // width of the names at the left
)

// Bars are horizontal bars: a group for each name, with a bar for each task.
type Bars struct {
	x, y   string
	names  []string
	tasks  []string
	values [][]float64 // by task and name; NaN: none
	left   int         // names that are left out
}

// barTable has a column of names, y, and one of numbers, x.
func barTable(t *figures.Table, p *record.Plot, x int, y []int) (*Table, error) {
	names := 0
	if len(y) > 0 {
		names = y[0]
	}
	for i := 0; p.X == "" && i < len(t.Head); i++ {
		if _, numbers, others := numbersOf(t, i); i != names && numbers > 0 && others == 0 {
			x = i
			break
		}
	}
	list, numbers, _ := numbersOf(t, x)
	if x == names || numbers == 0 {
		return nil, notATable("it has no column of numbers beside the names")
	}
	table := &Table{X: name(t.Head[x]), Y: name(t.Head[names]), Texts: textsOf(t, names)}
	table.Names, table.Values = []string{table.X}, [][]float64{list}
	return table, nil
}

func barsOf(items []Item, p *record.Plot) *Bars {
	b := &Bars{x: cmp.Or(name(p.XLabel), items[0].X), y: cmp.Or(name(p.YLabel), items[0].Y)}
	at := map[string]int{}
	for _, it := range items {
		for _, n := range it.Texts {
			if _, known := at[n]; !known {
				at[n], b.names = len(b.names), append(b.names, n)
			}
		}
	}
	for _, it := range items {
		values := slices.Repeat([]float64{math.NaN()}, len(b.names))
		for i, n := range it.Texts {
			values[at[n]] = it.Values[0][i]
		}
		b.tasks, b.values = append(b.tasks, it.Name), append(b.values, values)
	}
	order := make([]int, len(b.names))
	for i := range order {
		order[i] = i
	}
	if p.Template == "bar_horizontal_sorted" {
		slices.SortStableFunc(order, func(i, k int) int { // from the greatest; what has no value is last
			u, v := b.values[0][i], b.values[0][k]
			return cmp.Compare(v, u)
		})
	}
	if len(order) > maxBars {
		b.left, order = len(order)-maxBars, order[:maxBars]
	}
	b.names = picked(b.names, order)
	for i := range b.values {
		b.values[i] = picked(b.values[i], order)
	}
	return b
}

func picked[T any](list []T, order []int) []T {
	out := make([]T, len(order))
	for i, k := range order {
		out[i] = list[k]
	}
	return out
}

// Caption says what is drawn.
func (b *Bars) Caption() string { return b.x + " by " + b.y }

// Note says what is left out.
func (b *Bars) Note(Look) string {
	if b.left > 0 {
		return fmt.Sprintf("the first %d of %d", maxBars, maxBars+b.left)
	}
	return ""
}

// Drawing draws the bars.
func (b *Bars) Drawing(title string, _ Look) h.Node {
	x := extent{}
	for _, list := range b.values {
		for _, v := range list {
			if !math.IsNaN(v) {
				x.add(v)
			}
		}
	}
	x.widen()
	x = x.rounded()
	tasks := b.tasks[:min(len(b.tasks), mostNamed)]
	step := max(barHeight*float64(len(tasks)), barHeight) + 5
	end := top + step*float64(len(b.names))
	place := func(v float64) float64 { return x.place(v, barNames, width-right-34) }
	var parts h.Group
	for _, v := range x.ticks() {
		at := h.Decimal(place(v))
		parts = append(parts, h.El("path.grid", h.Attr("d", fmt.Sprintf("M%s %gV%g", at, top, end))),
			h.El("text", h.Attr("x", at), h.Number("y", end+14), h.Attr("text-anchor", "middle"), h.Text(number(v))))
	}
	for i, n := range b.names {
		y := top + step*float64(i)
		parts = append(parts, h.El("text", h.Number("x", barNames-5), h.Number("y", y+step/2), h.Attr("text-anchor", "end"),
			h.Attr("dominant-baseline", "middle"), h.Text(h.Shorten(n, 18))))
		for k := range tasks {
			v := b.values[k][i]
			if math.IsNaN(v) {
				continue
			}
			from, to := min(place(0), place(v)), max(place(0), place(v))
			at := y + 2.5 + barHeight*float64(k)
			parts = append(parts, h.El("g", h.El("rect", h.Class("bar "+lookOf(k)), h.Number("x", from), h.Number("y", at), h.Number("width", to-from),
				h.Number("height", barHeight-2)),
				h.El("text", h.Number("x", to+4), h.Number("y", at+barHeight-4), h.Text(number(v))),
				h.El("title", h.Text(strings.TrimSpace(n+" "+b.tasks[k])))))
		}
	}
	box := fmt.Sprintf("0 0 %g %s", width, h.Decimal(end+34))
	return h.Group{h.El("svg.chart", h.Attr("viewBox", box), h.Attr("role", "img"), h.Attr("aria-label", title),
		h.El("text.y", h.Attr("x", "4"), h.Attr("y", "13"), h.Text(h.Shorten(b.y, 52))), parts,
		h.El("text", h.Number("x", (barNames+width-right)/2), h.Number("y", end+28), h.Attr("text-anchor", "middle"),
			h.Text(h.Shorten(b.x, 40)))), h.If(len(tasks) > 1, legendOf(tasks, "l"))}
}
