package repo

import (
	"errors"
	"strings"
	"testing"
)

// The options of a repository are fields of the one form. Without its sum it is damaged: cutting the demand for
// signatures out of it does not lift it unnoticed.
func TestOptionsOnRecord(t *testing.T) {
	for want, f := range map[string]format{
		`{"e3":"repository","version":1,"sum":"`:                                           {},
		`{"e3":"repository","version":1,"signedExecutions":true,"sum":"`:                   {SignedExecutions: true},
		`{"e3":"repository","version":1,"partitions":true,"sum":"`:                         {Partitions: true},
		`{"e3":"repository","version":1,"signedExecutions":true,"partitions":true,"sum":"`: {SignedExecutions: true, Partitions: true},
	} {
		text, err := f.encode()
		if err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("got %s, %v, want %s", text, err, want)
		}
		back, err := decodeFormat(text, "here")
		if err != nil || back.Partitions != f.Partitions || back.SignedExecutions != f.SignedExecutions {
			t.Errorf("%s is read as %+v, %v", text, back, err)
		}
	}
	if _, err := decodeFormat([]byte(`{"e3":"repository","version":1}`), "here"); !errors.Is(err, errFormatDamaged) {
		t.Errorf("a description without its sum: %v", err)
	}
}

// A repository of another version is refused with what to do: those that an unreleased e3 made have greater ones too.
func TestOtherVersions(t *testing.T) {
	for _, text := range []string{
		`{"e3":"repository","version":2}`, `{"e3":"repository","version":9}`,
		string(withSum([]byte(`{"e3":"repository","version":7,"access":"private","folded":true}`))) + "\n",
	} {
		_, err := decodeFormat([]byte(text), "here")
		if !errors.Is(err, ErrOtherFormat) || !strings.Contains(err.Error(), "run its package file in a new repository") {
			t.Errorf("%s is read with error %v, want an ErrOtherFormat that says what to do", text, err)
		}
	}
}
