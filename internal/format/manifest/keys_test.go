package manifest

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// The schema that editors use knows the keys that the decoder knows.
func TestSchemaHasAllKeys(t *testing.T) {
	data, err := os.ReadFile("../../../doc/e3.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var schema struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	for where, test := range map[string]struct {
		keys []string
		has  map[string]json.RawMessage
	}{
		"the file": {topKeys, schema.Properties},
		"an input": {inputKeys, schema.Defs["input"].Properties},
		"a task":   {taskKeys, schema.Defs["task"].Properties},
	} {
		for _, key := range test.keys {
			if _, ok := test.has[key]; !ok {
				t.Errorf("doc/e3.schema.json lacks the key %s of %s", key, where)
			}
		}
		for key := range test.has {
			if !slices.Contains(test.keys, key) {
				t.Errorf("doc/e3.schema.json has the key %s of %s, which the decoder does not know", key, where)
			}
		}
	}
}
