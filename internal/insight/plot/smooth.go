package plot

import (
	"cmp"
	"math"
	"slices"
)

// bandwidth is the share of the points that decide the height of a smooth line at one place, as DVC has it.
const bandwidth = 0.3

// smooth is a line through the middle of points: at each of at most so many places a straight line is fitted to the nearest points, of
// which the nearer ones weigh more (local regression).
func smooth(l *Line, places int) *Line {
	type point struct{ x, y float64 }
	var list []point
	for i := range l.X {
		if !math.IsNaN(l.X[i]) && !math.IsNaN(l.Y[i]) {
			list = append(list, point{l.X[i], l.Y[i]})
		}
	}
	slices.SortStableFunc(list, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	out := &Line{Name: l.Name}
	n := len(list)
	near := min(n, max(3, int(math.Ceil(bandwidth*float64(n)))))
	step := max(1, (n+places-1)/places)
	for k := 0; k < n; k += step {
		if k+step >= n {
			k = n - 1
		}
		at := list[k].x
		from := max(0, min(k-near/2, n-near))
		window := list[from : from+near]
		// Sizes are taken in units of the window, so that no product overflows.
		wide := max(at-window[0].x, window[near-1].x-at)
		high := 0.0
		for _, p := range window {
			high = max(high, math.Abs(p.y))
		}
		var w, wx, wy, wxx, wxy float64
		for _, p := range window {
			d, y := 0.0, 0.0
			if wide > 0 {
				d = (p.x - at) / wide
			}
			if high > 0 {
				y = p.y / high
			}
			weight := math.Pow(1-math.Pow(math.Abs(d), 3), 3) + 1e-9
			w, wx, wy, wxx, wxy = w+weight, wx+weight*d, wy+weight*y, wxx+weight*d*d, wxy+weight*d*y
		}
		y := wy / w
		if det := w*wxx - wx*wx; det > 1e-9*w*w {
			y = (wxx*wy - wx*wxy) / det
		}
		out.X, out.Y = append(out.X, at), append(out.Y, y*high)
	}
	return out
}
