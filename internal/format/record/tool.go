package record

import (
	"slices"
	"strings"
)

// The value of a program's input is a text with a line for each file that decides what the program does: its role, its
// name, and the SHA-256 of its content or "missing". Lines are sorted, and hold no folders.
const (
	ToolProgram     = "program"
	ToolInterpreter = "interpreter"
	ToolLibrary     = "library"
)

// ToolChanges names the files that differ between two such texts, such as "program python3" and "library libc.so.6":
// first the program, then interpreters, then libraries.
func ToolChanges(was, is string) []string {
	var names []string
	add := func(text, other string) {
		lines := strings.Split(other, "\n")
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			i := strings.LastIndexByte(line, ' ')
			if i > 0 && !slices.Contains(lines, line) && !slices.Contains(names, line[:i]) {
				names = append(names, line[:i])
			}
		}
	}
	add(is, was)
	add(was, is)
	rank := func(part string) int {
		role, _, _ := strings.Cut(part, " ")
		return slices.Index([]string{ToolProgram, ToolInterpreter, ToolLibrary}, role)
	}
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	return names
}
