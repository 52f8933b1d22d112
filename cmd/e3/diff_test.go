package main

import (
	"os"
	"strings"
	"testing"

	"e3/cmd/e3/internal/render"
	"e3/internal/insight/compare"
)

// A program can decode the JSON document of a diff.
func TestDiffDocument(t *testing.T) {
	c := documentsProject(t)
	d := document[compare.Difference](c, 0, "diff", ".", "demo")
	if d.Differs || d.A.Name != "demo@" || d.A.RunID == "" || d.A.StartedAt.IsZero() || d.B.Name != "demo@next" || !d.B.StartedAt.IsZero() || d.Inputs.Same != 1 || d.Outputs.Same != 2 {
		t.Errorf("got %+v", d)
	}
	if err := os.WriteFile("word.txt", []byte("goodbye\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d = document[compare.Difference](c, 1, "diff", ".", "demo", "--exit-code")
	if !d.Differs || len(d.Inputs.Changes) != 1 || *d.Inputs.Changes[0].Is.Size != 8 || len(d.Outputs.Changes) != 2 || !d.Outputs.Changes[0].Is.Open {
		t.Errorf("got %+v", d)
	}
	c.must("start", ".", "demo")
	d = document[compare.Difference](c, 0, "diff", "demo@-1", "@")
	if !d.Differs || d.Tasks.Same != 2 || len(d.Durations.Tasks) != 2 || d.Metrics == nil || d.A.Status != "completed" {
		t.Errorf("got %+v", d)
	}
}

func TestSides(t *testing.T) {
	for _, tt := range []struct{ a, b, was, is string }{
		{"prod", "", "prod@", "prod@next"},
		{"prod@018f", "", "prod@018f", "prod"},
		{"prod@", "", "prod@", "prod"},
		{"prod@next", "", "prod@next", "prod"},
		{"prod", "staging", "prod", "staging"},
		{"prod@-1", "@", "prod@-1", "prod@"},
		{"prod", "@next", "prod", "prod@next"},
	} {
		was, is, err := sides(compare.ParseSide, tt.a, tt.b, "")
		if err != nil || was.String() != tt.was || is.String() != tt.is {
			t.Errorf("%q %q: got %s and %s, %v, want %s and %s", tt.a, tt.b, was, is, err, tt.was, tt.is)
		}
	}
}

func TestSidesByCommit(t *testing.T) {
	for _, tt := range []struct{ a, b, was, is string }{
		{"main", "3f9a", "demo@main", "demo@3f9a"},
		{"prod@feature/x", "@main", "prod@feature/x", "prod@main"},
		{"prod@main", "staging@main", "prod@main", "staging@main"},
		{"main", "", "demo@main", "demo"},
	} {
		was, is, err := sides(compare.ParseCommit, tt.a, tt.b, "demo")
		if err != nil || was.String() != tt.was || is.String() != tt.is {
			t.Errorf("%q %q: got %s and %s, %v, want %s and %s", tt.a, tt.b, was, is, err, tt.was, tt.is)
		}
	}
}

// Untrusted names cannot move the cursor.
func TestDiffTextHostile(t *testing.T) {
	const evil = "\x1b[2J\u202e"
	d := &compare.Difference{
		A: &compare.Seen{Side: compare.Side{Workspace: evil}, Package: evil, Notes: []string{evil + "\n" + evil}}, B: &compare.Seen{Side: compare.Side{Workspace: "b", What: compare.Run}, RunID: "1"},
		Inputs: compare.Datasets{Unknown: evil, Changes: []compare.DatasetChange{
			{Name: evil, Change: compare.Added, Is: &compare.Dataset{Kind: "value", Value: []byte(`"` + evil + `"`)}},
			{Name: "d", Change: compare.Changed, Was: &compare.Dataset{}, Is: &compare.Dataset{}, Files: &compare.Files{Unknown: evil, Changes: []compare.FileChange{
				{Path: evil, Change: compare.Added, Is: &compare.File{Kind: "link", Target: evil}}}}},
		}},
		Tasks: compare.Tasks{Changes: []compare.TaskChange{{Name: evil, Change: compare.Changed, Parts: []compare.Part{
			{Part: "env", Name: evil, Change: compare.Changed, Was: evil, Is: strings.Repeat("\n"+evil, 30)},
			{Part: "env", Name: evil, Change: compare.Added, Is: evil},
		}}}},
		Metrics:   []compare.Metrics{{Task: evil, Entry: evil, Unknown: evil, Changes: []compare.Metric{{Key: evil, Was: []byte(`"` + evil + `"`)}}}},
		Durations: compare.Durations{Tasks: []compare.Duration{{Task: evil, Notable: true}}},
	}
	var b strings.Builder
	text := diffText{w: &render.Sheet{Writer: &b}, d: d, all: true}
	text.write()
	if strings.ContainsAny(b.String(), "\x1b\u202e") {
		t.Errorf("it came through:\n%q", b.String())
	}
	if !strings.Contains(b.String(), `\x1b[2J`) {
		t.Errorf("it is not shown:\n%s", b.String())
	}
}
