package manifest

import (
	"math"
	"time"

	"e3/internal/format/notation"
)

// duration reads a duration: a string with units or a whole number of seconds.
func (d *decoder) duration(where string, n *node) time.Duration {
	const want = "a duration such as 30m, 1h30m or a whole number of seconds"
	switch n.kind {
	case intNode:
		if s := n.int(); s >= 0 && s <= int64(math.MaxInt64/time.Second) {
			return time.Duration(s) * time.Second
		}
		d.report.add(n.pos, "", "%s: %d is out of range", where, n.int())
	case stringNode:
		if t, ok := notation.ParseDuration(n.text); ok {
			return t
		}
		d.report.add(n.pos, writeIt(notation.LikelyDuration(n.text)), "%s: %q is not %s", where, truncate(n.text), want)
	default:
		d.wrongType(where, n, want)
	}
	return 0
}

// writeIt is the hint to write a text instead; "": there is none.
func writeIt(text string) string {
	if text == "" {
		return ""
	}
	return "write " + text
}

// size reads an amount of memory: a string with a unit or a whole number of bytes.
func (d *decoder) size(where string, n *node) int64 {
	const want = "a size such as 2GiB, 512MB or a whole number of bytes"
	switch n.kind {
	case intNode:
		if n.int() > 0 {
			return n.int()
		}
		d.report.add(n.pos, "", "%s: want more than 0 bytes", where)
	case stringNode:
		if bytes, ok := notation.ParseSize(n.text); ok && bytes > 0 {
			return bytes
		}
		d.report.add(n.pos, writeIt(notation.LikelySize(n.text)), "%s: %q is not %s", where, truncate(n.text), want)
	default:
		d.wrongType(where, n, want)
	}
	return 0
}

// amount reads a number greater than 0.
func (d *decoder) amount(where string, n *node) float64 {
	f := n.float()
	switch n.kind {
	case intNode:
		f = float64(n.int())
	case floatNode:
	default:
		d.wrongType(where, n, "a number greater than 0")
		return 0
	}
	if f <= 0 {
		d.report.add(n.pos, "", "%s: want a number greater than 0", where)
	}
	return f
}

// count reads a whole number between low and high.
func (d *decoder) count(where string, n *node, low, high int64) int64 {
	if n.kind != intNode {
		d.wrongType(where, n, "a whole number")
		return 0
	}
	if n.int() < low || n.int() > high {
		d.report.add(n.pos, "", "%s: want a number from %d to %d", where, low, high)
		return 0
	}
	return n.int()
}
