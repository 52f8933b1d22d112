package runner

import (
	"bytes"
	"slices"
	"strings"
)

// leastPiece is the least length in bytes at which a part or an encoding of a secret is masked, because shorter ones
// occur by chance. A whole secret is masked whatever its length.
const leastPiece = 8

// Forms returns all texts in which a secret may be printed, whole or by lines: as it is, quoted, or encoded. All
// masking uses these.
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

// pieces are a secret and its lines, with and without surrounding space, if they are long enough.
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
	_, _ = m.Write([]byte(text)) // a buffer accepts everything
	_ = m.Flush()
	return b.String()
}
