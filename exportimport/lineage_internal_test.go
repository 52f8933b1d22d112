package exportimport

import (
	"strings"
	"testing"

	"e3/internal/format/record"
)

// Earlier signers in a zip are shown beside results, so they must be valid.
func TestOriginRefusesSigners(t *testing.T) {
	const key = "e3pub1smKsUGDqKOS-QF3LlxXdNSkLLfZg8tSMtWZeGFeNLQg"
	for _, tt := range []struct {
		name   string
		signer record.Signer
		want   string // "" is allowed
	}{
		{"nobody", record.Signer{}, ""},
		{"a key", record.Signer{Key: key}, ""},
		{"a key and a name", record.Signer{Key: key, Name: "Ann, CI"}, ""},
		{"no key", record.Signer{Key: "ann"}, "is not a public key"},
		{"a key and more", record.Signer{Key: key + " (trusted)"}, "is not a public key"},
		{"a name with an escape", record.Signer{Key: key, Name: "ann\x1b[31m"}, "cannot be shown"},
		{"a name with a line break", record.Signer{Key: key, Name: "ann\nbob"}, "cannot be shown"},
		{"a name turned around", record.Signer{Key: key, Name: "ann\u202e"}, "cannot be shown"},
	} {
		e := record.Export{By: "cid@c", Earlier: []record.ExportGroup{{Steps: []record.Step{{By: "ann@a", Signer: tt.signer}}}}}
		err := new(origin).read(e.Encode())
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}
