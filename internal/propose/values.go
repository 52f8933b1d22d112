package propose

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"e3/internal/format/manifest"
	"e3/internal/format/pattern"
	"e3/internal/format/record"
)

// missesValue finds the name that a mapping of Python, or of a library for settings, lacks.
var missesValue = pattern.Of(`\bKeyError: ['"]([^'"]+)['"]|\bKey ['"]([^'"]+)['"] is not in struct|\bMissing key ([\w-]+)`)

// mostValues bounds the bytes of a file of parameters that is read for a hint.
const mostValues = 1 << 20

// lacksValue tells of a value that a program looks for, and that its file of parameters has in the project only,
// because only leaves it out.
func (h *hinter) lacksValue(lines []string) {
	for _, line := range lines {
		m := missesValue().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		for _, source := range h.run.Sources {
			file, only, ok := record.PartOf(source)
			i := slices.IndexFunc(h.pkg.Inputs, func(in manifest.Input) bool { return in.Name == file })
			if !ok || i < 0 {
				continue
			}
			if p := h.valueNamed(m[1]+m[2]+m[3], h.pkg.Inputs[i].Path, only); p != "" {
				h.hint(fmt.Sprintf("%s has %s, which only: leaves out for %s: add %[2]s to it", h.pkg.Inputs[i].Path, p, h.task.Name))
			}
		}
	}
}

// valueNamed is the path of the outermost value of a name in a file of parameters, if none of this name is in only.
func (h *hinter) valueNamed(name, file string, only []string) (found string) {
	if info, err := fs.Stat(h.project.Files, file); err != nil || !info.Mode().IsRegular() || info.Size() > mostValues {
		return ""
	}
	data, err := fs.ReadFile(h.project.Files, file)
	if err != nil {
		return ""
	}
	whole, err := manifest.ParseValue(file, data)
	if err != nil {
		return ""
	}
	for p := range manifest.ParamPaths(whole) {
		if p != name && !strings.HasSuffix(p, "."+name) {
			continue
		}
		if slices.ContainsFunc(only, func(o string) bool { return p == o || strings.HasPrefix(p, o+".") || strings.HasPrefix(o, p+".") }) {
			return ""
		}
		if found == "" || strings.Count(p, ".") < strings.Count(found, ".") {
			found = p
		}
	}
	return found
}
