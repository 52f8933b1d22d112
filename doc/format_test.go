// Package doc_test holds the documents to the code.
package doc_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"e3/internal/events"
	"e3/internal/format/beast2"
	"e3/internal/format/record"
	"e3/internal/repo"
	"e3/objectstore/tree"
)

var update = flag.Bool("update", false, "rewrite the schemas in format.md")

// samples has one file of every record and object that has a type of its own, by the name
// that format.md gives it. Their values do not matter.
func samples(t *testing.T) map[string][]byte {
	directory, err := tree.Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"ExecutionStatus":   (&record.Status{}).Encode(),
		"ExecutionDetail":   (&record.Detail{}).Encode(),
		"ExecutionMetadata": (&record.Metadata{}).Encode(),
		"Rejection":         (&record.Rejection{}).Encode(),
		"Signature":         (&record.Signature{}).Encode(),
		"Provenance":        (&record.Provenance{}).Encode(),
		"ExportProvenance":  (&record.Export{}).Encode(),
		"Tombstones":        record.Tombstones{}.Encode(),
		"Pin":               (&record.Pin{}).Encode(),
		"Cancellation":      (&record.Cancellation{}).Encode(),
		"DataflowRun":       (&record.Run{}).Encode(),
		"WorkspaceState":    (&record.WorkspaceState{}).Encode(),
		"LockState":         (&record.LockState{}).Encode(),
		"Package":           (&record.Package{}).Encode(),
		"Task":              (&record.Task{}).Encode(),
		"Node":              record.Node{}.Encode(),
		"Directory":         directory,
		"Link":              (&record.Link{}).Encode(),
		"Proof":             (&record.Proof{}).Encode(),
		"Durations":         record.Durations{}.Encode(nil),

		"ResultsPlan": (&record.ResultsPlan{}).Encode(),
		"Results":     (&record.Results{}).Encode(),

		"WorkspaceDeployment": (&record.WorkspaceDeployment{}).Encode(),
	}
}

// block is a schema in format.md: a fenced type, with its name behind the fence.
var block = regexp.MustCompile("(?s)```json ([A-Za-z]+)\n(.*?)```\n")

func TestSchemas(t *testing.T) {
	doc := read(t, "format.md")
	want := samples(t)
	seen := map[string]bool{}
	fresh := block.ReplaceAllStringFunc(doc, func(old string) string {
		m := block.FindStringSubmatch(old)
		name, text := m[1], m[2]
		data, ok := want[name]
		if !ok {
			t.Errorf("format.md has a schema of %s, which is no record", name)
			return old
		}
		seen[name] = true
		schema := schemaOf(t, data)
		if text != schema && !*update {
			t.Errorf("the schema of %s in format.md is not that of the code; rewrite it with: go test ./doc -update\ngot:\n%swant:\n%s", name, text, schema)
		}
		return fmt.Sprintf("```json %s\n%s```\n", name, schema)
	})
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !seen[name] {
			t.Errorf("format.md has no schema of %s", name)
		}
	}
	if *update && fresh != doc {
		if err := os.WriteFile("format.md", []byte(fresh), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// schemaOf prints the type of a file in the JSON notation.
func schemaOf(t *testing.T, data []byte) string {
	t.Helper()
	text, err := beast2.ToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Type json.RawMessage }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	layOut(t, &b, file.Type, "", 0)
	return b.String() + "\n"
}

// layOut prints JSON on one line where it fits, else an element a line. A pair of a name and
// a type keeps the name on the line of the type. before is what that line has already.
func layOut(t *testing.T, b *strings.Builder, raw json.RawMessage, indent string, before int) {
	t.Helper()
	const width = 110
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		t.Fatal(err)
	}
	if len(indent)+before+line.Len() <= width {
		b.WriteString(line.String())
		return
	}
	if raw[0] == '{' { // one member: a constructor
		dec := json.NewDecoder(bytes.NewReader(raw))
		var member map[string]json.RawMessage
		if err := dec.Decode(&member); err != nil {
			t.Fatal(err)
		}
		for name, v := range member {
			fmt.Fprintf(b, "{%q:", name)
			layOut(t, b, v, indent, before+len(name)+4)
		}
		b.WriteString("}")
		return
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) == 2 && list[0][0] == '"' {
		fmt.Fprintf(b, "[%s,", list[0])
		layOut(t, b, list[1], indent, before+len(list[0])+2)
		b.WriteString("]")
		return
	}
	b.WriteString("[")
	for i, v := range list {
		b.WriteString("\n" + indent + "  ")
		layOut(t, b, v, indent+"  ", 0)
		if i < len(list)-1 {
			b.WriteString(",")
		}
	}
	b.WriteString("]")
}

// TestLayout finds a line of the layout for every file of the golden repositories.
func TestLayout(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "format.md"), "<!-- layout -->\n```\n")
	text, _, found := strings.Cut(text, "```\n")
	if !found {
		t.Fatal("format.md has no layout")
	}
	var lines []*regexp.Regexp
	for line := range strings.Lines(text) {
		path, _, _ := strings.Cut(line, "  ")
		pattern := regexp.MustCompile(`<[^>]+>`).ReplaceAllString(regexp.QuoteMeta(strings.TrimSpace(path)), `[^/]+`)
		lines = append(lines, regexp.MustCompile("^"+pattern+"$"))
	}
	files := 0
	descriptions, err := filepath.Glob(fmt.Sprintf("../testdata/format/v%d/*.json", repo.FormatVersion))
	if err != nil || len(descriptions) == 0 {
		t.Fatalf("golden repositories: %v, %v", descriptions, err)
	}
	for _, d := range descriptions {
		root := strings.TrimSuffix(d, ".json")
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			rel, err := filepath.Rel(root, path)
			files++
			if !slices.ContainsFunc(lines, func(r *regexp.Regexp) bool { return r.MatchString(filepath.ToSlash(rel)) }) {
				t.Errorf("the layout in format.md has no line for %s", rel)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 50 {
		t.Errorf("the golden repositories have only %d files", files)
	}
}

// TestEventFields finds every field and every type of events in the document.
func TestEventFields(t *testing.T) {
	_, section, found := strings.Cut(read(t, "format.md"), "\n## Events\n")
	if !found {
		t.Fatal("format.md has no section Events")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, typ := range []reflect.Type{reflect.TypeFor[events.Event](), reflect.TypeFor[events.Data](), reflect.TypeFor[events.Process](), reflect.TypeFor[events.Summary]()} {
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name != "-" && !strings.Contains(section, "`"+name+"`") {
				t.Errorf("the field %s of %s is not in format.md", name, typ)
			}
		}
	}
	source := read(t, "../internal/events/events.go")
	types := regexp.MustCompile(`Type = "([a-z._]+)"`).FindAllStringSubmatch(source, -1)
	if len(types) < 10 {
		t.Fatalf("found %d types of events in the source, want more", len(types))
	}
	for _, m := range types {
		if !strings.Contains(section, "`"+m[1]+"`") {
			t.Errorf("the type %s is not in format.md", m[1])
		}
	}
}

func TestVersionIsCurrent(t *testing.T) {
	want := strings.TrimSpace(read(t, fmt.Sprintf("../testdata/format/v%d/basic/format.json", repo.FormatVersion)))
	if !strings.Contains(read(t, "format.md"), want) {
		t.Errorf("format.md does not show %s", want)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
