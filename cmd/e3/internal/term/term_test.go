package term

import (
	"testing"
)

func TestColumns(t *testing.T) {
	for s, want := range map[string]int{"": 0, "abc": 3, "ünï": 3, "日本": 4, "e\u0301": 1, "👍": 2, "…": 1} {
		if got := Columns(s); got != want {
			t.Errorf("columns(%q) = %d, want %d", s, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	for _, test := range []struct {
		in   string
		most int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"abc", 0, ""}, {"abc", -1, ""}, {"日本語", 4, "日…"}, {"日本語", 1, "…"},
	} {
		if got := Truncate(test.in, test.most); got != test.want {
			t.Errorf("clip(%q, %d) = %q, want %q", test.in, test.most, got, test.want)
		}
	}
}

func TestASCII(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string
		want bool
	}{
		{"UTF-8", map[string]string{"LANG": "de_DE.UTF-8"}, false},
		{"utf8", map[string]string{"LC_CTYPE": "C.utf8", "LANG": "C"}, false},
		{"LC_ALL wins", map[string]string{"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, true},
		{"Latin-1", map[string]string{"LANG": "de_DE.ISO-8859-1"}, true},
		{"a dumb terminal", map[string]string{"LANG": "de_DE.UTF-8", "TERM": "dumb"}, true},
		{"NO_COLOR is about colours", map[string]string{"LANG": "de_DE.UTF-8", "NO_COLOR": "1"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := ASCII(func(name string) string { return test.env[name] }); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// A name keeps its end, where the item of a matrix stands, and never takes more columns than it may.
func TestMiddle(t *testing.T) {
	for _, test := range []struct {
		name string
		most int
		want string
	}{
		{"train[lr=0.1]", 20, "train[lr=0.1]"},
		{"a_family_with_a_long_name[lr=0.1]", 20, "a_family_wi…[lr=0.1]"},
		{"fit[model=gradient_boosting,fold=17]", 20, "fit[model=…,fold=17]"},
		{"日本語日本語日本語[1]", 12, "日本語日…[1]"},
		{"train", 2, "t…"},
		{"train", 0, ""},
	} {
		if got := Middle(test.name, test.most); got != test.want || Columns(got) > test.most {
			t.Errorf("Middle(%q, %d) = %q of %d columns, want %q", test.name, test.most, got, Columns(got), test.want)
		}
	}
}
