package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// printable makes text safe for a terminal: control characters, which move the cursor
// or worse, are shown as escapes. lines keeps newlines and tabs.
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

// elapsed shows a duration as people say it: 8ms, 12.3s, 4m05s, 2h03m.
func elapsed(d time.Duration) string {
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

// size shows bytes in units of 1024.
func size(n int64) string {
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

// stamp shows a moment in local time.
func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// short is the part of an id that tells runs of one machine apart.
func short(id string) string {
	if len(id) > 18 {
		return id[:18]
	}
	return id
}

// plural is "1 task", "2 tasks".
func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
