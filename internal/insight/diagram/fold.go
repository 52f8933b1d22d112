package diagram

import (
	"fmt"
	"slices"
)

// Fold returns a graph of at most the given number of nodes (at least 2), or the graph itself if it is small enough.
// Groups are folded first; if that is not sufficient, nodes of equal or similar depth are merged.
func Fold(g *Graph, most int) *Graph {
	if len(g.Nodes) <= most {
		return g
	}
	folded := FoldGroups(g)
	if len(folded.Nodes) <= most {
		return folded
	}
	depths := layers(folded)
	// Inputs and tasks may share a depth, so that there are two nodes for each.
	deepest, bands := slices.Max(depths)+1, max(most/2, 1)
	return gather(folded, func(i int) (any, func(int) string) {
		what := "tasks"
		if folded.Nodes[i].Kind == Input {
			what = "inputs"
		}
		return place{kind: folded.Nodes[i].Kind, depth: depths[i] * min(bands, deepest) / deepest},
			func(count int) string { return fmt.Sprintf("%d %s", count, what) }
	})
}

// FoldGroups merges the nodes of a group that have equal depth; other merges could create cycles.
func FoldGroups(g *Graph) *Graph {
	if g.check() != nil {
		return g // the caller reports the invalid edge
	}
	depths := layers(g)
	return gather(g, func(i int) (any, func(int) string) {
		n := &g.Nodes[i]
		if n.Group == "" {
			return i, nil
		}
		return place{n.Kind, n.Group, depths[i]}, func(count int) string { return fmt.Sprintf("%s ×%d", n.Group, count) }
	})
}

// place is the key by which nodes are merged.
type place struct {
	kind  Kind
	group string
	depth int
}

// gather merges all nodes with the same key; label returns the name of a merged node, given the number of nodes that it
// stands for.
func gather(g *Graph, keyOf func(i int) (key any, label func(count int) string)) *Graph {
	out := &Graph{Title: g.Title}
	at := make([]int, len(g.Nodes)) // node → its place in out
	places := map[any]int{}
	var labels []func(int) string
	var members [][]int
	for i := range g.Nodes {
		key, label := keyOf(i)
		k, ok := places[key]
		if !ok {
			k = len(members)
			places[key] = k
			members, labels = append(members, nil), append(labels, label)
		}
		members[k] = append(members[k], i)
		at[i] = k
	}
	for k, list := range members {
		if len(list) == 1 {
			out.Nodes = append(out.Nodes, g.Nodes[list[0]])
			continue
		}
		out.Nodes = append(out.Nodes, sum(g, list, labels[k]))
	}
	seen := make(map[Edge]bool, len(g.Edges))
	for _, e := range g.Edges {
		e = Edge{at[e.From], at[e.To]}
		if e.From != e.To && !seen[e] {
			seen[e] = true
			out.Edges = append(out.Edges, e)
		}
	}
	return out
}

// sum makes the node that stands for several.
func sum(g *Graph, list []int, label func(int) string) Node {
	counts := map[Status]int{}
	total := 0
	add := func(s Status, n int) {
		counts[s] += n
		total += n
	}
	for _, i := range list {
		n := &g.Nodes[i]
		if n.Tallies == nil {
			add(n.Status, 1)
		}
		for _, t := range n.Tallies {
			add(t.Status, t.Count)
		}
	}
	first := &g.Nodes[list[0]]
	node := Node{Label: label(total), Kind: first.Kind, Anchor: first.Anchor, Group: first.Group}
	for _, i := range list[1:] {
		if g.Nodes[i].Group != first.Group {
			node.Group = ""
		}
	}
	for s, n := range counts {
		node.Tallies = append(node.Tallies, Tally{s, n})
	}
	slices.SortFunc(node.Tallies, func(a, b Tally) int {
		if d := a.Status.rank() - b.Status.rank(); d != 0 {
			return d
		}
		return slices.Compare([]byte(a.Status), []byte(b.Status))
	})
	node.Status = node.Tallies[0].Status
	return node
}
