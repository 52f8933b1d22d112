package notation_test

import (
	"testing"

	"e3/internal/format/notation"
)

// A share is rounded up, so that 95 % of 3 are all of them, and none of a share that is no whole number is lost to rounding.
func TestNeed(t *testing.T) {
	for _, test := range []struct {
		text    string
		members int
		want    int
		again   string
	}{
		{"any", 5, 1, "1"}, {"any", 0, 0, "1"}, {"0", 5, 0, "0"}, {"3", 5, 3, "3"}, {"3", 2, 2, "3"},
		{"95%", 200, 190, "95%"}, {"95%", 3, 3, "95%"}, {"95 %", 20, 19, "95%"}, {"100%", 7, 7, "100%"}, {"0.5%", 1000, 5, "0.5%"},
		{"33.3333%", 3, 1, "33.3333%"}, {"99.9%", 1_000_000, 999_000, "99.9%"}, {"all", 9, 9, "all"},
	} {
		n, ok := notation.ParseNeed(test.text)
		if got := n.Of(test.members); !ok || got != test.want || n.String() != test.again {
			t.Errorf("%s of %d is %d, %v, and prints as %s; want %d, %s", test.text, test.members, got, ok, n, test.want, test.again)
		}
	}
	for _, text := range []string{"", "most", "-1", "101%", "0%", "1.23456%", "%", "1e3", "x%", ".5%", "99999999999"} {
		if n, ok := notation.ParseNeed(text); ok {
			t.Errorf("%q is taken, as %s", text, n)
		}
	}
}
