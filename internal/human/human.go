// Package human writes durations, sizes, moments and texts of others as people read them, the same everywhere: on terminals, in
// reports and in messages.
package human

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Duration shows how long something took: 8ms, 12.3s, 4m05s, 2h03m.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// Bytes shows a size in units of 1024.
func Bytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n), 0
	for f >= 1023.95 && unit < 5 {
		f /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %s", f, [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}[unit])
}

// Ago shows how long a time is past, in the greatest unit that it fills.
func Ago(now, t time.Time) string {
	d := now.Sub(t)
	for _, unit := range []struct {
		name string
		time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}} {
		if n := int64(d / unit.Duration); n > 0 {
			return Count(n, unit.name) + " ago"
		}
	}
	return "just now"
}

// Count is "1 task", "1,234 tasks".
func Count[N ~int | ~int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Thousands(n) + " " + what + "s"
}

// Thousands writes a count with separators between groups of three digits.
func Thousands[N ~int | ~int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Worker is a worker's name where it is part of a sentence or in parentheses: "me@host, process 12".
func Worker(name string) string {
	if at, process, ok := strings.Cut(name, " (process "); ok {
		return at + ", process " + strings.TrimSuffix(process, ")")
	}
	return name
}

// Seconds is Duration for what moves on while it is looked at: in whole seconds.
func Seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	}
	return Duration(d)
}

// Stamp shows a time in local time, - where it is not known.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// Short is the part of an id that tells runs of one machine apart.
func Short(id string) string { return id[:min(len(id), 18)] }

// Few names the first of many.
func Few(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Quoted makes a word safe to paste into a shell.
func Quoted(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./@+:,=") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(Line(s), "'", `'\''`) + "'"
}

// Line makes text safe to show on one line: control characters, which move a terminal's cursor or worse, characters that turn the
// direction of text, and what is not UTF-8 are shown as escapes.
func Line(s string) string { return printable(s, false) }

// Text is Line for text of several lines: newlines and tabs stay.
func Text(s string) string { return printable(s, true) }

func printable(s string, lines bool) string {
	clean := func(r rune) bool {
		return r != utf8.RuneError && (unicode.IsPrint(r) || lines && (r == '\n' || r == '\t'))
	}
	if strings.IndexFunc(s, func(r rune) bool { return !clean(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case clean(r):
			b.WriteRune(r)
		case r == utf8.RuneError:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		default:
			q := fmt.Sprintf("%+q", r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// Truncate cuts text to so many bytes, between characters, and marks the cut.
func Truncate(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}
