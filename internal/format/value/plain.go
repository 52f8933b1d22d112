package value

// Plain returns the value as plain data. If the value came from plain data, Encode turns the result into the same
// value.
func (v *Value) Plain() (any, error) {
	text, err := v.JSON()
	if err != nil {
		return nil, err
	}
	return ParseJSON(text)
}
