package doc_test

import (
	"regexp"
	"strings"
	"testing"
)

// maxWords is the length of a paragraph, or an item of a list, beyond which readers lose the thread.
const maxWords = 120

var item = regexp.MustCompile(`^(- |[0-9]+\. )`)

// paragraphs returns the paragraphs and items of lists of a document by the number of their first line. Tables,
// headings, comments and fenced blocks do not count.
func paragraphs(document string) map[int]string {
	found := map[int]string{}
	first, fenced := 0, false
	for i, line := range strings.Split(document, "\n") {
		if strings.HasPrefix(line, "```") {
			fenced, first = !fenced, 0
			continue
		}
		switch {
		case fenced || strings.TrimSpace(line) == "" || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "<!--"):
			first = 0
			continue
		case first == 0 || item.MatchString(line):
			first = i + 1
		}
		found[first] += line + " "
	}
	return found
}

// TestParagraphs holds the paragraphs of the documents below a length at which they can be read once.
func TestParagraphs(t *testing.T) {
	for _, document := range documents(t) {
		for line, text := range paragraphs(read(t, document)) {
			if n := len(strings.Fields(text)); n > maxWords {
				t.Errorf("%s:%d: a paragraph of %d words, at most %d are allowed: split it", document, line, n, maxWords)
			}
		}
	}
}

func TestParagraphsAreSeen(t *testing.T) {
	got := paragraphs("# head\none\ntwo\n\n- three\n  four\n- five\n| no |\n```\nno\n```\nsix")
	want := map[int]string{2: "one two ", 5: "- three   four ", 7: "- five ", 12: "six "}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for line, text := range want {
		if got[line] != text {
			t.Errorf("line %d: got %q, want %q", line, got[line], text)
		}
	}
}

var (
	person = regexp.MustCompile(`(?i)\b(whoever|somebody|nobody|everybody|anybody)\b`)
	quoted = regexp.MustCompile("`[^`]*`")
)

// TestSubjects finds pronouns for people as subjects, where a thing acts: a writer, holder, collector, run or task.
func TestSubjects(t *testing.T) {
	for _, document := range documents(t) {
		for i, line := range strings.Split(read(t, document), "\n") {
			if word := person.FindString(quoted.ReplaceAllString(line, "")); word != "" {
				t.Errorf("%s:%d: %q: name the process or the thing that acts", document, i+1, word)
			}
		}
	}
}
