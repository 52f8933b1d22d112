package signature_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"e3/internal/format/signature"
)

// The seeds are in testdata/fuzz.

// A signature has exactly one valid form; other input is a bad signature. Neither decoding nor verification panics.
func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := signature.Decode(data)
		if err != nil {
			if !errors.Is(err, signature.ErrBadSignature) {
				t.Errorf("got %v, want ErrBadSignature", err)
			}
			return
		}
		if got := s.Encode(); !bytes.Equal(got, data) {
			t.Errorf("encoded again\ngot  %q\nwant %q", got, data)
		}
		if err := s.Verify(s.Manifest); err != nil && !errors.Is(err, signature.ErrBadSignature) {
			t.Error(err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := signature.Parse(data)
		if err != nil {
			return
		}
		back, err := signature.Parse(k.Encode())
		if err != nil || *back != *k {
			t.Errorf("the key %s %q came back as %v, %v", k, k.Name, back, err)
		}
	})
}

// A corpus that has gone missing would leave the fuzz targets with nothing to start from.
func TestFuzzCorpusIsThere(t *testing.T) {
	for _, name := range []string{"FuzzDecode", "FuzzParse"} {
		if seeds, err := os.ReadDir("testdata/fuzz/" + name); err != nil || len(seeds) < 3 {
			t.Errorf("%s has %d seeds, %v", name, len(seeds), err)
		}
	}
}
