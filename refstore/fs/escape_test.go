package fs

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"e3/refstore/refstoretest"
)

func TestEscape(t *testing.T) {
	for _, c := range []struct{ name, segment, want string }{
		{"plain", "prod", "prod"},
		{"uuid", "019a0000-0000-7000-8000-000000000001", "019a0000-0000-7000-8000-000000000001"},
		{"matrix", "train[depth=4,lr=0.1]", "train[depth=4,lr=0.1]"},
		{"version", "1.0.0+build.1", "1.0.0+build.1"},
		{"empty", "", "%"},
		{"dot", ".", "%2E"},
		{"dots", "..", "%2E%2E"},
		{"hidden", ".git", "%2Egit"},
		{"slash", "a/b", "a%2Fb"},
		{"backslash", `a\b`, "a%5Cb"},
		{"colon", "resume:7", "resume%3A7"},
		{"percent", "100%", "100%25"},
		{"tilde", "a~", "a%7E"},
		{"nul", "a\x00", "a%00"},
		{"final space", "a ", "a%20"},
		{"letters of the world", "日本é", "日本é"},
		{"not UTF-8", "\xffa", "%FFa"},
		{"200 bytes", strings.Repeat("x", 200), strings.Repeat("x", 200)},
		{"201 bytes", strings.Repeat("x", 201), filepath.Join(strings.Repeat("x", 199)+"%", "xx")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := escape(c.segment); got != c.want {
				t.Errorf("escape(%q) = %q, want %q", c.segment, got, c.want)
			}
		})
	}
}

func TestUnescapeRefusesForeignNames(t *testing.T) {
	for _, path := range []string{"a%", "%2", "%zz", "%2e", "%41", "a/b", ".hidden", "a~", "x.", "%%", "a:b", strings.Repeat("x", 201)} {
		if segment, ok := unescape(path); ok {
			t.Errorf("unescape(%q) = %q, want a refusal", path, segment)
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, segment := range refstoretest.Hostile() {
		f.Add(segment)
	}
	f.Fuzz(func(t *testing.T, segment string) {
		path := escape(segment)
		back, ok := unescape(path)
		if !ok || back != segment {
			t.Errorf("unescape(escape(%q)) = %q, %v through %q", segment, back, ok, path)
		}
		components := strings.Split(path, string(filepath.Separator))
		for i, name := range components {
			if name == "" || name == "." || name == ".." || len(name) > maxName || strings.ContainsAny(name, "\x00/~") {
				t.Errorf("escape(%q) has the component %q", segment, name)
			}
			if continues(name) != (i < len(components)-1) {
				t.Errorf("escape(%q) = %q: component %d says wrongly whether it goes on", segment, path, i)
			}
			if utf8.ValidString(segment) && !utf8.ValidString(name) {
				t.Errorf("escape(%q) has the component %q, which is not UTF-8", segment, name)
			}
		}
	})
}

func FuzzUnescape(f *testing.F) {
	for _, path := range []string{"a", "%", "%2F", "%2E%2E", "a%/b", "%%", "../x", strings.Repeat("x", 199) + "%/xx"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if segment, ok := unescape(path); ok && escape(segment) != path {
			t.Errorf("unescape(%q) = %q, whose path is %q", path, segment, escape(segment))
		}
	})
}
