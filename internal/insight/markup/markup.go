// Package markup writes HTML and SVG: pages, reports, charts and graphs are trees of its nodes.
//
// Its documents are safe by construction. Texts and values of attributes are escaped where they are written, characters
// that hide or turn text become U+FFFD, and no address runs anything. Names of elements and attributes are literals of
// this program. [Raw] alone writes what it is given.
//
// It uses no reflection on methods. Templates call methods by name, so a program with templates keeps every exported
// method of every type; the methods of the AWS SDKs take 9 MB.
package markup

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"e3/internal/human"
)

// A Node is a part of a document: an element, an attribute of the element around it, text, or a group of these. Nil is
// nothing.
type Node interface {
	// appendTo appends the node as a child of an element.
	appendTo(b []byte) []byte
}

// A Group is nodes in their order.
type Group []Node

type element struct {
	name, class string
	children    []Node
}

type attribute struct{ name, value string }

// flag is an attribute without a value.
type flag string

type text string

type raw string

// El is an element with its attributes and children: El("td.num", Text("3")) is <td class="num">3</td>.
func El(name string, children ...Node) Node {
	name, class, _ := strings.Cut(name, ".")
	return &element{name, strings.ReplaceAll(class, ".", " "), children}
}

// Attr is an attribute. An address that would run something, or that has an unusual scheme, is replaced by an address
// that leads nowhere.
func Attr(name, value string) Node {
	if isAddress(name) && !isHarmless(name, value) {
		value = "#refused"
	}
	return attribute{name, value}
}

// Number is an attribute whose value is a number, written with one decimal.
func Number(name string, v float64) Node {
	return attribute{name, Decimal(v)}
}

// Decimal is a number with at most one decimal.
func Decimal(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10+0, 'f', -1, 64) // +0: no -0
}

// Flag is an attribute without a value.
func Flag(name string) Node { return flag(name) }

// Class is the attribute of that name; nothing if it is empty.
func Class(names string) Node { return If(names != "", attribute{"class", names}) }

// ID is the attribute of that name.
func ID(id string) Node { return attribute{"id", id} }

// Text is text.
func Text(s string) Node { return text(s) }

// Textf is formatted text.
func Textf(format string, args ...any) Node { return text(fmt.Sprintf(format, args...)) }

// Line is text from elsewhere on one line: invisible characters are shown as escapes, as on a terminal.
func Line(s string) Node { return text(human.Line(s)) }

// Raw is markup, written unchanged: it must hold nothing that comes from outside of this program.
func Raw(s string) Node { return raw(s) }

// If returns the nodes if a condition holds.
func If(is bool, nodes ...Node) Node {
	if !is {
		return nil
	}
	return Group(nodes)
}

// Map returns the nodes of a list's items.
func Map[T any](list []T, node func(T) Node) Node {
	g := make(Group, len(list))
	for i, x := range list {
		g[i] = node(x)
	}
	return g
}

// Shorten cuts text to at most the given number of characters, in its middle, where names differ least: drawings have
// little room.
func Shorten(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	tail := (most - 1) / 2
	return string(r[:most-1-tail]) + "…" + string(r[len(r)-tail:])
}

// HTML returns a whole page.
func HTML(root Node) []byte { return append(root.appendTo([]byte("<!doctype html>\n")), '\n') }

// String returns the markup of a node.
func String(n Node) string { return string(n.appendTo(nil)) }

// ends are the ends of elements without children: void elements of HTML, and shapes of SVG.
var ends = map[string]string{
	"br": ">", "img": ">", "input": ">", "link": ">", "meta": ">", "wbr": ">", "hr": ">", "line": "/>", "path": "/>", "rect": "/>",
}

func (e *element) appendTo(b []byte) []byte {
	b = append(append(b, '<'), e.name...)
	if e.class != "" {
		b = attribute{"class", e.class}.attributeTo(b)
	}
	b = attributes(b, e.children)
	if end, ok := ends[e.name]; ok {
		return append(b, end...)
	}
	b = append(b, '>')
	b = Group(e.children).appendTo(b)
	return append(append(append(b, "</"...), e.name...), '>')
}

// attributes appends those nodes that are attributes.
func attributes(b []byte, nodes []Node) []byte {
	for _, n := range nodes {
		switch n := n.(type) {
		case attribute:
			b = n.attributeTo(b)
		case flag:
			b = append(append(b, ' '), n...)
		case Group:
			b = attributes(b, n)
		}
	}
	return b
}

func (g Group) appendTo(b []byte) []byte {
	for _, n := range g {
		if n != nil {
			b = n.appendTo(b)
		}
	}
	return b
}

func (a attribute) attributeTo(b []byte) []byte {
	b = append(append(append(b, ' '), a.name...), `="`...)
	return append(escaped(b, a.value, isControl), '"')
}

func (attribute) appendTo(b []byte) []byte { return b }
func (flag) appendTo(b []byte) []byte      { return b }
func (t text) appendTo(b []byte) []byte    { return escaped(b, string(t), isHidden) }
func (r raw) appendTo(b []byte) []byte     { return append(b, r...) }

// escaped appends text as it may stand between tags and in a quoted attribute, of HTML as of XML.
func escaped(b []byte, s string, isHidden func(rune) bool) []byte {
	for _, r := range s { // invalid UTF-8 comes as U+FFFD
		switch {
		case r == '&':
			b = append(b, "&amp;"...)
		case r == '<':
			b = append(b, "&lt;"...)
		case r == '>':
			b = append(b, "&gt;"...)
		case r == '"':
			b = append(b, "&#34;"...)
		case r == '\'':
			b = append(b, "&#39;"...)
		case r >= ' ' && r < 0x7f:
			b = append(b, byte(r))
		case isHidden(r):
			b = append(b, "\ufffd"...)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// isControl reports whether no document may hold a character.
func isControl(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0 || r == '\ufffe' || r == '\uffff'
}

// isHidden reports whether a character must not be in texts: a control, or a character that turns the direction of
// the text around it, so that the text reads differently.
func isHidden(r rune) bool {
	return isControl(r) || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}
