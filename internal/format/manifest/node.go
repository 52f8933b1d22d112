package manifest

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"e3/internal/format/notation"
)

// A nodeKind is the type of a node after resolution.
type nodeKind uint8

const (
	badNode nodeKind = iota // a fault that is already reported
	nullNode
	boolNode
	intNode
	floatNode
	stringNode
	listNode
	mapNode
)

// kindNames are the kinds as messages say them.
var kindNames = [...]string{
	badNode: "something unreadable", nullNode: "nothing", boolNode: "a boolean", intNode: "an integer",
	floatNode: "a fractional number", stringNode: "a string", listNode: "a list", mapNode: "a mapping",
}

func (k nodeKind) String() string { return kindNames[k] }

// A node is one value of a file, read from YAML or JSON. It is small, because a file of many tasks has millions of
// them.
type node struct {
	kind nodeKind
	pos  Pos
	bits uint64 // value of a bool, an int64 or a float64; 1 for a string without quotes around it
	text string // value of a string, or another scalar as written in the file
	list []node // items of a list, or keys and values of a mapping in turn. Keys are strings or bad
}

// plain reports whether a string was written without quotes, so that another reader may take it for something else.
func (n *node) plain() bool { return n.kind == stringNode && n.bits != 0 }

func (n *node) bool() bool     { return n.bits != 0 }
func (n *node) int() int64     { return int64(n.bits) }
func (n *node) float() float64 { return math.Float64frombits(n.bits) }

// isScalar reports whether n is a scalar that is not null. Where a text is wanted, text has the author's spelling: 3.10
// is not 3.1.
func (n *node) isScalar() bool {
	return n.kind == boolNode || n.kind == intNode || n.kind == floatNode || n.kind == stringNode
}

// formatFloat writes the shortest decimal that reads back as f, always recognisable as a float: 1.0, 0.1, 0.00001. Only
// numbers from 1e+21 on have an exponent, since many programs do not read exponents.
func formatFloat(f float64) string {
	format := byte('f')
	if math.Abs(f) >= 1e21 {
		format = 'g'
	}
	s := strconv.FormatFloat(f, format, -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// resolvePlain gives plain text its type by the core schema of YAML 1.2 alone: yes, no, on, off, 1:30, 1_000 and dates
// are strings. fault describes a number that an int64 or float64 cannot represent well enough.
func resolvePlain(s string) (n node, fault string) {
	n, fault = resolve(s)
	n.text = s
	return n, fault
}

func resolve(s string) (n node, fault string) {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return node{kind: nullNode}, ""
	case "true", "True", "TRUE":
		return node{kind: boolNode, bits: 1}, ""
	case "false", "False", "FALSE":
		return node{kind: boolNode}, ""
	case ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF":
		return node{}, s + " is not a finite number"
	}
	c := s[0]
	if !notation.IsDigit(c) && c != '-' && c != '+' && c != '.' {
		return node{kind: stringNode, text: s}, ""
	}
	if base, digits := intBase(s); base != 0 {
		i, err := strconv.ParseInt(digits, base, 64)
		if err != nil {
			return node{}, "the integer " + truncate(s) + " does not fit 64 bits"
		}
		return node{kind: intNode, bits: uint64(i)}, ""
	}
	if strings.Trim(s, "0123456789.eE+-") != "" { // ParseFloat reads hexadecimal numbers too
		return node{kind: stringNode, text: s}, ""
	}
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return node{kind: stringNode, text: s}, ""
	case err != nil:
		return node{}, "the number " + truncate(s) + " is out of range"
	}
	return node{kind: floatNode, bits: math.Float64bits(f)}, ""
}

// intBase recognises the integers of the core schema. Only decimal ones may have a sign, and leading zeros do not
// change the base.
func intBase(s string) (base int, digits string) {
	if d, ok := strings.CutPrefix(s, "0x"); ok && d != "" && notation.Only(d, isHex) {
		return 16, d
	}
	if d, ok := strings.CutPrefix(s, "0o"); ok && d != "" && notation.Only(d, func(c byte) bool { return '0' <= c && c <= '7' }) {
		return 8, d
	}
	unsigned := s
	if s[0] == '-' || s[0] == '+' {
		unsigned = s[1:]
	}
	if unsigned != "" && notation.Only(unsigned, notation.IsDigit) {
		return 10, s
	}
	return 0, ""
}

// truncate shortens text from the file for a message.
func truncate(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
