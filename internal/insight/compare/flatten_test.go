package compare

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestFlatten(t *testing.T) {
	got, err := flatten([]byte(`{"a": {"b": [1, {"c": true}], "": null}, "x.y": "z", "e": [], "s": "12"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a.b[0]": "1", "a.b[1].c": "true", `a[""]`: "null", `["x.y"]`: `"z"`, "e": "[]", "s": `"12"`}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for key, text := range want {
		if string(got[key]) != text {
			t.Errorf("%s is %s, want %s", key, got[key], text)
		}
	}
}

func TestFlattenRefuses(t *testing.T) {
	deep := strings.Repeat(`{"`+strings.Repeat("k", 100)+`":`, 60) + `{}` + strings.Repeat("}", 60)
	wide := "[" + strings.Repeat(deep+",", 300) + "0]"
	for _, tt := range []struct{ name, text, want string }{
		{"nothing but space", " ", "not JSON"},
		{"NaN", `{"a": NaN}`, "not JSON"},
		{"two documents", `1 2`, "more than one"},
		{"rubbish behind", `{} x`, "more than one"},
		{"deep", strings.Repeat("[", 100) + "1" + strings.Repeat("]", 100), "deeper"},
		{"very deep", strings.Repeat("[", 1<<20), "not JSON"},
		{"keys without end", "[" + strings.Repeat(wide+",", 10) + "0]", "too large"},
	} {
		if _, err := flatten([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}

func TestCompareMetric(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	for _, tt := range []struct {
		was, is        string
		differs        bool
		delta, percent *float64
	}{
		{"1", "1.0", false, nil, nil},
		{"1e2", "100", false, nil, nil},
		{"1", "3", true, f(2), f(200)},
		{"-4", "-3", true, f(1), f(25)},
		{"0", "0.5", true, f(0.5), nil},
		{"9007199254740993", "9007199254740992", true, f(-1), f(-1.1102230246251565e-14)},
		{"90071992547409930001", "90071992547409930002", true, f(0), f(0)},
		{"-9223372036854775808", "9223372036854775807", true, f(18446744073709551615), f(200)},
		{"1e308", "-1e308", true, nil, nil},
		{"1e999", "1e998", true, nil, nil},
		{`"1"`, "1", true, nil, nil},
		{`"a"`, `"a"`, false, nil, nil},
		{"true", "null", true, nil, nil},
	} {
		m, differs := compareMetric("k", json.RawMessage(tt.was), json.RawMessage(tt.is))
		if differs != tt.differs || !same(m.Delta, tt.delta) || !same(m.Percent, tt.percent) {
			t.Errorf("%s and %s: got %t, %v, %v", tt.was, tt.is, differs, show(m.Delta), show(m.Percent))
		}
		if _, err := json.Marshal(m); err != nil {
			t.Errorf("%s and %s: %v", tt.was, tt.is, err)
		}
	}
}

func same(a, b *float64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

func show(v *float64) any {
	if v == nil {
		return nil
	}
	return *v
}

// Whatever a metrics file holds, the result is an error or values that can be compared.
func FuzzFlatten(f *testing.F) {
	f.Fuzz(func(t *testing.T, a, b []byte) {
		was, err := flatten(a)
		if err != nil {
			return
		}
		is, err := flatten(b)
		if err != nil {
			return
		}
		for key, v := range was {
			m, _ := compareMetric(key, v, is[key])
			if _, err := json.Marshal(m); err != nil {
				t.Errorf("%q: %v", key, err)
			}
		}
	})
}
