package main

import (
	"strings"
	"testing"
)

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
