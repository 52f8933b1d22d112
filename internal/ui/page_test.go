package ui_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"e3/internal/events"
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

func urlOf(s string) string { return url.QueryEscape(s) }

func lateTask() events.Event {
	return events.Event{Type: events.TaskStarted, Task: "late", Execution: "01950000-0000-7000-8000-000000000000", Data: &events.Data{Attempt: 1}}
}
