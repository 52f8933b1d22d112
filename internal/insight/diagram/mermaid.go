package diagram

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// Mermaid writes the graph as a Mermaid flowchart. Its labels hold letters, digits, spaces and _ - . , / = [ ] · × …
// unchanged; every other character is written as its number, such as #34;, so that it cannot end a label, begin a
// comment or act as HTML.
func (g *Graph) Mermaid(w io.Writer) error {
	if err := g.check(); err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "flowchart LR")
	var classes []string
	for i := range g.Nodes {
		n := &g.Nodes[i]
		label := mermaidText(n.label())
		if caption := n.caption(); caption != "" {
			label += "<br/>" + mermaidText(caption)
		}
		left, right := "[", "]"
		if n.Kind == Input {
			left, right = "([", "])"
		}
		class := n.Status.class()
		fmt.Fprintf(b, "  n%d%s\"%s\"%s:::%s\n", i, left, label, right, class)
		if !slices.Contains(classes, class) {
			classes = append(classes, class)
		}
	}
	for _, e := range g.Edges {
		fmt.Fprintf(b, "  n%d --> n%d\n", e.From, e.To)
	}
	slices.Sort(classes)
	for _, class := range classes {
		c := lightInk(class)
		fmt.Fprintf(b, "  classDef %s fill:%s,stroke:%s,color:#1f2328\n", class, c.fill, c.line)
	}
	return b.Flush()
}

func mermaidText(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(" _-.,/=[]·×…", r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "#%d;", r)
		}
	}
	return b.String()
}
