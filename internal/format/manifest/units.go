package manifest

import (
	"math"
	"strings"
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
		d.report.add(n.pos, "", "%s: %q is not %s", where, truncate(n.text), want)
	default:
		d.wrongType(where, n, want)
	}
	return 0
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
		hint := ""
		if last := strings.TrimRight(n.text, "i"); last != "" && strings.HasSuffix(n.text, "i") || len(n.text) > 0 && strings.IndexByte("kKMGTP", n.text[len(n.text)-1]) >= 0 {
			hint = "write " + n.text + "B"
		}
		d.report.add(n.pos, hint, "%s: %q is not %s", where, truncate(n.text), want)
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
