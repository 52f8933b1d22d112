package manifest

// ParseSplit is Parse with YAML files above the threshold read in pieces of at least so many bytes.
func ParseSplit(name string, data []byte, threshold, piece int64) (*Definition, error) {
	return parse(name, section(data), splitting{threshold, piece})
}

// SplitsCleanly says whether data would be read in pieces, and in how many, without falling back.
func SplitsCleanly(data []byte, piece int64) (pieces int, ok bool) {
	d := newDecoder("test")
	plan, err := planPieces(section(data), piece, d)
	if err != nil {
		return 0, false
	}
	ok, err = readPieces(section(data), piece, d)
	return len(plan), ok && err == nil
}

// ResolvePlain reads a scalar without quotes.
func ResolvePlain(s string) (kind, text, fault string) {
	n, fault := resolvePlain(s)
	return n.kind.String(), n.scalarText(), fault
}
