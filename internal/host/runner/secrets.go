package runner

import (
	"bytes"
	"slices"
	"strings"
)

// leastPiece is the length of a part, or of an encoding, of a secret that is masked, in bytes: shorter ones occur by chance. A secret as
// a whole is masked whatever its length.
const leastPiece = 8

// Forms returns all texts in which a secret is found that was printed whole or by its lines: as it is, quoted, or encoded. MaskWriter
// looks for these. This is the one place that knows them.
func Forms(secrets ...string) []string {
	seen := map[string]bool{}
	var forms []string
	add := func(form string, least int) {
		if len(form) >= least && !seen[form] {
			seen[form] = true
			forms = append(forms, form)
		}
	}
	for _, secret := range secrets {
		add(secret, 1)
		for _, piece := range pieces(secret) {
			add(piece, leastPiece)
			for _, text := range encoded(piece) {
				add(text, leastPiece)
			}
		}
	}
	return forms
}

// pieces are a secret, what of it has no space around it, and its lines, as far as they are long enough.
func pieces(secret string) []string {
	list := []string{secret, strings.TrimSpace(secret)}
	for line := range strings.Lines(secret) {
		line = strings.TrimRight(line, "\r\n")
		list = append(list, line, strings.TrimSpace(line))
	}
	list = slices.DeleteFunc(list, func(s string) bool { return len(s) < leastPiece })
	return list
}

// Mask returns text with every form of the secrets masked.
func Mask(text string, secrets ...string) string {
	forms := Forms(secrets...)
	if len(forms) == 0 {
		return text
	}
	var b bytes.Buffer
	m := NewMaskWriter(&b, forms...)
	_, _ = m.Write([]byte(text)) // a buffer takes everything
	_ = m.Flush()
	return b.String()
}
