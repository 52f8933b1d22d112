package term

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// safely filters text that arrives in pieces of n bytes.
func safely(t testing.TB, text string, n int, colors bool) string {
	t.Helper()
	var b bytes.Buffer
	w := &SafeWriter{To: &b, Colors: colors}
	for rest := text; rest != ""; {
		k := min(n, len(rest))
		if got, err := w.Write([]byte(rest[:k])); err != nil || got != k {
			t.Fatalf("Write = %d, %v, want %d, nil", got, err, k)
		}
		rest = rest[k:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestSafeWriter(t *testing.T) {
	const reset = "\x1b[0m"
	for _, test := range []struct{ name, in, want string }{
		{"plain", "a\tb\r\nc\n", "a\tb\r\nc\n"},
		{"unicode", "ünï 日本 👍🏽", "ünï 日本 👍🏽"},
		{"colours", "\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m" + reset},
		{"colours that may be the background", "\x1b[38:2::1:2:3ma\x1b[38;5;16mb\x1b[38;2;0;0;0mc\x1b[30md\x1b[37;97me", "abcde"},
		{"conceal", "\x1b[8ma\x1b[1;8;31mb\x1b[28m", "a\x1b[1;31mb" + reset},
		{"background", "\x1b[31;41ma\x1b[48;5;1mb\x1b[107mc", "\x1b[31mabc" + reset},
		{"direction of text", "a\u202Eb\u2066c\u2069\u200f\u061cd", "a\uFFFDb\uFFFDc\uFFFD\uFFFD\uFFFDd"},
		{"invisible tags", "a\U000E0041b", "a\uFFFDb"},
		{"cursor", "a\x1b[2Jb\x1b[10;3Hc\x1b[?25ld", "abcd"},
		{"private m is no colour", "\x1b[>4;2mx\x1b[?4my", "xy"},
		{"m after an intermediate", "\x1b[1 mx", "x"},
		{"title", "\x1b]0;title\x07a\x1b]2;title\x1b\\b", "ab"},
		{"clipboard", "\x1b]52;c;YmFk\x07x", "x"},
		{"device control", "\x1bPq#0\x1b\\x", "x"},
		{"string that does not end", "\x1b]0;title\nnext\n", "\nnext\n"},
		{"escape within a string", "\x1b]0;\x1b[31mx", "\x1b[31mx" + reset},
		{"charset", "\x1b(0lqk\x1b)Bx", "lqkx"},
		{"reset of the terminal", "\x1bcx", "x"},
		{"bell, backspace, form feed, shift out", "a\ab\bc\fd\x0ee", "a\uFFFDb\uFFFDc\uFFFDd\uFFFDe"},
		{"nul and delete", "\x00\x7f", "\uFFFD\uFFFD"},
		{"C1 as UTF-8", "\u009b31mx\u0090y", "\uFFFD31mx\uFFFDy"},
		{"C1 as a byte", "\x9b31mx", "\uFFFD31mx"},
		{"latin 1", "caf\xe9 au", "caf\uFFFD au"},
		{"cut character", "\xe6\x97", "\uFFFD"},
		{"cut character before a sequence", "\xe6\x1b[1mx", "\uFFFD\x1b[1mx" + reset},
		{"overlong", "\xc0\xaf\xe0\x80\xaf", "\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"surrogate", "\xed\xa0\x80", "\uFFFD\uFFFD"},
		{"cancelled sequence", "\x1b[31\x18mx", "mx"},
		{"line feed in a sequence", "\x1b[31\nmx", "\nmx"},
		{"endless parameters", "\x1b[" + strings.Repeat("1;", 60) + "mx", "x"},
		{"unfinished", "x\x1b[3", "x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, n := range []int{1, 2, 3, 1000} {
				if got := safely(t, test.in, n, true); got != test.want {
					t.Errorf("in pieces of %d: %q becomes %q, want %q", n, test.in, got, test.want)
				}
			}
		})
	}
	if got := safely(t, "\x1b[31mred\x1b[0m", 4, false); got != "red" {
		t.Errorf("without colours: got %q, want %q", got, "red")
	}
}

// harmless reports whether a text makes a terminal only print and colour.
func harmless(s string) bool {
	for s != "" {
		if s[0] == 0x1b {
			end := strings.IndexByte(s, 'm')
			if end < 0 || !strings.HasPrefix(s, "\x1b[") || strings.Trim(s[2:end], "0123456789;:") != "" {
				return false
			}
			s = s[end+1:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || r < 0x20 && r != '\n' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0 {
			return false
		}
		s = s[n:]
	}
	return true
}

func FuzzSafeWriter(f *testing.F) {
	for _, s := range []string{"a\n", "\x1b[31mx", "\x1b]0;t\x07", "\xe6\x97\xa5", "\x9b", "\x1b[>4;2m", "\x1bP\x1b\\"} {
		f.Add(s, uint8(1))
	}
	f.Fuzz(func(t *testing.T, s string, n uint8) {
		whole := safely(t, s, len(s)+1, true)
		if !harmless(whole) {
			t.Fatalf("%q becomes %q", s, whole)
		}
		if got := safely(t, s, int(n%7)+1, true); got != whole {
			t.Fatalf("%q in pieces of %d becomes %q, whole %q", s, n%7+1, got, whole)
		}
		if printableOnly := strings.Trim(s, " abcdefghijklmnopqrstuvwxyz\n") == ""; printableOnly && whole != s {
			t.Fatalf("plain %q becomes %q", s, whole)
		}
	})
}
