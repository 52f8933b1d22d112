package manifest

import "strings"

// A tool with a slash is a file of the project: an input that the command gets at its path, executable, and in no
// variable. Its input is named "./" and the path, a name that no declared input has.

// ToolFile reports whether an input of this name is a program of the project.
func ToolFile(input string) bool { return strings.HasPrefix(input, "./") }

// toolFiles takes the files of the project out of the names of tools, and adds inputs for them to the task.
func toolFiles(d *decoder, s *Spec, env *Environment, pos Pos, refs []wire) []wire {
	var programs []string
	for _, name := range env.Tools {
		if !strings.Contains(name, "/") {
			programs = append(programs, name)
			continue
		}
		clean, _, _ := cleanPath(name)
		input := d.intern("./" + clean)
		if _, known := d.names[input]; !known {
			yes := true
			d.names[input] = named{index: int32(len(d.def.Inputs)), pos: pos}
			d.def.Inputs = append(d.def.Inputs, Input{Name: input, Kind: FileInput, Path: d.intern(clean), Executable: &yes, Pos: pos})
		}
		s.ToolFiles = append(s.ToolFiles, input)
		refs = append(refs, wire{name: input, source: input, pos: pos})
	}
	env.Tools = programs
	return refs
}

// tools reads the names of programs, which are looked up on the PATH, and the paths of programs of the project.
func (d *decoder) tools(where string, n *node) []string {
	files := map[string]bool{}
	return distinct(d, where, n, "a list of programs", "the name of a program", func(item *node) bool {
		if strings.Contains(item.text, "/") {
			clean, fault, hint := cleanPath(item.text)
			switch {
			case fault != "":
			case clean == "." || strings.HasSuffix(item.text, "/"):
				fault = "the path is that of a folder"
			case files[clean]:
				fault = "the program is named twice"
			}
			files[clean] = true
			if fault != "" {
				d.report.add(item.pos, hint, "%s: %q: %s", where, truncate(item.text), fault)
			}
			return fault == ""
		}
		switch {
		case !ValidTool(item.text):
			d.report.add(item.pos, "write the name of a file on the PATH, without spaces and control characters",
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
func devices(d *decoder, where string, n *node) []string {
	return distinct(d, where, n, "a list of devices", "the name of a device", func(item *node) bool {
		if item.text != "nvidia" {
			d.report.add(item.pos, "", "%s: %q is not known; want nvidia", where, truncate(item.text))
			return false
		}
		return true
	})
}
