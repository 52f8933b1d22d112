package digest_test

import (
	"strings"
	"testing"

	"e3/internal/format/digest"
)

func TestHashText(t *testing.T) {
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	h := digest.Sum([]byte("abc"))
	if h.String() != abc {
		t.Errorf("Sum(abc) = %s, want %s", h, abc)
	}
	hasher := digest.New()
	hasher.Write([]byte("a"))
	hasher.Write([]byte("bc"))
	if got := hasher.Hash(); got != h {
		t.Errorf("hasher = %s, want %s", got, h)
	}
	parsed, err := digest.Parse(abc)
	if err != nil || parsed != h {
		t.Errorf("Parse = %s, %v, want %s", parsed, err, h)
	}
	var unmarshalled digest.Hash
	text, _ := h.MarshalText()
	if err := unmarshalled.UnmarshalText(text); err != nil || unmarshalled != h {
		t.Errorf("UnmarshalText(%s) = %s, %v", text, unmarshalled, err)
	}
	if h.IsZero() || !(digest.Hash{}).IsZero() {
		t.Error("IsZero is wrong")
	}
	if h.Compare(digest.Hash{}) != 1 || h.Compare(h) != 0 {
		t.Error("Compare is wrong")
	}
}

func TestParseRefuses(t *testing.T) {
	good := strings.Repeat("0a", 32)
	for name, text := range map[string]string{
		"empty":      "",
		"short":      good[:63],
		"long":       good + "0",
		"upper case": strings.ToUpper(good),
		"no hex":     good[:63] + "g",
		"space":      " " + good[:63],
		"high byte":  good[:62] + "é",
	} {
		t.Run(name, func(t *testing.T) {
			if h, err := digest.Parse(text); err == nil || !h.IsZero() {
				t.Errorf("Parse(%q) = %s, %v, want an error", text, h, err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(strings.Repeat("0a", 32))
	f.Fuzz(func(t *testing.T, text string) {
		h, err := digest.Parse(text)
		if err == nil && h.String() != text {
			t.Errorf("Parse(%q).String() = %q", text, h)
		}
	})
}
