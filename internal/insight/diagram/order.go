package diagram

import (
	"cmp"
	"slices"
)

const (
	sweeps = 12
	// maxSwapped bounds the vertices of a drawing in which neighbours are swapped one by one, maxPairs the pairs of
	// edges that are compared for one swap.
	maxSwapped = 5_000
	maxPairs   = 1 << 12
)

// order looks for an order within the layers with few crossings of edges. It sweeps over the layers and sorts each by
// the mean position of the vertices' neighbours, then swaps adjacent vertices. It starts with the order of the graph
// and keeps the best order found.
func (s *sheet) order() {
	best, kept := s.crossings(), s.places()
	for sweep := range sweeps {
		if best == 0 {
			break
		}
		down := sweep%2 == 0
		for i := range s.layers {
			if !down {
				i = len(s.layers) - 1 - i
			}
			s.sortLayer(s.layers[i], down)
		}
		if len(s.v) <= maxSwapped {
			s.swap()
		}
		if n := s.crossings(); n < best {
			best, kept = n, s.places()
		}
	}
	for i := range s.v {
		s.v[i].at = kept[i]
	}
	for _, layer := range s.layers {
		slices.SortFunc(layer, func(a, b int) int { return s.v[a].at - s.v[b].at })
	}
}

func (s *sheet) places() []int {
	at := make([]int, len(s.v))
	for i := range s.v {
		at[i] = s.v[i].at
	}
	return at
}

// sortLayer sorts by the mean position of the neighbours in the layer before, or after. A vertex without neighbours
// stays near its position.
func (s *sheet) sortLayer(layer []int, down bool) {
	mean := make(map[int]float64, len(layer))
	for _, id := range layer {
		near := s.v[id].down
		if down {
			near = s.v[id].up
		}
		mean[id] = float64(s.v[id].at)
		if len(near) > 0 {
			sum := 0
			for _, n := range near {
				sum += s.v[n].at
			}
			mean[id] = float64(sum) / float64(len(near))
		}
	}
	slices.SortStableFunc(layer, func(a, b int) int { return cmp.Compare(mean[a], mean[b]) })
	for at, id := range layer {
		s.v[id].at = at
	}
}

// swap exchanges adjacent vertices of a layer where this reduces crossings.
func (s *sheet) swap() {
	for _, layer := range s.layers {
		for i := 1; i < len(layer); i++ {
			a, b := layer[i-1], layer[i]
			if len(s.v[a].up)*len(s.v[b].up) > maxPairs || len(s.v[a].down)*len(s.v[b].down) > maxPairs {
				continue
			}
			was := s.between(s.v[a].up, s.v[b].up) + s.between(s.v[a].down, s.v[b].down)
			is := s.between(s.v[b].up, s.v[a].up) + s.between(s.v[b].down, s.v[a].down)
			if is < was {
				layer[i-1], layer[i] = b, a
				s.v[a].at, s.v[b].at = i, i-1
			}
		}
	}
}

// between counts the crossings between the edges of two adjacent vertices of a layer, given their neighbours on one
// side.
func (s *sheet) between(first, second []int) int {
	n := 0
	for _, a := range first {
		for _, b := range second {
			if s.v[a].at > s.v[b].at {
				n++
			}
		}
	}
	return n
}

// crossings counts the crossings of all edges: for each layer it counts the inversions among the end positions of
// edges, with a Fenwick tree.
func (s *sheet) crossings() int {
	n := 0
	for i, layer := range s.layers {
		if i+1 == len(s.layers) {
			break
		}
		tree := make([]int, len(s.layers[i+1])+1)
		seen := 0
		for _, id := range layer {
			ends := make([]int, 0, len(s.v[id].down))
			for _, to := range s.v[id].down {
				ends = append(ends, s.v[to].at)
			}
			for _, at := range ends {
				before := 0 // edges that end at this position or before it
				for k := at + 1; k > 0; k -= k & -k {
					before += tree[k]
				}
				n += seen - before
			}
			for _, at := range ends {
				for k := at + 1; k < len(tree); k += k & -k {
					tree[k]++
				}
			}
			seen += len(ends)
		}
	}
	return n
}

// spread computes the coordinates of vertices within the layers and keeps their order. It repeatedly moves each layer
// towards its neighbours, by least squares with minimum distances as constraints.
func (s *sheet) spread() {
	for _, layer := range s.layers { // packed, about the middle
		y := 0.0
		for i, id := range layer {
			if i > 0 {
				y += s.apart(layer[i-1], id)
			}
			s.v[id].y = y
		}
		for _, id := range layer {
			s.v[id].y -= y / 2
		}
	}
	for round := range sweeps {
		for i := range s.layers {
			if round%2 == 1 {
				i = len(s.layers) - 1 - i
			}
			s.settle(s.layers[i])
		}
	}
}

// apart is the minimum distance of two adjacent vertices of a layer.
func (s *sheet) apart(a, b int) float64 {
	gap := rowGap
	if s.v[a].node < 0 || s.v[b].node < 0 {
		gap = bendGap
	}
	return (s.v[a].h+s.v[b].h)/2 + gap
}

// settle moves the vertices of a layer as near to their neighbours as the minimum distances allow. After subtraction of
// the distances this is a monotone regression, for which the pool-adjacent-violators algorithm is exact.
func (s *sheet) settle(layer []int) {
	type block struct {
		sum, weight float64 // over the vertices of the block
		n           int
	}
	blocks := make([]block, 0, len(layer))
	offset := 0.0
	for i, id := range layer {
		if i > 0 {
			offset += s.apart(layer[i-1], id)
		}
		wish, weight := s.wish(id)
		blocks = append(blocks, block{(wish - offset) * weight, weight, 1})
		for k := len(blocks) - 1; k > 0 && blocks[k].sum*blocks[k-1].weight <= blocks[k-1].sum*blocks[k].weight; k-- {
			blocks[k-1].sum += blocks[k].sum
			blocks[k-1].weight += blocks[k].weight
			blocks[k-1].n += blocks[k].n
			blocks = blocks[:k]
		}
	}
	offset = 0
	next := 0
	for _, b := range blocks {
		for range b.n {
			if next > 0 {
				offset += s.apart(layer[next-1], layer[next])
			}
			s.v[layer[next]].y = b.sum/b.weight + offset
			next++
		}
	}
}

// wish is the preferred coordinate of a vertex, and its weight. Bends have the greatest weight, so that long edges run
// straight.
func (s *sheet) wish(id int) (y, weight float64) {
	v := &s.v[id]
	add := func(near []int) {
		for _, n := range near {
			w := 1.0
			switch {
			case v.node < 0 && s.v[n].node < 0:
				w = 8
			case v.node < 0 || s.v[n].node < 0:
				w = 2
			}
			y += s.v[n].y * w
			weight += w
		}
	}
	add(v.up)
	add(v.down)
	if weight == 0 {
		return v.y, 0.1
	}
	return y / weight, weight
}
