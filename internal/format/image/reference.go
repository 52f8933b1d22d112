package image

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"e3/internal/format/digest"
)

// A Source is the kind of place from which the image of a reference comes.
type Source uint8

// The sources.
const (
	Registry Source = iota // a name, with a tag or a digest
	Layout                 // oci:PATH[:TAG], a folder
	Archive                // oci-archive:PATH[:TAG] or docker-archive:PATH[:TAG], a tar file
	Stored                 // sha256:HASH, an image that the repository has
)

// A Reference is the value of the key image of a package file.
type Reference struct {
	Source Source
	Text   string // as it was written
	Name   string // in a registry: everything but the digest
	Digest string // in a registry: "sha256:…", or ""
	Path   string // path of a layout or an archive: relative to the package file, or absolute
	Tag    string // tag in a layout or an archive: it chooses one of several images; or ""
	Hash   digest.Hash
}

// maxReference bounds the text of a reference.
const maxReference = 1024

// ParseReference reads a reference. Whether a registry knows the name is not checked.
func ParseReference(s string) (Reference, error) {
	r := Reference{Text: s}
	switch {
	case s == "" || len(s) > maxReference || !utf8.ValidString(s) || strings.ContainsFunc(s, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }):
		return r, fmt.Errorf("%.80q is no reference to an image: it is empty, too long, or has spaces", s)
	case strings.HasPrefix(s, "sha256:"):
		h, err := ParseDigest(s)
		if err != nil {
			return r, err
		}
		r.Source, r.Hash = Stored, h
		return r, nil
	}
	if scheme, rest, ok := strings.Cut(s, ":"); ok {
		switch scheme {
		case "oci":
			r.Source = Layout
		case "oci-archive", "docker-archive":
			r.Source = Archive
		}
		if r.Source != Registry {
			r.Path = rest
			if i := strings.LastIndexByte(rest, ':'); i >= 0 {
				r.Path, r.Tag = rest[:i], rest[i+1:]
			}
			if r.Path == "" || r.Tag == "" && strings.HasSuffix(rest, ":") {
				return r, fmt.Errorf("%.80q names no path: write %s:PATH, or %s:PATH:TAG", s, scheme, scheme)
			}
			r.Path = path.Clean(r.Path)
			return r, nil
		}
	}
	name, sum, pinned := strings.Cut(s, "@")
	r.Name = name
	if pinned {
		if _, err := ParseDigest(sum); err != nil {
			return r, fmt.Errorf("%.80q: %w", s, err)
		}
		r.Digest = sum
	}
	if !validName(name) {
		return r, fmt.Errorf("%.80q is no reference to an image: want name:tag, name@sha256:…, oci:PATH or oci-archive:PATH", s)
	}
	return r, nil
}

// validName reports whether s is [host[:port]/]path[:tag].
func validName(s string) bool {
	for i, part := range strings.Split(s, "/") {
		part = strings.TrimPrefix(part, ":") // if nothing is left, the error below says that it is empty
		if part == "" || strings.Contains(part, "..") {
			return false
		}
		if i > 0 && strings.ToLower(strings.SplitN(part, ":", 2)[0]) != strings.SplitN(part, ":", 2)[0] {
			return false
		}
	}
	return !strings.ContainsFunc(s, func(c rune) bool {
		return !(c < utf8.RuneSelf && (unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("._-/:", c)))
	}) && !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, ":") && !strings.HasPrefix(s, "-")
}
