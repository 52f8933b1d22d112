package manifest_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"e3/internal/format/manifest"
)

var update = flag.Bool("update", false, "rewrite the golden error texts under testdata/invalid")

// ignoreText leaves out the text that a definition keeps for Expand.
var ignoreText = cmpopts.IgnoreUnexported(manifest.Definition{})

// parserOnly begins a file whose fault the schema cannot express.
const parserOnly = "# parser-only\n"

// corpus reads the files that match a pattern; it fails if there are none.
func corpus(t *testing.T, pattern string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no files match %s: %v", pattern, err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = data
	}
	return files
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile("../../../doc/e3.schema.json")
	if err != nil {
		t.Fatalf("compile the schema: %v", err)
	}
	return s
}

// untyped reads a file without this package, as a validator of schemas would.
func untyped(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := yaml.Load(data, &v); err != nil {
		t.Fatalf("load as plain YAML: %v", err)
	}
	return plain(v)
}

// plain converts values of YAML 1.1 types that JSON lacks to strings.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	case map[any]any:
		m := map[string]any{}
		for k, item := range v {
			m[reflect.ValueOf(k).String()] = plain(item)
		}
		return m
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case interface{ UnixNano() int64 }:
		return "date"
	}
	return v
}

func TestValidCorpus(t *testing.T) {
	s := schema(t)
	for name, data := range corpus(t, "testdata/valid/*") {
		t.Run(filepath.Base(name), func(t *testing.T) {
			d, err := manifest.Parse(name, data)
			if err != nil {
				t.Fatalf("Parse: %v", err)
			}
			fromFile, err := manifest.ParseFile(name)
			if err != nil {
				t.Fatalf("ParseFile: %v", err)
			}
			if diff := cmp.Diff(d, fromFile, ignoreText); diff != "" {
				t.Errorf("Parse and ParseFile differ (-Parse +ParseFile):\n%s", diff)
			}
			if err := s.Validate(untyped(t, data)); err != nil {
				t.Errorf("the schema refuses it: %v", err)
			}
		})
	}
}

func TestInvalidCorpus(t *testing.T) {
	s := schema(t)
	for name, data := range corpus(t, "testdata/invalid/*.yaml") {
		t.Run(filepath.Base(name), func(t *testing.T) {
			d, err := manifest.Parse(filepath.Base(name), data)
			var faults manifest.Errors
			if !errors.As(err, &faults) {
				t.Fatalf("Parse gave %v and error %v, want Errors", d, err)
			}
			golden := strings.TrimSuffix(name, ".yaml") + ".txt"
			got := err.Error() + "\n"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("read the expected errors (run with -update to write them): %v", err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("errors differ (-want +got):\n%s", diff)
			}
			if strings.HasPrefix(string(data), parserOnly) {
				return
			}
			if s.Validate(untyped(t, data)) == nil {
				t.Errorf("the schema accepts it; mark the file %q if only the parser can refuse it", strings.TrimSpace(parserOnly))
			}
		})
	}
}

// Each fault that the schema can express is tested alone, because a file with several faults would hide that the schema
// misses some.
func TestSchemaSeesEveryEntry(t *testing.T) {
	s := schema(t)
	for name, data := range corpus(t, "testdata/invalid/*.yaml") {
		if strings.HasPrefix(string(data), parserOnly) {
			continue
		}
		root, ok := untyped(t, data).(map[string]any)
		if !ok {
			continue
		}
		for _, key := range []string{"inputs", "tasks"} {
			entries, _ := root[key].(map[string]any)
			for entry, value := range entries {
				single := map[string]any{"e3": 1, "name": "p", key: map[string]any{entry: value}}
				if s.Validate(single) == nil {
					t.Errorf("%s: the schema accepts %s.%s: %v", name, key, entry, value)
				}
			}
		}
	}
}
