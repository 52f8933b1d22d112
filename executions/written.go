package executions

import (
	"io/fs"
	"path/filepath"
	"strings"
)

// writtenInstead lists files that a command left in its folder where a declared output is missing: the path may be
// mistyped. It is "" if there are none, or if they cannot be told from inputs.
func (b *box) writtenInstead() string {
	const most, looked = 5, 2000
	inputs := map[string]bool{".e3-values": true, batchFile: true}
	for i := range b.spec.Inputs {
		inputs[b.spec.Inputs[i].Path] = true
	}
	if inputs["."] { // a pattern at the top: anything may be an input
		return ""
	}
	var files []string
	n := 0
	_ = b.work.Walk(func(rel string, e fs.DirEntry, err error) error {
		rel = filepath.ToSlash(rel)
		switch n++; {
		case err != nil:
			return nil
		case n > looked || len(files) > most:
			return fs.SkipAll
		case inputs[rel] && e.IsDir():
			return fs.SkipDir
		case !inputs[rel] && !e.IsDir():
			files = append(files, rel)
		}
		return nil
	})
	switch {
	case len(files) == 0:
		return ""
	case len(files) > most:
		files[most] = "…"
	}
	return "; the command wrote " + strings.Join(files, ", ")
}
