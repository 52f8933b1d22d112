package main

import (
	"strings"
	"testing"
	"time"
)

func TestPrintable(t *testing.T) {
	for _, test := range []struct {
		in    string
		lines bool
		want  string
	}{
		{"plain ünï 日本", false, "plain ünï 日本"},
		{"a\x1b[2Jb", false, `a\x1b[2Jb`},
		{"a\nb\tc", false, `a\nb\tc`},
		{"a\nb\tc\x07", true, "a\nb\tc\\a"},
		{"\xff", false, `\xff`},
		{"\u202e\u009b", false, `\u202e\u009b`},
	} {
		if got := printable(test.in, test.lines); got != test.want {
			t.Errorf("printable(%q, %v) = %q, want %q", test.in, test.lines, got, test.want)
		}
	}
}

func TestElapsed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 8 * time.Millisecond: "8ms", 999 * time.Millisecond: "999ms", 12340 * time.Millisecond: "12.3s",
		59990 * time.Millisecond: "59.9s", 245 * time.Second: "4m05s", 2*time.Hour + 3*time.Minute: "2h03m",
	} {
		if got := elapsed(d); got != want {
			t.Errorf("elapsed(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1.0 MiB", 1 << 40: "1.0 TiB", 1<<63 - 1: "8192.0 PiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestColumns(t *testing.T) {
	for s, want := range map[string]int{"": 0, "abc": 3, "ünï": 3, "日本": 4, "e\u0301": 1, "👍": 2, "…": 1} {
		if got := columns(s); got != want {
			t.Errorf("columns(%q) = %d, want %d", s, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	for _, test := range []struct {
		in   string
		most int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"abc", 0, ""}, {"abc", -1, ""}, {"日本語", 4, "日…"}, {"日本語", 1, "…"},
	} {
		if got := clip(test.in, test.most); got != test.want {
			t.Errorf("clip(%q, %d) = %q, want %q", test.in, test.most, got, test.want)
		}
	}
}

func TestTable(t *testing.T) {
	tab := &table{right: map[int]bool{1: true}}
	tab.row("日本", "1 B", "x")
	tab.row("a\n", "10 KiB", "")
	var b strings.Builder
	tab.write(&b, "  ")
	if got, want := b.String(), "  日本     1 B  x\n  a\\n   10 KiB\n"; got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestQuoted(t *testing.T) {
	for in, want := range map[string]string{
		"prod.train": "prod.train", "prod.train[4]": "'prod.train[4]'", "": "''", "it's": `'it'\''s'`, "a b": "'a b'",
	} {
		if got := quoted(in); got != want {
			t.Errorf("quoted(%q) = %s, want %s", in, got, want)
		}
	}
}
