package manifest_test

import (
	"testing"

	"e3/internal/format/manifest"
)

// TestOverlaid: mappings are joined name by name; of other values, lists too, the one above counts. Neither side changes.
func TestOverlaid(t *testing.T) {
	object := func(text string) manifest.Object {
		v, err := manifest.ParseValue("x.json", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		o, _ := v.(manifest.Object)
		return o
	}
	for _, tt := range []struct{ below, above, want string }{
		{`{"a":1,"b":{"c":2,"d":3}}`, `{"b":{"d":4,"e":5},"f":6}`, `{"a":1,"b":{"c":2,"d":4,"e":5},"f":6}`},
		{`{"a":[1,2]}`, `{"a":[3]}`, `{"a":[3]}`},
		{`{"a":{"b":1}}`, `{"a":null}`, `{"a":null}`},
		{`{"a":1}`, `{"a":{"b":2}}`, `{"a":{"b":2}}`},
		{`{}`, `{"a":1}`, `{"a":1}`},
		{`{"a":1}`, `{}`, `{"a":1}`},
	} {
		below, above := object(tt.below), object(tt.above)
		if got := string(manifest.AppendJSON(nil, manifest.Overlaid(below, above))); got != tt.want {
			t.Errorf("%s over %s\n got %s\nwant %s", tt.above, tt.below, got, tt.want)
		}
		if got := string(manifest.AppendJSON(nil, below)); got != tt.below {
			t.Errorf("%s became %s", tt.below, got)
		}
	}
}
