package diagram

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"
)

// DOT writes the graph for Graphviz.
func (g *Graph) DOT(w io.Writer) error {
	if err := g.check(); err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "digraph %s {\n", dotText(cmp.Or(clean(g.Title), "e3")))
	fmt.Fprintln(b, `  rankdir=LR;`)
	fmt.Fprintln(b, `  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11, margin="0.14,0.07"];`)
	fmt.Fprintln(b, `  edge [color="#8a929d", arrowsize=0.7];`)
	for i := range g.Nodes {
		n := &g.Nodes[i]
		c := lightInk(n.Status.class())
		label := n.label()
		if caption := n.caption(); caption != "" {
			label += "\n" + caption
		}
		shape := ""
		if n.Kind == Input {
			shape = ", shape=note, style=filled"
		}
		fmt.Fprintf(b, "  n%d [label=%s, color=%q, fillcolor=%q%s];\n", i, dotText(label), c.line, c.fill, shape)
	}
	for _, e := range g.Edges {
		fmt.Fprintf(b, "  n%d -> n%d;\n", e.From, e.To)
	}
	fmt.Fprintln(b, "}")
	return b.Flush()
}

// dotText quotes text. Graphviz interprets escapes and HTML entities within quotes.
func dotText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, `&`, `&amp;`, "\x00", "").Replace(s) + `"`
}
