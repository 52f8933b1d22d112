package figures

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Digits are the significant digits of a number that people compare with others.
const Digits = 6

// Short is a value as [Text] has it, but a fraction has at most [Digits] significant digits. The digits before the point stay,
// and a number that has no more digits stays as it was written.
func Short(v json.RawMessage) string {
	text := Text(v)
	f, ok := Number(v)
	if !ok || !strings.ContainsAny(text, ".eE") || math.IsInf(f, 0) || math.IsNaN(f) {
		return text
	}
	mantissa, _, _ := strings.Cut(strings.ToLower(text), "e")
	if len(strings.TrimLeft(strings.Replace(mantissa, ".", "", 1), "-0")) <= Digits {
		return text
	}
	return ShortNumber(f)
}

// ShortNumber is a number with at most [Digits] significant digits, apart from those before the point.
func ShortNumber(f float64) string {
	if a := math.Abs(f); a >= 1e6 && a < 1e15 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	text := strconv.FormatFloat(f, 'g', Digits, 64)
	mantissa, exponent, found := strings.Cut(text, "e")
	if !found {
		return text
	}
	sign := strings.TrimPrefix(exponent[:1], "+")
	return mantissa + "e" + sign + strings.TrimLeft(exponent[1:], "0")
}

// Pads are the columns that must follow each of some texts of numbers, set flush right, so that their points stand below each
// other. A text that is no finite number needs none.
func Pads(texts []string) []int {
	behind, most := make([]int, len(texts)), 0
	for i, s := range texts {
		behind[i] = -1
		if f, err := strconv.ParseFloat(s, 64); err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			continue
		}
		behind[i] = 0
		if at := strings.IndexAny(s, ".eE"); at >= 0 {
			behind[i] = utf8.RuneCountInString(s[at:])
		}
		most = max(most, behind[i])
	}
	pads := make([]int, len(texts))
	for i, n := range behind {
		if n >= 0 {
			pads[i] = most - n
		}
	}
	return pads
}
