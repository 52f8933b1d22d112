package record

import (
	"slices"
	"strings"
)

// A file of parameters is one input, and each of its values that tasks read is another input. The name of such a value
// is the name of the file's input, a dot and the path of the value in the file: params.train.rate. No other name of an
// input holds a dot.

// ParamOf splits the name of an input if the input is a value of a file of parameters; false for any other input.
func ParamOf(input string) (file, path string, ok bool) {
	if _, variable := VariableOf(input); variable || ToolFile(input) {
		return "", "", false
	}
	return strings.Cut(input, ".")
}

// PartInput is the name of an input that is a file with some values of a file of parameters: the name of the file's
// input, and the paths of the values in braces, as in params.{seed,train.rate}.
func PartInput(file string, only []string) string { return file + ".{" + strings.Join(only, ",") + "}" }

// PartOf splits the name of an input that PartInput has made; false for any other input.
func PartOf(input string) (file string, only []string, ok bool) {
	file, rest, _ := ParamOf(input)
	rest, opened := strings.CutPrefix(rest, "{")
	rest, closed := strings.CutSuffix(rest, "}")
	if !opened || !closed {
		return "", nil, false
	}
	return file, strings.Split(rest, ","), true
}

// Declares reports whether an input of this name can be set: a declared one, or any value of a declared file of
// parameters.
func (p *Package) Declares(input string) bool {
	file, _, param := ParamOf(input)
	return slices.ContainsFunc(p.Inputs, func(in PackageInput) bool {
		return in.Name == input || param && in.Name == file && in.Source == FromParams
	})
}
