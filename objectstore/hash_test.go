package objectstore_test

import (
	"strings"
	"testing"

	"e3/objectstore"
)

func TestHashText(t *testing.T) {
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	h := objectstore.Sum([]byte("abc"))
	if h.String() != abc {
		t.Errorf("Sum(abc) = %s, want %s", h, abc)
	}
	hasher := objectstore.NewHasher()
	hasher.Write([]byte("a"))
	hasher.Write([]byte("bc"))
	if got := hasher.Hash(); got != h {
		t.Errorf("hasher = %s, want %s", got, h)
	}
	parsed, err := objectstore.ParseHash(abc)
	if err != nil || parsed != h {
		t.Errorf("ParseHash = %s, %v, want %s", parsed, err, h)
	}
	var unmarshalled objectstore.Hash
	text, _ := h.MarshalText()
	if err := unmarshalled.UnmarshalText(text); err != nil || unmarshalled != h {
		t.Errorf("UnmarshalText(%s) = %s, %v", text, unmarshalled, err)
	}
	if h.IsZero() || !(objectstore.Hash{}).IsZero() {
		t.Error("IsZero is wrong")
	}
	if h.Compare(objectstore.Hash{}) != 1 || h.Compare(h) != 0 {
		t.Error("Compare is wrong")
	}
}

func TestParseHashRefuses(t *testing.T) {
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
			if h, err := objectstore.ParseHash(text); err == nil || !h.IsZero() {
				t.Errorf("ParseHash(%q) = %s, %v, want an error", text, h, err)
			}
		})
	}
}

func FuzzParseHash(f *testing.F) {
	f.Add(strings.Repeat("0a", 32))
	f.Fuzz(func(t *testing.T, text string) {
		h, err := objectstore.ParseHash(text)
		if err == nil && h.String() != text {
			t.Errorf("ParseHash(%q).String() = %q", text, h)
		}
	})
}
