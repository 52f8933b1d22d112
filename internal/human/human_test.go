package human_test

import (
	"testing"
	"time"
	"unicode/utf8"

	"e3/internal/human"
)

func TestLineAndText(t *testing.T) {
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
		{"\ufffd", false, `\xef`}, // it may stand for anything
	} {
		show, name := human.Line, "Line"
		if test.lines {
			show, name = human.Text, "Text"
		}
		if got := show(test.in); got != test.want {
			t.Errorf("%s(%q) = %q, want %q", name, test.in, got, test.want)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 8 * time.Millisecond: "8ms", 999 * time.Millisecond: "999ms", 12340 * time.Millisecond: "12.3s",
		59990 * time.Millisecond: "59.9s", 245 * time.Second: "4m05s", 2*time.Hour + 3*time.Minute: "2h03m",
	} {
		if got := human.Duration(d); got != want {
			t.Errorf("Duration(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1.0 MiB", 1 << 40: "1.0 TiB", 1<<63 - 1: "8192.0 PiB"} {
		if got := human.Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Hour: "just now", 59 * time.Second: "just now", time.Minute: "1 minute ago", 119 * time.Minute: "1 hour ago", 72 * time.Hour: "3 days ago",
	} {
		if got := human.Ago(now, now.Add(-d)); got != want {
			t.Errorf("Ago of %v = %q, want %q", d, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	const s = "aü日👍"
	for most := range len(s) + 1 {
		got := human.Truncate(s, most)
		if !utf8.ValidString(got) || len(got) > most+len("…") || most == len(s) && got != s {
			t.Errorf("Clip(%q, %d) = %q", s, most, got)
		}
	}
}

func TestQuoted(t *testing.T) {
	for in, want := range map[string]string{
		"prod.train": "prod.train", "prod.train[4]": "'prod.train[4]'", "": "''", "it's": `'it'\''s'`, "a b": "'a b'",
	} {
		if got := human.Quoted(in); got != want {
			t.Errorf("Quoted(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := human.Thousands(n); got != want {
			t.Errorf("Thousands(%d) = %q, want %q", n, got, want)
		}
	}
}
