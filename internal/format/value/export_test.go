package value

import "e3/internal/format/beast2"

// JSONWithin is JSON with a smaller bound.
func JSONWithin(v *Value, limit int) ([]byte, error) { return v.json(limit) }

// Fit fits v to a type.
func Fit(t beast2.Type, v any) (any, error) { return fit(t, v, "") }
