package manifest_test

import (
	"strings"
	"testing"

	"e3/internal/format/manifest"
)

// TestResultsOfItems: the output of all items is written with a star, which the message about a name without one says.
func TestResultsOfItems(t *testing.T) {
	file := "e3: 1\nname: x\nresults: {dir: out, of: [OF]}\ntasks:\n  page: {matrix: {n: [1, 2]}, out: {html: a.html, title: t.txt}, run: x}\n"
	if _, err := manifest.Parse("e3.yaml", []byte(strings.Replace(file, "OF", `"page[*].html"`, 1))); err != nil {
		t.Error(err)
	}
	_, err := manifest.Parse("e3.yaml", []byte(strings.Replace(file, "OF", "page.html", 1)))
	if want := `no task or output matches "page.html" (write "page[*].html")`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the message is %v, want %q in it", err, want)
	}
}
