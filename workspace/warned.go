package workspace

import (
	"fmt"
	"path/filepath"
	"slices"

	"e3/internal/format/manifest"
	"e3/internal/human"
)

// Bounds of the warnings that an event holds.
const (
	maxWarnings = 16
	maxWarning  = 400 // bytes
)

// warned are the warnings of a start as its first event has them: without the folder of the package file, which is this
// machine's.
func warned(list []manifest.Warning) (texts []string) {
	for _, w := range list {
		if w.File != "" {
			w.File = filepath.Base(w.File)
		}
		if text := human.Truncate(w.String(), maxWarning); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if n := len(texts) - maxWarnings; n > 0 {
		texts = append(texts[:maxWarnings], fmt.Sprintf("and %d more", n))
	}
	return texts
}
