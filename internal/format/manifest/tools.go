package manifest

import "strings"

// tools reads the names of programs, which are looked up on the PATH.
func (d *decoder) tools(where string, n *node) []string {
	if n.kind != listNode {
		d.wrongType(where, n, "a list of programs, such as [python3]")
		return nil
	}
	names := make([]string, 0, len(n.list))
	seen := make(map[string]bool, len(n.list))
	for i := range n.list {
		item := &n.list[i]
		switch {
		case item.kind != stringNode:
			d.wrongType(where, item, "the name of a program")
		case strings.Contains(item.text, "/"):
			d.report.add(item.pos, "declare a program of the project as an input, {file: bin/fit, executable: true}, and name only programs of the PATH here",
				"%s: %q is a path", where, truncate(item.text))
		case !ValidTool(item.text):
			d.report.add(item.pos, "a name is that of a file on the PATH, without spaces and control characters",
				"%s: %q is not the name of a program", where, truncate(item.text))
		case seen[item.text]:
			d.report.add(item.pos, "", "%s: %q is here for the second time", where, truncate(item.text))
		default:
			seen[item.text] = true
			names = append(names, d.intern(item.text))
		}
	}
	return names
}

// ValidTool reports whether s may name a program of tools.
func ValidTool(s string) bool {
	return ValidLabelItem(s) && s[0] != '-' && !strings.ContainsAny(s, " ")
}
