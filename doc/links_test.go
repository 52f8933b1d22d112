package doc_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	anchor  = regexp.MustCompile(`<a id="([^"]+)">`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
)

// documents returns the documents of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "../*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	if len(all) < 15 {
		t.Fatalf("found %d documents, want more", len(all))
	}
	return all
}

// anchors returns what links into a document may name: headings as GitHub writes them, and explicit ids.
func anchors(text string) []string {
	var names []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		kept := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r > 127 && r != '…':
				return r
			}
			return -1
		}, strings.ToLower(m[1]))
		names = append(names, kept)
	}
	for _, m := range anchor.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// TestLinks follows each link between the documents, to its file and to the heading there.
func TestLinks(t *testing.T) {
	n := 0
	for _, document := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, document), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			n++
			name, section, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(document), name)
			if name == "" {
				target = document
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %s leads nowhere: %v", document, m[1], err)
				continue
			}
			if section != "" && !slices.Contains(anchors(read(t, target)), section) {
				t.Errorf("%s: the link %s leads to no heading of %s", document, m[1], target)
			}
		}
	}
	if n < 50 {
		t.Errorf("found %d links, want more", n)
	}
}
