package manifest

import (
	"errors"
	"slices"
)

import "strings"

// ParseSplit is Parse with YAML files above the threshold read in pieces of at least this many bytes.
func ParseSplit(name string, data []byte, threshold, piece int64) (*Definition, error) {
	return parse(name, section(data), splitting{threshold, piece}, nil)
}

// SplitsCleanly reports whether data would be read in pieces without a fallback, and their number.
func SplitsCleanly(data []byte, piece int64) (pieces int, ok bool) {
	d := newDecoder("test", nil)
	plan, err := planPieces(section(data), piece, d)
	if err != nil {
		return 0, false
	}
	ok, err = readPieces(section(data), piece, d)
	return len(plan), ok && err == nil
}

// Faults returns the faults of the families.
func (d *Definition) Faults() error {
	var errs []error
	for i := range d.Families {
		if err := d.Families[i].Fault; err != nil && !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == err.Error() }) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ResolvePlain reads a scalar without quotes.
func ResolvePlain(s string) (kind, text, fault string) {
	n, fault := resolvePlain(s)
	if n.isScalar() {
		text, _ = ScalarText(new(decoder).value("", &n))
	}
	return n.kind.String(), text, fault
}

// Expand replaces {name} in the elements of argv by the text that lookup returns for the name. Other braces, and names
// unknown to lookup, stay as they are, so that JSON, regular expressions and awk programs pass through. Replacement
// text is not expanded again. The names of a task are its inputs, its outputs and the dimensions of its matrix.
func Expand(argv []string, lookup func(name string) (string, bool)) []string {
	expanded := make([]string, len(argv))
	for i, arg := range argv {
		expanded[i] = expandOne(arg, lookup)
	}
	return expanded
}

func expandOne(arg string, lookup func(string) (string, bool)) string {
	var b strings.Builder
	for {
		before, name, after, ok := cutBraces(arg)
		if !ok {
			break
		}
		b.WriteString(before)
		if text, known := lookup(name); known {
			b.WriteString(text)
		} else {
			b.WriteString("{" + name + "}")
		}
		arg = after
	}
	if b.Len() == 0 {
		return arg
	}
	b.WriteString(arg)
	return b.String()
}
