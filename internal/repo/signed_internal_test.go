package repo

import (
	"errors"
	"strings"
	"testing"
)

// A repository in shards has a layout of its own, with or without the demand for signatures, which an older program
// refuses.
func TestSpreadOnRecord(t *testing.T) {
	for _, signed := range []bool{false, true} {
		text, err := (&format{Spread: true, SignedExecutions: signed}).encode()
		if err != nil || !strings.Contains(string(text), `"version":6,`) || !strings.Contains(string(text), `"spread":true,"sum":"`) {
			t.Fatalf("got %s, %v", text, err)
		}
		back, err := decodeFormat(text, "here")
		if err != nil || !back.Spread || back.SignedExecutions != signed || !back.summed() {
			t.Errorf("it is read as %+v, %v", back, err)
		}
	}
	if _, err := decodeFormat([]byte(`{"e3":"repository","version":6}`), "here"); !errors.Is(err, errFormatDamaged) {
		t.Errorf("a description without its sum: %v", err)
	}
	if _, err := decodeFormat([]byte(`{"e3":"repository","version":8}`), "here"); !errors.Is(err, ErrTooNew) {
		t.Errorf("a newer layout: %v", err)
	}
}

// Executions in one file each have a layout of their own, whatever else the repository asks for.
func TestFoldedOnRecord(t *testing.T) {
	for _, signed := range []bool{false, true} {
		text, err := (&format{Folded: true, SignedExecutions: signed}).encode()
		if err != nil || !strings.Contains(string(text), `"version":7,`) || !strings.Contains(string(text), `"folded":true,"sum":"`) {
			t.Fatalf("got %s, %v", text, err)
		}
		back, err := decodeFormat(text, "here")
		if err != nil || !back.Folded || back.SignedExecutions != signed || !back.summed() {
			t.Errorf("it is read as %+v, %v", back, err)
		}
	}
}

// The demand for signatures has a layout of its own, which an older program refuses; without the demand the layout is the usual one again.
func TestDemandOnRecord(t *testing.T) {
	f := &format{SignedExecutions: true}
	text, err := f.encode()
	if err != nil || !strings.Contains(string(text), `"version":5,"signedExecutions":true,"sum":"`) {
		t.Fatalf("got %s, %v", text, err)
	}
	back, err := decodeFormat(text, "here")
	if err != nil || !back.SignedExecutions || !back.summed() {
		t.Fatalf("it is read as %+v, %v", back, err)
	}
	// Without its sum it is damaged: cutting the demand out of it does not lift it unnoticed.
	if _, err := decodeFormat([]byte(`{"e3":"repository","version":5}`), "here"); !errors.Is(err, errFormatDamaged) {
		t.Errorf("a description without its sum: %v", err)
	}
	back.SignedExecutions = false
	if text, err = back.encode(); err != nil || !strings.Contains(string(text), `"version":4,"sum":"`) {
		t.Errorf("without the demand it is %s, %v", text, err)
	}
}
