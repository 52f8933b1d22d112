package image

import (
	"fmt"
	"slices"
	"strings"

	"e3/internal/format/digest"
)

// A Lock is the content of e3.lock: it pins the names of images in package files to hashes. It has a line for each name
// and platform, and comments:
//
//	image registry.example/python:3.12 linux/amd64 sha256:…
//
// The digest belongs to the manifest for the platform.
type Lock struct{ lines []string }

// lockHead is the comment of a new file.
const lockHead = "# Which images the names in e3.yaml mean. Commit this file; e3 image update renews it."

// ParseLock reads e3.lock.
func ParseLock(data []byte) (*Lock, error) {
	l := &Lock{}
	n := 0
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		n++
		l.lines = append(l.lines, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 4 || fields[0] != "image" {
			return nil, fmt.Errorf("line %d is not understood: want image NAME PLATFORM DIGEST; after a merge, remove the lines of one side", n)
		}
		if _, err := ParseDigest(fields[3]); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if _, again := l.find(fields[1], fields[2], len(l.lines)-1); again {
			return nil, fmt.Errorf("line %d pins %s for the second time: remove one of the lines", n, fields[1])
		}
	}
	return l, nil
}

// find returns the index of the line of a name, among the first lines.
func (l *Lock) find(name, platform string, first int) (int, bool) {
	for i, line := range l.lines[:first] {
		if f := strings.Fields(line); len(f) == 4 && f[0] == "image" && f[1] == name && f[2] == platform {
			return i, true
		}
	}
	return 0, false
}

// Get returns the hash of the manifest that a name means.
func (l *Lock) Get(name string, p Platform) (digest.Hash, bool) {
	i, ok := l.find(name, p.String(), len(l.lines))
	if !ok {
		return digest.Hash{}, false
	}
	h, err := ParseDigest(strings.Fields(l.lines[i])[3])
	return h, err == nil
}

// Set pins a name.
func (l *Lock) Set(name string, p Platform, h digest.Hash) {
	line := fmt.Sprintf("image %s %s sha256:%s", name, p, h)
	if i, ok := l.find(name, p.String(), len(l.lines)); ok {
		l.lines[i] = line
		return
	}
	if len(l.lines) == 0 {
		l.lines = append(l.lines, lockHead)
	}
	l.lines = append(l.lines, line)
}

// Drop removes the pins of a name for all platforms, and reports whether there were any.
func (l *Lock) Drop(name string) bool {
	before := len(l.lines)
	l.lines = slices.DeleteFunc(l.lines, func(line string) bool {
		f := strings.Fields(line)
		return len(f) == 4 && f[0] == "image" && f[1] == name
	})
	return len(l.lines) < before
}

// Encode returns the text.
func (l *Lock) Encode() []byte {
	if len(l.lines) == 0 {
		return nil
	}
	return []byte(strings.Join(l.lines, "\n") + "\n")
}
