// Package testimage makes images for tests, in all forms in which e3 takes them.
package testimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// An Image is made of layers, which are tar archives.
type Image struct {
	Layers [][]byte
	Env    []string
	Arch   string // default: this machine's
	Plain  bool   // the layers are not compressed
}

// Epoch is the time of all files.
var Epoch = time.Unix(1_700_000_000, 0)

// File, Dir, Link and Hard are entries of a layer.
func File(name, content string, mode int64) Entry {
	return Entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: Epoch}, content}
}

// Dir is a folder.
func Dir(name string) Entry {
	return Entry{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: Epoch}, ""}
}

// Link is a symbolic link.
func Link(name, target string) Entry {
	return Entry{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: Epoch}, ""}
}

// Hard is a hard link.
func Hard(name, target string) Entry {
	return Entry{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644, ModTime: Epoch}, ""}
}

// An Entry is a header with its content.
type Entry struct {
	tar.Header
	Content string
}

// Layer makes a tar archive.
func Layer(entries ...Entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			panic(err)
		}
		if _, err := io.WriteString(w, e.Content); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// Sum is the digest of bytes.
func Sum(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Config is the image's configuration.
func (i Image) Config() []byte {
	arch := i.Arch
	if arch == "" {
		arch = runtime.GOARCH
	}
	var ids []string
	for _, layer := range i.Layers {
		ids = append(ids, Sum(layer))
	}
	return encode(map[string]any{
		"architecture": arch, "os": "linux", "config": map[string]any{"Env": i.Env, "Entrypoint": []string{"/nothing"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	})
}

// Blobs are the manifest, and all blobs by their digests, it among them.
func (i Image) Blobs() (manifest []byte, blobs map[string][]byte) {
	config := i.Config()
	blobs = map[string][]byte{Sum(config): config}
	m := map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": descriptor{MediaType: "application/vnd.oci.image.config.v1+json", Digest: Sum(config), Size: len(config)},
	}
	var layers []descriptor
	for _, layer := range i.Layers {
		kind := "application/vnd.oci.image.layer.v1.tar"
		if !i.Plain {
			kind += "+gzip"
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			if _, err := z.Write(layer); err != nil {
				panic(err)
			}
			if err := z.Close(); err != nil {
				panic(err)
			}
			layer = b.Bytes()
		}
		blobs[Sum(layer)] = layer
		layers = append(layers, descriptor{MediaType: kind, Digest: Sum(layer), Size: len(layer)})
	}
	m["layers"] = layers
	manifest = encode(m)
	blobs[Sum(manifest)] = manifest
	return manifest, blobs
}

// Index lists images by their tags.
func Index(images map[string]Image) []byte {
	var list []descriptor
	for _, tag := range slices.Sorted(maps.Keys(images)) {
		m, _ := images[tag].Blobs()
		list = append(list, descriptor{MediaType: "application/vnd.oci.image.manifest.v1+json", Digest: Sum(m), Size: len(m),
			Annotations: map[string]string{"org.opencontainers.image.ref.name": tag}})
	}
	return encode(map[string]any{"schemaVersion": 2, "manifests": list})
}

// files are those of a layout.
func files(images map[string]Image) map[string][]byte {
	all := map[string][]byte{"index.json": Index(images), "oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	for _, i := range images {
		_, blobs := i.Blobs()
		for sum, b := range blobs {
			all["blobs/sha256/"+strings.TrimPrefix(sum, "sha256:")] = b
		}
	}
	return all
}

// WriteLayout writes images by their tags as a folder in the OCI layout, beside what is there.
func WriteLayout(dir string, images map[string]Image) error {
	for name, b := range files(images) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// WriteArchive writes images by their tags as an archive in the OCI layout.
func WriteArchive(path string, images map[string]Image) error {
	return os.WriteFile(path, archive(files(images)), 0o644)
}

// WriteDocker writes an image as docker save did before it knew layouts.
func WriteDocker(path, tag string, i Image) error {
	config := i.Config()
	name := strings.TrimPrefix(Sum(config), "sha256:") + ".json"
	all := map[string][]byte{name: config}
	var layers []string
	for n, layer := range i.Layers {
		at := fmt.Sprintf("%d/layer.tar", n)
		all[at], layers = layer, append(layers, at)
	}
	all["manifest.json"] = encode([]any{map[string]any{"Config": name, "RepoTags": []string{tag}, "Layers": layers}})
	return os.WriteFile(path, archive(all), 0o644)
}

func archive(all map[string][]byte) []byte {
	var entries []Entry
	for _, name := range slices.Sorted(maps.Keys(all)) {
		entries = append(entries, File(name, string(all[name]), 0o644))
	}
	return Layer(entries...)
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// NoBusybox says what to do where an image with a shell cannot be made.
const NoBusybox = "there is no static busybox here: apt-get install busybox-static"

// Busybox is an image with the machine's static busybox: a shell, which is also called bash, and the usual commands. The
// file /etc/motd holds a text of the caller's, and the layer above it removes /etc/gone.
func Busybox(motd string) (Image, error) {
	program, err := busybox()
	if err != nil {
		return Image{}, err
	}
	list, err := exec.Command(program, "--list").Output()
	if err != nil {
		return Image{}, err
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return Image{}, err
	}
	lower := []Entry{Dir("bin/"), File("bin/busybox", string(content), 0o4755), File("bin/bash", "#!/bin/sh\nexec /bin/sh \"$@\"\n", 0o755),
		Dir("etc"), File("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644), File("etc/gone", "", 0o644), Link("var/run", "/run")}
	for name := range strings.FieldsSeq(string(list)) {
		if name != "busybox" && name != "bash" {
			lower = append(lower, Link("bin/"+name, "/bin/busybox"))
		}
	}
	upper := []Entry{File("etc/motd", motd, 0o644), File("etc/.wh.gone", "", 0o644)}
	return Image{Layers: [][]byte{Layer(lower...), Layer(upper...)}, Env: []string{"PATH=/bin", "IN_IMAGE=yes"}}, nil
}

func busybox() (string, error) {
	for _, path := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		f, err := elf.Open(path)
		if err != nil {
			continue
		}
		defer f.Close()
		if !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			return path, nil
		}
	}
	return "", errors.New(NoBusybox)
}

// Registry starts a registry in this process, and returns its host and what ends it.
func Registry() (host string, end func()) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	return strings.TrimPrefix(s.URL, "http://"), s.Close
}

// Push uploads an image to a registry, under "host/name:tag". With an index of several platforms, others have the image of no
// machine.
func Push(reference string, i Image, index bool) error {
	host, rest, _ := strings.Cut(reference, "/")
	name, tag, ok := strings.Cut(rest, ":")
	if !ok {
		return fmt.Errorf("%s has no tag", reference)
	}
	api := "http://" + host + "/v2/" + name
	manifest, blobs := i.Blobs()
	for sum, b := range blobs {
		if sum == Sum(manifest) {
			continue
		}
		if err := upload(api, sum, b); err != nil {
			return err
		}
	}
	const manifestType, indexType = "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json"
	if !index {
		return send(http.MethodPut, api+"/manifests/"+tag, manifestType, manifest)
	}
	if err := send(http.MethodPut, api+"/manifests/"+Sum(manifest), manifestType, manifest); err != nil {
		return err
	}
	return send(http.MethodPut, api+"/manifests/"+tag, indexType, encode(map[string]any{
		"schemaVersion": 2, "mediaType": indexType, "manifests": []any{
			map[string]any{"mediaType": manifestType, "digest": Sum(manifest), "size": len(manifest), "platform": map[string]string{"os": "plan9", "architecture": "mips"}},
			map[string]any{"mediaType": manifestType, "digest": Sum(manifest), "size": len(manifest), "platform": map[string]string{"os": "linux", "architecture": runtime.GOARCH}},
		},
	}))
}

// upload sends a blob in two steps.
func upload(api, sum string, b []byte) error {
	res, err := http.Post(api+"/blobs/uploads/", "", nil)
	if err != nil {
		return err
	}
	res.Body.Close()
	at, err := res.Location()
	if err != nil {
		return err
	}
	q := at.Query()
	q.Set("digest", sum)
	at.RawQuery = q.Encode()
	return send(http.MethodPut, at.String(), "application/octet-stream", b)
}

func send(method, url, mediaType string, b []byte) error {
	req, err := http.NewRequest(method, url, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", mediaType)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		text, _ := io.ReadAll(res.Body)
		return fmt.Errorf("%s %s: %s: %s", method, url, res.Status, text)
	}
	return nil
}
