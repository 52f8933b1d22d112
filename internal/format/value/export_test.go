package value

// JSONWithin is JSON with a smaller bound.
func JSONWithin(v *Value, limit int) ([]byte, error) { return v.json(limit) }
