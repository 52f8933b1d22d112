package manifest

import (
	"path"
	"strings"

	"e3/internal/format/notation"
)

const (
	repositoryDir = ".e3"        // folder of a repository: never linked, globbed or staged
	valuesDir     = ".e3-values" // where values that are not scalars are staged: record.ValuesDir
)

// cleanPath returns the clean form of a path from the file, or its fault. The caller decides the meaning of a trailing
// slash.
func cleanPath(s string) (clean, fault, hint string) {
	switch {
	case s == "":
		return "", "the path is empty", ""
	case s[0] == '/' || len(s) >= 3 && s[1] == ':' && (s[2] == '/' || s[2] == '\\') && notation.IsWord(s[0]):
		return "", "the path is absolute", "paths are relative to the folder of the package file; copy or link the data into it"
	case isScheme().MatchString(s):
		return "", "it is a URL, and not a path in the project", urlHint(s)
	case strings.Contains(s, `\`):
		return "", "the path holds a backslash", "separate folders with /"
	}
	clean = path.Clean(s)
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", "the path leaves the folder of the package file", "move the package file up, or the data into its folder"
	}
	for part := range strings.SplitSeq(clean, "/") {
		if part == repositoryDir || part == valuesDir {
			return "", "the path leads into " + part + ", which is e3's own", ""
		}
	}
	return clean, "", ""
}

// projectPath reads the path of an input that links to the project's files.
func (d *decoder) projectPath(where string, n *node, kind InputKind) string {
	s := n.text
	if n.kind == listNode {
		d.report.add(n.pos, "an input has one; several are a dir: or a glob:, or inputs of their own", "%s: want a string, not a list", where)
		return ""
	}
	if n.kind != stringNode {
		d.wrongType(where, n, "a string")
		return ""
	}
	clean, fault, hint := cleanPath(s)
	switch {
	case fault != "":
	case expands(s):
		fault, hint = "~ and variables are not replaced here", "paths are relative to the folder of the package file; copy or link the data into it"
	case kind == FileInput && strings.HasSuffix(s, "/"):
		fault, hint = "the path ends in /, as a directory's", "use dir:"
	case kind == GlobInput:
		if err := CheckGlob(clean); err != nil {
			fault = err.Error()
			if GlobPrefix(clean) == clean {
				hint = "use file: or dir:"
				if strings.Contains(clean, "{") {
					hint = "a glob takes braces as they are; for items named by what is in braces write files:"
				}
			}
		} else if strings.HasSuffix(s, "/") {
			fault, hint = "the pattern ends in /, but a glob matches files", "add ** for all files below"
		}
	case clean == ".":
		fault, hint = "the path is the folder of the package file itself", "name a folder or file in it, or use glob:"
	}
	if fault != "" {
		d.report.add(n.pos, hint, "%s %q: %s", where, truncate(s), fault)
	}
	return clean
}

// pattern reads the path of an input whose files are items.
func (d matrixReader) pattern(where string, n *node) (*Pattern, string) {
	if n.kind != stringNode {
		d.wrongType(where, n, "a string")
		return nil, ""
	}
	clean, fault, hint := cleanPath(n.text)
	var p *Pattern
	switch {
	case fault != "":
	case strings.HasSuffix(n.text, "/"):
		fault, hint = "the pattern ends in /, but it matches files", "use dir: for the folders in a folder"
	default:
		var err error
		if p, err = ParsePattern(clean); err == nil {
			return p, clean
		}
		fault, hint = err.Error(), "a pattern is like raw/{sample}_{lane}.fq; a name begins with a lower-case letter"
	}
	d.report.add(n.pos, hint, "%s %q: %s", where, truncate(n.text), fault)
	return nil, ""
}

// outputPath reads the path of an output below the task's directory. A path with a slash at its end is a directory.
func (d *decoder) outputPath(where string, n *node) (clean string, kind Kind) {
	s := n.text
	if n.kind != stringNode {
		d.wrongType(where, n, "a string")
		return "", File
	}
	clean, fault, hint := cleanPath(s)
	if fault == "" && clean == "." {
		fault, hint = "an output lies inside the task's directory and cannot be all of it", "name a folder in it"
	} else if fault != "" {
		hint = "outputs lie in the task's own directory"
	}
	if fault != "" {
		d.report.add(n.pos, hint, "%s %q: %s", where, truncate(s), fault)
	}
	if strings.HasSuffix(s, "/") {
		kind = Dir
	}
	return clean, kind
}
