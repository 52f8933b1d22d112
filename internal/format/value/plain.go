package value

// Plain returns the value as plain data, which Encode turns into the same value if that came from plain data.
func (v *Value) Plain() (any, error) {
	text, err := v.JSON()
	if err != nil {
		return nil, err
	}
	return ParseJSON(text)
}
