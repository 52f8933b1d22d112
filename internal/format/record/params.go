package record

import (
	"slices"
	"strings"

	"e3/internal/format/beast2"
)

// A file of parameters is one input, and each value of it that tasks read is another, whose name is that of the file's
// input, a dot and the path of the value in the file: params.train.rate. No other name of an input holds a dot.

// ParamOf splits the name of an input that is one value of a file of parameters; false for any other input.
func ParamOf(input string) (file, path string, ok bool) {
	if _, variable := VariableOf(input); variable || ToolFile(input) {
		return "", "", false
	}
	return strings.Cut(input, ".")
}

// Declares reports whether an input of this name can be set: a declared one, or any value of a declared file of
// parameters.
func (p *Package) Declares(input string) bool {
	file, _, param := ParamOf(input)
	return slices.ContainsFunc(p.Inputs, func(in PackageInput) bool {
		return in.Name == input || param && in.Name == file && in.Source == FromParams
	})
}

// isParams reports whether an input is a file of parameters, or a value of one.
func (in PackageInput) isParams() bool { return in.Source == FromParams }

// linkParamsSchema is that of a link with a file of parameters. Older programs refuse it: they would not see that the
// file has changed.
var linkParamsSchema = newSchema("link", func() beast2.Type { return linkTypeOf(sourceType(FromParams), beast2.F("home", beast2.String)) })

func (l *Link) hasParams() bool {
	return slices.ContainsFunc(l.Inputs, func(in LinkInput) bool { return in.Source == FromParams })
}
