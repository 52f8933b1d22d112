package settings_test

import (
	"bytes"
	"os"
	"testing"

	"e3/internal/settings"
)

// The seeds are in testdata/fuzz. Decoded settings encode to a stable form.
func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := settings.Decode(data)
		if err != nil {
			return
		}
		once := s.Encode()
		again, err := settings.Decode(once)
		if err != nil {
			t.Fatalf("what was encoded does not decode: %v\n%s", err, once)
		}
		if twice := again.Encode(); !bytes.Equal(once, twice) {
			t.Errorf("encoded again\ngot  %s\nwant %s", twice, once)
		}
		if s.RequireSigned != again.RequireSigned || len(s.TrustedKeys) != len(again.TrustedKeys) {
			t.Errorf("%+v came back as %+v", s, again)
		}
	})
}

// A corpus that has gone missing would leave the fuzz target with nothing to start from.
func TestFuzzCorpusIsThere(t *testing.T) {
	if seeds, err := os.ReadDir("testdata/fuzz/FuzzDecode"); err != nil || len(seeds) < 3 {
		t.Errorf("there are %d seeds, %v", len(seeds), err)
	}
}
