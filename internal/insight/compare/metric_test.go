package compare

import (
	"encoding/json"
	"testing"
)

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
		{`"NaN"`, `"NaN"`, false, nil, nil},
		{`"NaN"`, "1", true, nil, nil},
		{"1", `"NaN"`, true, nil, nil},
		{`"Infinity"`, `"-Infinity"`, true, nil, nil},
		{`"Infinity"`, "1", true, nil, nil},
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
