package manifest

import "strings"

// tools reads the names of programs, which are looked up on the PATH.
func (d *decoder) tools(where string, n *node) []string {
	return distinct(d, where, n, "program", func(item *node) bool {
		switch {
		case strings.Contains(item.text, "/"):
			d.report.add(item.pos, "declare a program of the project as an input, {file: bin/fit, executable: true}, and name only programs of the PATH here",
				"%s: %q is a path", where, truncate(item.text))
		case !ValidTool(item.text):
			d.report.add(item.pos, "a name is that of a file on the PATH, without spaces and control characters",
				"%s: %q is not the name of a program", where, truncate(item.text))
		default:
			return true
		}
		return false
	})
}

// ValidTool reports whether s may name a program of tools.
func ValidTool(s string) bool {
	return ValidLabelItem(s) && s[0] != '-' && !strings.ContainsAny(s, " ")
}

// devices reads the names of devices that a closed room has.
func (d *decoder) devices(where string, n *node) []string {
	return distinct(d, where, n, "device", func(item *node) bool {
		if item.text != "nvidia" {
			d.report.add(item.pos, "", "%s: %q is not known; want nvidia", where, truncate(item.text))
			return false
		}
		return true
	})
}
