package newfile

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"path"
	"strings"

	"go.yaml.in/yaml/v4"

	"e3/internal/format/manifest"
)

// maxHashed bounds the size of a file of which e3 new computes the sum.
const maxHashed = 1 << 30

// isServed reports whether a dependency is a URL that e3 fetches.
func isServed(text string) bool {
	name, ok := manifest.URLFile(text)
	return ok && name != "" && !strings.ContainsAny(text, "{}")
}

// server adds an input for a dependency on a URL. DVC looks whether it has changed, and the command fetches it.
func (s *stage) server(n *yaml.Node, text string) {
	name, _ := manifest.URLFile(text)
	in := s.url(text, path.Join("urls", name), "", "") // the command may write a file of that name
	s.add(Ref{Input: in})
	s.note(n, false, "%s is fetched by e3: the command can read it as $%s in place of fetching it; to hold its content fast, "+
		"take the sha256 that e3 lint proposes after a start: DVC's md5 or etag says nothing of it to others", text, in)
}

// url returns the name of the input for a URL whose file is at a path. It adds a missing input.
func (d *Draft) url(url, at, sum, comment string) string {
	for _, in := range d.Inputs {
		if in.Kind == "url" && in.Path == url && in.At == at {
			return in.Name
		}
	}
	in := &Input{Name: d.name(path.Base(at)), Kind: "url", Path: url, At: at, Sum: sum, Comment: comment}
	d.Inputs = append(d.Inputs, in)
	return in.Name
}

// imported adds an input for a file that dvc import-url has brought into the project: true, unless it was not. Its
// content stays as it is here.
func (s *stage) imported(d stageDep) bool {
	data, err := fs.ReadFile(s.fsys, d.path+".dvc")
	if err != nil {
		return false
	}
	var tracked struct {
		Deps []struct {
			Path string    `yaml:"path"`
			Repo yaml.Node `yaml:"repo"`
		} `yaml:"deps"`
		Outs []struct {
			Path string `yaml:"path"`
			MD5  string `yaml:"md5"`
		} `yaml:"outs"`
	}
	if yaml.Unmarshal(data, &tracked) != nil || len(tracked.Deps) != 1 || len(tracked.Outs) != 1 || tracked.Outs[0].Path != path.Base(d.path) ||
		!tracked.Deps[0].Repo.IsZero() || strings.HasSuffix(tracked.Outs[0].MD5, ".dir") {
		return false
	}
	url := tracked.Deps[0].Path
	if _, ok := manifest.URLFile(url); !ok {
		return false
	}
	sum := s.sumOf(d.path)
	if sum == "" {
		s.note(d.node, false, "%s is not here, or is large, and DVC's md5 or etag does not hold its content fast: take the sha256 that e3 lint proposes after a start", d.path)
	}
	s.add(Ref{Input: s.url(url, d.path, sum, "by dvc import-url")})
	return true
}

// sumOf is the SHA-256 of a file in hex; "" if it is not here, or too large to read it now.
func (c *converter) sumOf(file string) string {
	f, err := c.fsys.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxHashed {
		return ""
	}
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}
