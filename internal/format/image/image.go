// Package image reads the descriptions of OCI images: references, manifests, indexes, configurations, and e3.lock. It
// knows no store and no network.
//
// The name of an image is the SHA-256 of its manifest. The manifest names the configuration and the layers by their
// SHA-256. Objects have such names, too, so manifests, configurations and layers are stored as objects without a
// change.
package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"e3/internal/format/digest"
)

// Bounds of an image, and of its parts that are read into memory.
const (
	MaxManifest = 4 << 20 // bytes; also of an index and of a configuration
	maxLayers   = 4096
)

// Media types of manifests. Of a layer's type only the end counts: it must be one of layerEndings.
const (
	TypeManifest       = "application/vnd.oci.image.manifest.v1+json"
	TypeIndex          = "application/vnd.oci.image.index.v1+json"
	TypeConfig         = "application/vnd.oci.image.config.v1+json"
	TypeLayer          = "application/vnd.oci.image.layer.v1.tar"
	typeDockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	typeDockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
)

// layerEndings are the ends of media types of layers: tar archives, compressed or not.
var layerEndings = []string{".tar", ".tar.gzip", ".tar+gzip", ".tar+zstd"}

// A Descriptor names content.
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *Platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Hash is the name of the object that holds the content.
func (d *Descriptor) Hash() (digest.Hash, error) { return ParseDigest(d.Digest) }

// ParseDigest reads "sha256:" and 64 hex digits, the only kind of digest that names an object.
func ParseDigest(s string) (digest.Hash, error) {
	hex, ok := strings.CutPrefix(s, "sha256:")
	if !ok {
		return digest.Hash{}, fmt.Errorf("digest %.80q does not begin with the word sha256 and a colon", s)
	}
	return digest.Parse(hex)
}

// A Platform is the kind of machine for which an image is made.
type Platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

func (p Platform) String() string {
	if p.Variant != "" {
		return p.OS + "/" + p.Architecture + "/" + p.Variant
	}
	return p.OS + "/" + p.Architecture
}

// A Manifest names the parts of an image for one platform.
type Manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType,omitempty"`
	Config        Descriptor   `json:"config"`
	Layers        []Descriptor `json:"layers"`
}

// Hashes are the names of the configuration and the layers, in this order.
func (m *Manifest) Hashes() []digest.Hash {
	list := make([]digest.Hash, 0, 1+len(m.Layers))
	for _, d := range m.parts() {
		h, _ := d.Hash() // checked by DecodeManifest
		list = append(list, h)
	}
	return list
}

func (m *Manifest) parts() []Descriptor { return append([]Descriptor{m.Config}, m.Layers...) }

// ErrNoManifest is wrapped if bytes are no manifest of an image.
var ErrNoManifest = errors.New("not the manifest of an image")

// DecodeManifest reads the manifest of an image for one platform.
func DecodeManifest(data []byte) (*Manifest, error) {
	fail := func(format string, args ...any) (*Manifest, error) {
		return nil, fmt.Errorf("%w: %s", ErrNoManifest, fmt.Sprintf(format, args...))
	}
	if len(data) > MaxManifest {
		return fail("it has more than %d bytes", MaxManifest)
	}
	m := &Manifest{}
	if err := json.Unmarshal(data, m); err != nil {
		return fail("%v", err)
	}
	switch {
	case m.SchemaVersion != 2:
		return fail("its schema version is %d, not 2", m.SchemaVersion)
	case m.MediaType != "" && m.MediaType != TypeManifest && m.MediaType != typeDockerManifest:
		return fail("its type is %.80q", m.MediaType)
	case len(m.Layers) == 0 || len(m.Layers) > maxLayers:
		return fail("it has %d layers", len(m.Layers))
	}
	for i, d := range m.parts() {
		if _, err := d.Hash(); err != nil {
			return fail("%v", err)
		}
		if d.Size < 0 || i == 0 && d.Size > MaxManifest {
			return fail("%s has %d bytes", d.Digest, d.Size)
		}
		if i > 0 && !isLayer(d.MediaType) {
			return fail("layer %s has the type %.80q, which is no tar archive", d.Digest, d.MediaType)
		}
	}
	return m, nil
}

// IsManifestType reports whether content of a media type is a manifest or an index.
func IsManifestType(mediaType string) bool {
	switch mediaType {
	case TypeManifest, TypeIndex, typeDockerManifest, typeDockerIndex:
		return true
	}
	return false
}

func isLayer(mediaType string) bool {
	for _, ending := range layerEndings {
		if strings.HasSuffix(mediaType, ending) {
			return true
		}
	}
	return false
}

// An Index lists images, for example of several platforms.
type Index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType,omitempty"`
	Manifests     []Descriptor `json:"manifests"`
}

// IsIndex reports whether bytes are an index, and not a manifest.
func IsIndex(data []byte) bool {
	var x struct {
		MediaType string            `json:"mediaType"`
		Manifests []json.RawMessage `json:"manifests"`
		Layers    []json.RawMessage `json:"layers"`
	}
	if len(data) > MaxManifest || json.Unmarshal(data, &x) != nil {
		return false
	}
	return x.MediaType == TypeIndex || x.MediaType == typeDockerIndex || x.MediaType == "" && x.Manifests != nil && x.Layers == nil
}

// DecodeIndex reads an index.
func DecodeIndex(data []byte) (*Index, error) {
	x := &Index{}
	if len(data) > MaxManifest {
		return nil, fmt.Errorf("an index of images has more than %d bytes", MaxManifest)
	}
	if err := json.Unmarshal(data, x); err != nil {
		return nil, fmt.Errorf("index of images: %w", err)
	}
	return x, nil
}

// refName is the annotation by which an index gives an image a tag.
const refName = "org.opencontainers.image.ref.name"

// Choose returns the image for a platform, or the index that has it. Unless tag is "", the image must have this tag.
func (x *Index) Choose(p Platform, tag string) (*Descriptor, error) {
	var fit, any []*Descriptor
	var names, platforms []string
	for i := range x.Manifests {
		d := &x.Manifests[i]
		name := d.Annotations[refName]
		if name != "" {
			names = append(names, name)
		}
		if tag != "" && name != tag && !strings.HasSuffix(name, ":"+tag) {
			continue
		}
		switch {
		case d.Platform == nil || d.Platform.OS == "" || d.Platform.Architecture == "":
			any = append(any, d)
		case d.Platform.OS == p.OS && d.Platform.Architecture == p.Architecture:
			fit = append(fit, d)
		default:
			platforms = append(platforms, d.Platform.String())
		}
	}
	if len(fit) == 0 {
		fit = any
	}
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) > 1 && (tag != "" || x.sameTag(fit)): // variants of a processor: the first is the one to prefer
		return fit[0], nil
	case len(fit) > 1:
		return nil, fmt.Errorf("there are several images, so its tag must follow the path, after a colon: %s", strings.Join(names, ", "))
	case len(platforms) > 0:
		return nil, fmt.Errorf("there is no image for %s, but for %s", p, strings.Join(platforms, ", "))
	case tag != "" && len(names) > 0:
		return nil, fmt.Errorf("there is no image with the tag %s, but with %s", tag, strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("there is no image for %s", p)
}

func (x *Index) sameTag(list []*Descriptor) bool {
	for _, d := range list[1:] {
		if d.Annotations[refName] != list[0].Annotations[refName] {
			return false
		}
	}
	return true
}

// A Config is the part of an image's configuration that e3 uses. It ignores Entrypoint, Cmd, User and WorkingDir: a
// task has its own command and folder.
type Config struct {
	Platform
	Env     []string      // NAME=value
	DiffIDs []digest.Hash // digests of the layers in uncompressed form
}

// DecodeConfig reads the configuration of an image with the given number of layers.
func DecodeConfig(data []byte, layers int) (*Config, error) {
	var x struct {
		Platform
		Config struct{ Env []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if len(data) > MaxManifest {
		return nil, fmt.Errorf("the configuration of an image has more than %d bytes", MaxManifest)
	}
	if err := json.Unmarshal(data, &x); err != nil {
		return nil, fmt.Errorf("configuration of an image: %w", err)
	}
	if len(x.RootFS.DiffIDs) != layers {
		return nil, fmt.Errorf("configuration of an image: it names %d layers, the manifest %d", len(x.RootFS.DiffIDs), layers)
	}
	c := &Config{Platform: x.Platform, Env: x.Config.Env}
	for _, text := range x.RootFS.DiffIDs {
		h, err := ParseDigest(text)
		if err != nil {
			return nil, fmt.Errorf("configuration of an image: %w", err)
		}
		c.DiffIDs = append(c.DiffIDs, h)
	}
	return c, nil
}
