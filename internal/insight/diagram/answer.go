package diagram

// A Drawing is a graph for programs, not folded.
type Drawing struct {
	Workspace string      `json:"workspace"`
	Package   string      `json:"package"` // name@version
	Run       string      `json:"run,omitempty"`
	Nodes     []DrawnNode `json:"nodes"`
	Edges     []DrawnEdge `json:"edges"`
}

// A DrawnNode is a task or an input.
type DrawnNode struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`             // task or input
	Status string `json:"status,omitempty"` // of the output, or of the task in the run
}

// A DrawnEdge leads from what is read to the task that reads it.
type DrawnEdge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Answer returns the nodes and edges of the graph for programs.
func (g *Graph) Answer() Drawing {
	d := Drawing{Nodes: []DrawnNode{}, Edges: []DrawnEdge{}}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		kind := [...]string{Task: "task", Input: "input"}[n.Kind]
		d.Nodes = append(d.Nodes, DrawnNode{n.Label, kind, string(n.Status)})
	}
	for _, e := range g.Edges {
		d.Edges = append(d.Edges, DrawnEdge{g.Nodes[e.From].Label, g.Nodes[e.To].Label})
	}
	return d
}
