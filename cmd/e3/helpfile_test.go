package main

import (
	"encoding/json"
	"os"
	"testing"
)

// The page of help about the package file has every key that the schema has.
func TestPackageFileHelp(t *testing.T) {
	data, err := os.ReadFile("../../doc/e3.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	nested := map[string]bool{"dir": true, "of": true, "max": true, "backoff": true, "on": true, "lost": true, "memory": true, "cpu": true, "kind": true, "gitignore": true, "path": true}
	n := 0
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			if keys, ok := v["properties"].(map[string]any); ok {
				for key := range keys {
					n++
					if !packageKey(key) && !nested[key] {
						t.Errorf("e3 help package-file lacks the key %q", key)
					}
				}
			}
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(schema)
	if n < 60 {
		t.Errorf("the schema has %d keys, want more", n)
	}
	for _, word := range []string{"for", "", "shop", "1"} {
		if packageKey(word) {
			t.Errorf("%q counts as a key", word)
		}
	}
}
