package manifest

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// A unit is a suffix and what it multiplies by.
type unit struct {
	suffix string
	size   float64
}

var durationUnits = []unit{
	{"ms", float64(time.Millisecond)}, {"s", float64(time.Second)}, {"m", float64(time.Minute)},
	{"h", float64(time.Hour)}, {"d", 24 * float64(time.Hour)},
}

var sizeUnits = []unit{
	{"B", 1},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15},
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50},
}

// measure splits a number with a unit off the front of s, such as "1h" of "1h30m".
func measure(s string, units []unit) (amount float64, u unit, rest string, ok bool) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789."))
	letters := digits + len(s[digits:]) - len(strings.TrimLeft(s[digits:], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
	number, suffix := s[:digits], s[digits:letters]
	if number == "" || number[0] == '.' || number[len(number)-1] == '.' {
		return 0, unit{}, "", false
	}
	amount, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, unit{}, "", false
	}
	for _, u := range units {
		if u.suffix == suffix {
			return amount, u, s[letters:], true
		}
	}
	return 0, unit{}, "", false
}

// parseDuration reads "1h30m": numbers with the units d, h, m, s and ms, each smaller than the one before.
func parseDuration(s string) (time.Duration, bool) { return parseTime(s, durationUnits) }

func parseTime(s string, units []unit) (time.Duration, bool) {
	total, last := 0.0, math.Inf(1)
	for s != "" {
		amount, u, rest, ok := measure(s, units)
		if !ok || u.size >= last {
			return 0, false
		}
		total, last, s = total+amount*u.size, u.size, rest
	}
	if math.IsInf(last, 1) || total >= math.MaxInt64 {
		return 0, false
	}
	return time.Duration(total), true
}

// parseSize reads "2GiB" or "512MB" as bytes.
func parseSize(s string) (int64, bool) {
	amount, u, rest, ok := measure(s, sizeUnits)
	if bytes := amount * u.size; ok && rest == "" && bytes < math.MaxInt64 {
		return int64(bytes), true
	}
	return 0, false
}

// duration reads a length of time: a string with units or a whole number of seconds.
func (d *decoder) duration(where string, n *node) time.Duration {
	const want = "a duration such as 30m, 1h30m or a whole number of seconds"
	switch n.kind {
	case intNode:
		if s := n.int(); s >= 0 && s <= int64(math.MaxInt64/time.Second) {
			return time.Duration(s) * time.Second
		}
		d.report.add(n.pos, "", "%s: %d is out of range", where, n.int())
	case stringNode:
		if t, ok := parseDuration(n.text); ok {
			return t
		}
		d.report.add(n.pos, "", "%s: %q is not %s", where, clip(n.text), want)
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
		if bytes, ok := parseSize(n.text); ok && bytes > 0 {
			return bytes
		}
		hint := ""
		if last := strings.TrimRight(n.text, "i"); last != "" && strings.HasSuffix(n.text, "i") || len(n.text) > 0 && strings.IndexByte("kKMGTP", n.text[len(n.text)-1]) >= 0 {
			hint = "write " + n.text + "B"
		}
		d.report.add(n.pos, hint, "%s: %q is not %s", where, clip(n.text), want)
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
func (d *decoder) count(where string, n *node, low, high int64) int {
	if n.kind != intNode {
		d.wrongType(where, n, "a whole number")
		return 0
	}
	if n.int() < low || n.int() > high {
		d.report.add(n.pos, "", "%s: want a number from %d to %d", where, low, high)
		return 0
	}
	return int(n.int())
}
