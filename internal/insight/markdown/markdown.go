// Package markdown shows reports that tasks write in Markdown, as GitHub does, as nodes of package markup.
//
// A report is hostile. HTML in it is shown as text, pictures are replaced by their descriptions, and only addresses of the web
// and of mail become links, so that a page asks nothing of any network.
package markdown

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	ext "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	h "e3/internal/insight/markup"
)

// MaxReport is the length in bytes of a report that is worth rendering: the time of a hostile one grows with the square, to
// some seconds here. A longer one is shown as text.
const MaxReport = 64 << 10

// maxDepth bounds what a report nests. What is nested deeper is left out.
const maxDepth = 50

var parser = goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser()

// Render returns a report as nodes. Its headings are two levels below those that the text asks for, since they stand within
// the section of a page.
func Render(report string) h.Node {
	w := &writer{source: []byte(report)}
	return w.inside(parser.Parse(text.NewReader(w.source)))
}

// writer writes the tree of a report.
type writer struct {
	source []byte
	depth  int
}

// inside is the content of a node.
func (w *writer) inside(n ast.Node) h.Group {
	if w.depth++; w.depth > maxDepth {
		w.depth--
		return nil
	}
	defer func() { w.depth-- }()
	var out h.Group
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		out = append(out, w.node(c))
	}
	return out
}

func (w *writer) node(n ast.Node) h.Node {
	switch n := n.(type) {
	case *ast.Heading:
		return h.El("h"+strconv.Itoa(min(n.Level+2, 6)), w.inside(n))
	case *ast.Paragraph:
		return h.El("p", w.inside(n))
	case *ast.ThematicBreak:
		return h.El("hr")
	case *ast.Blockquote:
		return h.El("blockquote", w.inside(n))
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		return h.El("pre", h.Attr("tabindex", "0"), h.Text(strings.TrimSuffix(w.lines(n), "\n")))
	case *ast.HTMLBlock:
		raw := w.lines(n)
		if n.HasClosure() {
			raw += string(n.ClosureLine.Value(w.source))
		}
		return h.El("p", h.Text(strings.TrimSuffix(raw, "\n")))
	case *ast.List:
		if !n.IsOrdered() {
			return h.El("ul", w.inside(n))
		}
		return h.El("ol", h.If(n.Start != 1, h.Attr("start", strconv.Itoa(n.Start))), w.inside(n))
	case *ast.ListItem:
		return h.El("li", w.inside(n))
	case *ext.TaskCheckBox:
		if n.IsChecked {
			return h.Text("☑ ")
		}
		return h.Text("☐ ")
	case *ext.Table:
		return h.El("div.scroll", h.Attr("tabindex", "0"), h.El("table", w.table(n)))
	default:
		return w.inline(n)
	}
}

// lines are the lines of a block that holds text as it is.
func (w *writer) lines(n ast.Node) string {
	var b bytes.Buffer
	for i := range n.Lines().Len() {
		line := n.Lines().At(i)
		b.Write(line.Value(w.source))
	}
	return b.String()
}

// table is the rows of a table, the first of which is its head.
func (w *writer) table(t *ext.Table) h.Node {
	row := func(n ast.Node, name string) h.Node {
		var cells h.Group
		for c := n.FirstChild(); c != nil; c = c.NextSibling() {
			cell := c.(*ext.TableCell)
			cells = append(cells, h.El(name, h.If(name == "th", h.Attr("scope", "col")), h.If(cell.Alignment == ext.AlignRight, h.Class("num")), w.inside(c)))
		}
		return h.El("tr", cells)
	}
	var rows h.Group
	for r := t.FirstChild().NextSibling(); r != nil; r = r.NextSibling() {
		rows = append(rows, row(r, "td"))
	}
	return h.Group{h.El("thead", row(t.FirstChild(), "th")), h.El("tbody", rows)}
}

func (w *writer) inline(n ast.Node) h.Node {
	switch n := n.(type) {
	case *ast.Text:
		words := h.Text(plain(n.Segment.Value(w.source), n.IsRaw()))
		switch {
		case n.HardLineBreak():
			return h.Group{words, h.El("br")}
		case n.SoftLineBreak():
			return h.Group{words, h.Text("\n")}
		}
		return words
	case *ast.String:
		return h.Text(plain(n.Value, n.IsRaw() || n.IsCode()))
	case *ast.CodeSpan:
		return h.El("code", w.inside(n))
	case *ast.Emphasis:
		return h.El([]string{"em", "strong"}[n.Level-1], w.inside(n))
	case *ext.Strikethrough:
		return h.El("del", w.inside(n))
	case *ast.Image:
		return h.El("em", h.Text("[picture: "), w.inside(n), h.Text("]"))
	case *ast.Link:
		return anchor(plain(n.Destination, false), w.inside(n))
	case *ast.AutoLink:
		address := string(n.URL(w.source))
		if n.AutoLinkType == ast.AutoLinkEmail && !strings.HasPrefix(strings.ToLower(address), "mailto:") {
			address = "mailto:" + address
		}
		return anchor(address, h.Text(string(n.Label(w.source))))
	case *ast.RawHTML:
		var b bytes.Buffer
		for i := range n.Segments.Len() {
			part := n.Segments.At(i)
			b.Write(part.Value(w.source))
		}
		return h.Text(b.String())
	}
	return w.inside(n) // text of an item without a paragraph
}

// anchor is a link, or its text alone if it leads to no place of the web or of mail.
func anchor(address string, words h.Node) h.Node {
	scheme, rest, _ := strings.Cut(strings.ToLower(address), ":")
	if scheme != "mailto" && (scheme != "http" && scheme != "https" || !strings.HasPrefix(rest, "//")) {
		return words
	}
	return h.El("a", h.Attr("href", address), h.Attr("rel", "noopener noreferrer nofollow"), words)
}

// plain is a text without its backslashes and with its references resolved; raw text has neither.
func plain(s []byte, raw bool) string {
	if !raw {
		s = util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(s)))
	}
	return string(s)
}
