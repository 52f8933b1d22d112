package ui_test

import (
	"regexp"
	"strings"
	"testing"
)

// link returns the two groups of a pattern in a page.
func link(t testing.TB, page, pattern string) (a, b string) {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(page)
	if len(m) != 3 {
		t.Fatalf("no %s in the page:\n%.3000s", pattern, page)
	}
	return strings.ReplaceAll(m[1], "&amp;", "&"), m[2]
}

func wantIn(t testing.TB, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page has no %q", text)
		}
	}
}
