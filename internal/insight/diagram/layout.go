package diagram

import (
	"cmp"
	"math"
	"slices"
)

// The layout is Sugiyama's, in four steps. The depth of a node is the length of the longest path to it. Long edges
// are cut into segments between neighbouring depths. Within each depth, an order with few crossings is found. Then
// coordinates are chosen that keep this order and hardly lengthen edges. Depth runs from left to right, because
// labels are wide and low.
//
// The implementation is e3's own. github.com/nikolaydubina/go-graph-layout v0.2.0 was tried. It takes exponential time
// to find the depths (26 diamonds in a row: 14 s). Its order within a depth differs from run to run, and is logged to
// standard error. Its coordinates ignore the nodes' sizes. It also needs a numerical library.

// maxBends bounds the bends of long edges. If there would be more, the longest edges are drawn straight.
const maxBends = 20_000

// layers returns the depth of each node, which is greater than the depths of all nodes that it reads. In a cycle, one
// node has to be placed first; edges to it then lead back to a smaller depth.
func layers(g *Graph) []int {
	n := len(g.Nodes)
	depths := make([]int, n)
	out := make([][]int, n)
	reads, waiting := make([]int, n), make([]int, n)
	for _, e := range g.Edges {
		if e.From != e.To {
			out[e.From] = append(out[e.From], e.To)
			reads[e.To]++
			waiting[e.To]++
		}
	}
	done := make([]bool, n)
	var ready []int
	for i := range n {
		if waiting[i] == 0 {
			ready = append(ready, i)
		}
	}
	depth := -1 // of the latest node; never decreases
	for next, first := 0, 0; next < n; next++ {
		if next == len(ready) { // all remaining nodes lie on a cycle or behind one
			for done[first] {
				first++
			}
			ready, waiting[first], depths[first] = append(ready, first), 0, depth+1
		}
		i := ready[next]
		done[i], depth = true, depths[i]
		for _, to := range out[i] {
			if done[to] || waiting[to] == 0 {
				continue
			}
			depths[to] = max(depths[to], depth+1)
			if waiting[to]--; waiting[to] == 0 {
				ready = append(ready, to)
			}
		}
	}
	// An input is placed directly before its first reader.
	for i := range g.Nodes {
		if g.Nodes[i].Kind != Input || reads[i] > 0 || len(out[i]) == 0 {
			continue
		}
		first := math.MaxInt
		for _, to := range out[i] {
			first = min(first, depths[to])
		}
		depths[i] = first - 1
	}
	return depths
}

// size is the size of a node's box.
type size struct{ w, h float64 }

// point is a place in the drawing.
type point struct{ x, y float64 }

// placed is a layout: the middle of each node, and the path of each edge. A path runs from the right side of the edge's
// first node to the left side of its second node; for an edge that leads back, the other way round. An edge from a node
// to itself has no path.
type placed struct {
	w, h  float64
	nodes []point
	ways  [][]point
}

const (
	columnGap = 56.0
	rowGap    = 16.0
	bendGap   = 10.0 // beside a bend
)

// A vertex is a node or a bend of an edge.
type vertex struct {
	node     int // -1: a bend
	layer    int
	h        float64
	y        float64
	at       int   // its place in the layer
	up, down []int // neighbours in the layer before and after
}

type sheet struct {
	v      []vertex
	layers [][]int
}

// arrange computes the layout of a graph; sizes are the sizes of its nodes.
func arrange(g *Graph, sizes []size) *placed {
	p := &placed{nodes: make([]point, len(g.Nodes)), ways: make([][]point, len(g.Edges))}
	if len(g.Nodes) == 0 {
		return p
	}
	depths := layers(g)
	s := &sheet{layers: make([][]int, slices.Max(depths)+1)}
	for i := range g.Nodes {
		s.add(i, depths[i], sizes[i].h)
	}
	chains := s.cut(g, depths)
	s.order()
	s.spread()
	return s.measure(g, sizes, chains, p)
}

func (s *sheet) add(node, layer int, h float64) int {
	id := len(s.v)
	s.v = append(s.v, vertex{node: node, layer: layer, h: h, at: len(s.layers[layer])})
	s.layers[layer] = append(s.layers[layer], id)
	return id
}

// cut inserts bends into edges between layers that are not adjacent. It returns the vertices along each edge, from left
// to right; nil for an edge that is not part of the layout.
func (s *sheet) cut(g *Graph, depths []int) [][]int {
	span := func(k int) int { return depths[g.Edges[k].To] - depths[g.Edges[k].From] }
	byLength := make([]int, len(g.Edges))
	for k := range byLength {
		byLength[k] = k
	}
	slices.SortStableFunc(byLength, func(a, b int) int { return cmp.Compare(abs(span(a)), abs(span(b))) })
	chains := make([][]int, len(g.Edges))
	bends := 0
	for _, k := range byLength {
		from, to := g.Edges[k].From, g.Edges[k].To
		if depths[from] > depths[to] {
			from, to = to, from
		}
		if from == to {
			continue
		}
		if bends += depths[to] - depths[from] - 1; bends > maxBends {
			break
		}
		chain := []int{from}
		for layer := depths[from] + 1; layer < depths[to]; layer++ {
			chain = append(chain, s.add(-1, layer, 0))
		}
		chains[k] = append(chain, to)
		for i := 1; i < len(chains[k]); i++ {
			a, b := chains[k][i-1], chains[k][i]
			s.v[a].down = append(s.v[a].down, b)
			s.v[b].up = append(s.v[b].up, a)
		}
	}
	return chains
}

func abs(n int) int { return max(n, -n) }

// measure converts the positions of vertices to coordinates of nodes and edges.
func (s *sheet) measure(g *Graph, sizes []size, chains [][]int, p *placed) *placed {
	left := make([]float64, len(s.layers))
	right := make([]float64, len(s.layers))
	x, top, bottom := 0.0, math.Inf(1), math.Inf(-1)
	for i, layer := range s.layers {
		widest := 0.0
		for _, id := range layer {
			v := &s.v[id]
			if v.node >= 0 {
				widest = max(widest, sizes[v.node].w)
			}
			top, bottom = min(top, v.y-v.h/2), max(bottom, v.y+v.h/2)
		}
		left[i], right[i] = x, x+widest
		x += widest + columnGap
	}
	p.w, p.h = x-columnGap, bottom-top
	for i := range p.nodes {
		l := s.v[i].layer
		p.nodes[i] = point{(left[l] + right[l]) / 2, s.v[i].y - top}
	}
	for k, e := range g.Edges {
		from, to := e.From, e.To
		if s.v[from].layer > s.v[to].layer {
			from, to = to, from
		}
		if from == to {
			continue
		}
		way := []point{{p.nodes[from].x + sizes[from].w/2, p.nodes[from].y}}
		for _, id := range chains[k] {
			if v := &s.v[id]; v.node < 0 {
				way = append(way, point{left[v.layer], v.y - top}, point{right[v.layer], v.y - top})
			}
		}
		p.ways[k] = append(way, point{p.nodes[to].x - sizes[to].w/2, p.nodes[to].y})
	}
	return p
}
