package doc_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"e3/internal/format/manifest"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestPackageFileExamples parses every example of package-file.md. An example without a header may use the inputs of
// those before it.
func TestPackageFileExamples(t *testing.T) {
	inputs := ""
	blocks := yamlBlock.FindAllStringSubmatch(read(t, "package-file.md"), -1)
	if len(blocks) < 8 {
		t.Fatalf("package-file.md has %d examples, want more", len(blocks))
	}
	for _, block := range blocks {
		text := block[1]
		if !strings.HasPrefix(text, "e3: ") {
			more, tasks, found := strings.Cut("\n"+text, "\ntasks:\n")
			if !found {
				tasks = "  none: {out: o, run: [make]}\n"
			}
			inputs += strings.TrimPrefix(strings.TrimSuffix(more, "\n")+"\n", "\ninputs:\n")
			text = "e3: 1\nname: p\ninputs:\n" + inputs + "tasks:\n" + tasks
		}
		if _, err := manifest.Parse("package-file.md", []byte(text)); err != nil {
			t.Errorf("an example is refused: %v\n%s", err, text)
		}
	}
}

// TestPackageFileKeys finds each key of the schema in a table of package-file.md.
func TestPackageFileKeys(t *testing.T) {
	var schema any
	if err := json.Unmarshal([]byte(read(t, "e3.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for line := range strings.Lines(read(t, "package-file.md")) {
		if first, found := strings.CutPrefix(line, "| "); found {
			first, _, _ = strings.Cut(first, " | ")
			for _, m := range regexp.MustCompile("`(?:[a-z_]+\\.)?([a-z_0-9]+)[^`]*`").FindAllStringSubmatch(first, -1) {
				documented[m[1]] = true
			}
		}
	}
	n := 0
	eachProperty(schema, func(name string) {
		if n++; !documented[name] {
			t.Errorf("no table of package-file.md has the key %q, which e3.schema.json has", name)
		}
	})
	if n < 30 {
		t.Errorf("e3.schema.json has %d keys, want more", n)
	}
}

// eachProperty calls visit with each name under "properties", wherever that stands in a schema.
func eachProperty(schema any, visit func(name string)) {
	switch s := schema.(type) {
	case []any:
		for _, item := range s {
			eachProperty(item, visit)
		}
	case map[string]any:
		for key, v := range s {
			if properties, ok := v.(map[string]any); ok && key == "properties" {
				for name, p := range properties {
					visit(name)
					eachProperty(p, visit)
				}
				continue
			}
			eachProperty(v, visit)
		}
	}
}
