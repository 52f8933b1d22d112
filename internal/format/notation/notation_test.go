package notation_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/format/notation"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, test := range []struct {
		what  string
		valid func(string) bool
		yes   []string
		no    []string
	}{
		{"name", notation.ValidName, []string{"a", "A-b_9", "_", "9", long}, []string{"", "-a", "a.b", "a/b", "é", long + "a"}},
		{"version", notation.ValidVersion, []string{"1.0.0", "2.0-rc.1+b5", "v1"}, []string{"", ".1", "+1", "1/2", "1 0", long + "a"}},
	} {
		for _, s := range test.yes {
			if !test.valid(s) {
				t.Errorf("%s %q is refused, want it accepted", test.what, s)
			}
		}
		for _, s := range test.no {
			if test.valid(s) {
				t.Errorf("%s %q is accepted, want it refused", test.what, s)
			}
		}
	}
}

func TestUnits(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"30m": 30 * time.Minute, "1h30m": 90 * time.Minute, "5s": 5 * time.Second, "1.5h": 90 * time.Minute, "500ms": 500 * time.Millisecond,
		"2d": 48 * time.Hour, "0s": 0, "": -1, "30": -1, "m": -1, "1m1h": -1, "1m1m": -1, "-1m": -1, "1 m": -1, "1us": -1, ".5s": -1, "1.s": -1, "1.2.3s": -1,
		"999999999999d": -1,
	} {
		got, ok := notation.ParseDuration(in)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("ParseDuration(%q) = %v, want %v", in, got, want)
		}
	}
	for in, want := range map[string]int64{
		"2GiB": 2 << 30, "512MB": 512e6, "1.5KiB": 1536, "7B": 7, "1kB": 1000, "1TiB": 1 << 40,
		"": -1, "5": -1, "GiB": -1, "2Gi": -1, "2gib": -1, "-1B": -1, "1GiB1B": -1, "99999999PiB": -1,
	} {
		got, ok := notation.ParseSize(in)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("ParseSize(%q) = %d, want %d", in, got, want)
		}
	}
}

func TestUnitsOfFlags(t *testing.T) {
	for in, want := range map[string]time.Duration{"2w": 14 * 24 * time.Hour, "1w12h": 180 * time.Hour, "90d": 2160 * time.Hour, "30": -1, "": -1} {
		if got, err := notation.DurationOf(in); (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("DurationOf(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]int64{"1048576": 1 << 20, "0": 0, "2GiB": 2 << 30, "-1": -1, "2G": -1, "": -1} {
		if got, err := notation.SizeOf(in); (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("SizeOf(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"start", "status", "stop", "fit[lr=0.3,n=10]", "fit[lr=3.0,n=10]", "fit[lr=0.001,n=10]", "fit[lr=30,n=1]"}
	for word, want := range map[string]string{"strat": "start", "STATSU": "status", "start": "", "x": "", "": "", "sto": "stop",
		"fit[lr=3,n=10]": "fit[lr=3.0,n=10]", "fit[lr=1e-3,n=10.0]": "fit[lr=0.001,n=10]", "fit[lr=3.0,n=1]": "fit[lr=3.0,n=10]"} {
		if got := notation.Nearest(word, slices.Values(known)); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
