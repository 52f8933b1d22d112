package manifest_test

import (
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
	"pgregory.net/rapid"

	"e3/internal/format/manifest"
)

func TestMatchGlob(t *testing.T) {
	for _, test := range []struct {
		pattern  string
		yes, not []string
	}{
		{"*.py", []string{"a.py", "é.py"}, []string{"a/b.py", ".py", ".a.py", "a.pyc"}},
		{"src/**/*.py", []string{"src/a.py", "src/b/c/d.py"}, []string{"src.py", "a/src/a.py", "src/.b/a.py", "src/b/.a.py", "src/.e3/a.py"}},
		{"src/**", []string{"src/a", "src/b/c"}, []string{"src", "src/.a", "src/b/.c/d"}},
		{"**", []string{"a", "a/b"}, []string{".a", "a/.b"}},
		{"**/x/**/y", []string{"x/y", "a/x/b/c/y", "x/x/y"}, []string{"x", "y", "a/y"}},
		{"?", []string{"a", "é"}, []string{"ab", ".", ""}},
		{"a?c", []string{"abc", "aéc"}, []string{"ac", "a/c", "abbc"}},
		{"a*b*c", []string{"abc", "aXbYc", "abbc", "abcbc"}, []string{"ab", "acb", "abcd"}},
		{"[ab]*", []string{"[ab]", "[ab]x"}, []string{"a", "b"}},
		{"{a,b}?", []string{"{a,b}x"}, []string{"ax"}},
		{`a\*`, []string{`a\b`}, []string{"a*"}},
		{".github/*", []string{".github/x"}, []string{"x/x", ".github/.x"}},
		{"*/.*", []string{"a/.b"}, []string{"a/b", ".a/.b"}},
		{".*/*", []string{".a/b"}, []string{".e3/b", "a/b"}},
	} {
		if err := manifest.CheckGlob(test.pattern); err != nil {
			t.Errorf("CheckGlob(%q): %v", test.pattern, err)
		}
		for _, name := range test.yes {
			if !manifest.MatchGlob(test.pattern, name) {
				t.Errorf("%q does not match %q", test.pattern, name)
			}
		}
		for _, name := range test.not {
			if manifest.MatchGlob(test.pattern, name) {
				t.Errorf("%q matches %q", test.pattern, name)
			}
		}
	}
}

// TestMatchGlobAgainstDoublestar compares with another implementation for patterns with the same meaning in both.
func TestMatchGlobAgainstDoublestar(t *testing.T) {
	part := rapid.SampledFrom([]string{"a", "b", "ab", "aab", "ba"})
	pattern := rapid.SampledFrom([]string{"a", "b", "*", "a*", "*b", "?", "?b", "a*b*", "**"})
	rapid.Check(t, func(t *rapid.T) {
		p := strings.Join(rapid.SliceOfN(pattern, 1, 5).Draw(t, "pattern"), "/")
		name := strings.Join(rapid.SliceOfN(part, 1, 6).Draw(t, "name"), "/")
		want := doublestar.MatchUnvalidated(p, name)
		// In doublestar "a/**" also matches "a" itself, which is no file below a.
		if strings.HasSuffix(p, "/**") {
			want = want && doublestar.MatchUnvalidated(p+"/*", name)
		}
		if got := manifest.MatchGlob(p, name); got != want {
			t.Fatalf("MatchGlob(%q, %q) = %v, want %v", p, name, got, want)
		}
	})
}

func TestGlobPrefix(t *testing.T) {
	for pattern, want := range map[string]string{
		"src/**/*.py": "src", "*.py": ".", "a/b/c?/d": "a/b", "a*": ".", "**": ".", "a/b": "a/b",
	} {
		if got := manifest.GlobPrefix(pattern); got != want {
			t.Errorf("GlobPrefix(%q) = %q, want %q", pattern, got, want)
		}
	}
}
