package figures_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"e3/internal/insight/figures"
)

// TestShort: six digits of a fraction, and all digits of a whole number and of one that is short.
func TestShort(t *testing.T) {
	for value, want := range map[string]string{
		"0.60": "0.60", "0.9123456789": "0.912346", "123.4567891": "123.457", "1234567.89": "1234568", "123456789": "123456789", "-0.00001234567": "-1.23457e-5",
		"1.5e-07": "1.5e-07", "1.23456789e-07": "1.23457e-7", "1e300": "1e300", "0.1": "0.1", "8000000.0": "8000000", `"NaN"`: "NaN", `"word"`: `"word"`, "true": "true", "1e999": "1e999",
		"-0.30000000000000004": "-0.3", "99999.99999": "100000",
	} {
		if got := figures.Short(json.RawMessage(value)); got != want {
			t.Errorf("Short(%s) = %s, want %s", value, got, want)
		}
	}
}

// TestPads: points stand below each other.
func TestPads(t *testing.T) {
	if got, want := fmt.Sprint(figures.Pads([]string{"0.9", "12", "1.25", "NaN", "1e-7", "", "x.y"})), "[1 3 0 0 0 0 0]"; got != want {
		t.Errorf("pads %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(figures.Pads([]string{"1", "22"})), "[0 0]"; got != want {
		t.Errorf("pads of whole numbers %s, want %s", got, want)
	}
}
