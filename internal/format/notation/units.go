package notation

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A unit is a suffix and its factor.
type unit struct {
	suffix string
	size   float64
}

var durationUnits = []unit{
	{"ms", float64(time.Millisecond)}, {"s", float64(time.Second)}, {"m", float64(time.Minute)},
	{"h", float64(time.Hour)}, {"d", 24 * float64(time.Hour)},
}

var withWeeks = append([]unit{{"w", 7 * 24 * float64(time.Hour)}}, durationUnits...)

var sizeUnits = []unit{
	{"B", 1},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15},
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50},
}

// measure cuts the first number and its unit off s: "1h" of "1h30m".
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

// ParseDuration reads a duration of a package file, such as "1h30m": numbers with the units d, h, m, s and ms, in this
// order.
func ParseDuration(s string) (time.Duration, bool) { return parseTime(s, durationUnits) }

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

// ParseSize reads a size of a package file, such as "2GiB" or "512MB", in bytes. A number without a unit is refused.
func ParseSize(s string) (int64, bool) {
	amount, u, rest, ok := measure(s, sizeUnits)
	if bytes := amount * u.size; ok && rest == "" && bytes < math.MaxInt64 {
		return int64(bytes), true
	}
	return 0, false
}

// SizeOf reads a size given to a command or a setting: the forms of ParseSize, and a plain number of bytes.
func SizeOf(s string) (int64, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return n, nil
	}
	n, ok := ParseSize(s)
	if !ok {
		return 0, fmt.Errorf("%q is not a size like 2GiB or 512MB%s", s, meant(LikelySize(s)))
	}
	return n, nil
}

// DurationOf reads a duration given to a command or a setting: the forms of ParseDuration, and weeks, as in "2w".
func DurationOf(s string) (time.Duration, error) {
	d, ok := parseTime(s, withWeeks)
	if !ok {
		return 0, fmt.Errorf("%q is not a duration like 2w, 30d or 12h%s", s, meant(LikelyDuration(s)))
	}
	return d, nil
}
