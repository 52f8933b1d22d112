package diagram

// Box is where a node is drawn.
type Box struct{ X, Y, W, H float64 }

// Boxes lays the graph out and returns the boxes of its nodes, and the paths of its edges.
func (g *Graph) Boxes() (boxes []Box, ways [][][2]float64) {
	sizes := make([]size, len(g.Nodes))
	for i := range g.Nodes {
		sizes[i] = g.Nodes[i].size()
	}
	p := arrange(g, sizes)
	for i, at := range p.nodes {
		boxes = append(boxes, Box{at.x - sizes[i].w/2, at.y - sizes[i].h/2, sizes[i].w, sizes[i].h})
	}
	for _, way := range p.ways {
		var points [][2]float64
		for _, at := range way {
			points = append(points, [2]float64{at.x, at.y})
		}
		ways = append(ways, points)
	}
	return boxes, ways
}

// Count is the number of nodes that the graph stands for.
func (g *Graph) Count() int {
	n := 0
	for i := range g.Nodes {
		n += g.Nodes[i].count()
	}
	return n
}
