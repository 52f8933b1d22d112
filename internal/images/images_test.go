package images_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"e3/internal/images"
	"e3/internal/images/registry"
	"e3/internal/testing/testimage"
	"e3/objectstore"
)

// store is an object store that protects nothing.
type store struct{ *objectstore.Dir }

func (s store) Refresh(ctx context.Context, h objectstore.Hash) (bool, error) {
	missing, err := s.Missing(ctx, []objectstore.Hash{h})
	return len(missing) == 0, err
}

func newResolver(t *testing.T) (*images.Resolver, string) {
	t.Helper()
	d, err := objectstore.OpenDir(t.TempDir(), objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &images.Resolver{Objects: store{d}, Registry: registry.Client{Agent: "e3-test"}}, t.TempDir()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func some(text string) testimage.Image {
	return testimage.Image{Layers: [][]byte{testimage.Layer(testimage.File("base", "base", 0o644)), testimage.Layer(testimage.File("text", text, 0o644))}}
}

func digestOf(i testimage.Image) string {
	m, _ := i.Blobs()
	return strings.TrimPrefix(testimage.Sum(m), "sha256:")
}

// TestForms: an image is the same one, in whatever form it comes, and all parts are stored under their digests.
func TestForms(t *testing.T) {
	one, other := some("1"), some("2")
	host, end := testimage.Registry()
	defer end()
	must(t, testimage.Push(host+"/one:1", one, false))
	must(t, testimage.Push(host+"/many:1", one, true))
	for ref, write := range map[string]func(base string) error{
		"oci:box": func(base string) error {
			return testimage.WriteLayout(filepath.Join(base, "box"), map[string]testimage.Image{"1": one})
		},
		"oci:box:1": func(base string) error {
			return testimage.WriteLayout(filepath.Join(base, "box"), map[string]testimage.Image{"1": one, "2": other})
		},
		"oci-archive:box.tar:1": func(base string) error {
			return testimage.WriteArchive(filepath.Join(base, "box.tar"), map[string]testimage.Image{"1": one, "2": other})
		},
		host + "/one:1":                       func(string) error { return nil },
		host + "/many:1":                      func(string) error { return nil },
		host + "/one@sha256:" + digestOf(one): func(string) error { return nil },
	} {
		r, base := newResolver(t)
		must(t, write(base))
		got, state, err := r.Resolve(t.Context(), base, []string{ref}, false)
		if err != nil {
			t.Errorf("%s: %v", ref, err)
			continue
		}
		if got[ref] != digestOf(one) {
			t.Errorf("%s is %s, want %s", ref, got[ref], digestOf(one))
		}
		if now := r.State(base, state); now != state {
			t.Errorf("%s: the state is %q, was %q", ref, now, state)
		}
		_, blobs := one.Blobs()
		for sum, want := range blobs {
			h, err := objectstore.ParseHash(strings.TrimPrefix(sum, "sha256:"))
			must(t, err)
			if data, err := objectstore.ReadAll(t.Context(), r.Objects, h, 1<<20); err != nil || !bytes.Equal(data, want) {
				t.Errorf("%s: %s is not stored: %v", ref, sum, err)
			}
		}
	}
}

// TestDocker: what docker save wrote before it knew layouts is one image, each time the same.
func TestDocker(t *testing.T) {
	r, base := newResolver(t)
	must(t, testimage.WriteDocker(filepath.Join(base, "box.tar"), "box:1", some("1")))
	first, _, err := r.Resolve(t.Context(), base, []string{"docker-archive:box.tar"}, true)
	must(t, err)
	second, _, err := r.Resolve(t.Context(), base, []string{"docker-archive:box.tar"}, false)
	must(t, err)
	plain := some("1")
	plain.Plain = true
	if first["docker-archive:box.tar"] != second["docker-archive:box.tar"] || len(first) != 1 {
		t.Errorf("%v, then %v", first, second)
	}
	tagged, _, err := r.Resolve(t.Context(), base, []string{"docker-archive:box.tar:1"}, false)
	if err != nil || tagged["docker-archive:box.tar:1"] != second["docker-archive:box.tar"] {
		t.Errorf("with its tag: %v, %v", tagged, err)
	}
}

// TestRefused: what is not the image that its digests name is not stored.
func TestRefused(t *testing.T) {
	foreign := some("1")
	foreign.Arch = "mips"
	for name, test := range map[string]struct {
		image  testimage.Image
		change func(dir string, blobs map[string][]byte) error
		says   string
	}{
		"another platform": {foreign, nil, "the image is for linux/mips, and this machine is linux/"},
		"a changed layer": {some("1"), func(dir string, blobs map[string][]byte) error {
			return eachLayer(dir, blobs, func(b []byte) []byte { return append(b[:len(b)-1:len(b)-1], 'x') })
		},
			"was cut or changed on the way"},
		"a cut layer": {some("1"), func(dir string, blobs map[string][]byte) error {
			return eachLayer(dir, blobs, func(b []byte) []byte { return b[:10] })
		}, "was cut or changed on the way: 10 of"},
		"a long layer": {some("1"), func(dir string, blobs map[string][]byte) error {
			return eachLayer(dir, blobs, func(b []byte) []byte { return append(b, 'x') })
		}, "has more than its"},
		"no index": {some("1"), func(dir string, _ map[string][]byte) error { return os.Remove(filepath.Join(dir, "index.json")) }, "it is no image"},
		"a link out of the layout": {some("1"), func(dir string, _ map[string][]byte) error {
			if err := os.Rename(filepath.Join(dir, "blobs"), dir+"-blobs"); err != nil {
				return err
			}
			return os.Symlink(dir+"-blobs", filepath.Join(dir, "blobs"))
		}, "escapes from parent"},
	} {
		r, base := newResolver(t)
		dir := filepath.Join(base, "box")
		must(t, testimage.WriteLayout(dir, map[string]testimage.Image{"1": test.image}))
		_, blobs := test.image.Blobs()
		if test.change != nil {
			must(t, test.change(dir, blobs))
		}
		_, _, err := r.Resolve(t.Context(), base, []string{"oci:box"}, false)
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: the error is %v, want %q", name, err, test.says)
		}
	}
}

// eachLayer changes all blobs that are no JSON.
func eachLayer(dir string, blobs map[string][]byte, change func([]byte) []byte) error {
	for sum, b := range blobs {
		if b[0] == '{' {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "blobs/sha256", strings.TrimPrefix(sum, "sha256:")), change(b), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// TestPinned: a tag means the image that it meant first, until an update; what is here needs no request.
func TestPinned(t *testing.T) {
	host, end := testimage.Registry()
	defer end()
	var requests atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		requests.Add(1)
		q.URL.Scheme, q.URL.Host, q.RequestURI = "http", host, ""
		res, err := http.DefaultTransport.RoundTrip(q)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer res.Body.Close()
		for name, values := range res.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(res.StatusCode)
		_, _ = io.Copy(w, res.Body)
	}))
	defer proxy.Close()
	ref := strings.TrimPrefix(proxy.URL, "http://") + "/box:1"
	first, second := some("1"), some("2")
	must(t, testimage.Push(host+"/box:1", first, true))
	r, base := newResolver(t)
	resolve := func(dry bool) (string, error) {
		got, _, err := r.Resolve(t.Context(), base, []string{ref}, dry)
		return got[ref], err
	}
	if _, err := resolve(true); !errors.Is(err, images.ErrDry) || requests.Load() != 0 {
		t.Errorf("a plan: %v, after %d requests", err, requests.Load())
	}
	got, err := resolve(false)
	if err != nil || got != digestOf(first) {
		t.Fatalf("%s, %v", got, err)
	}
	text, err := os.ReadFile(filepath.Join(base, "e3.lock"))
	must(t, err)
	if want := fmt.Sprintf("image %s %s sha256:%s\n", ref, images.Platform(), digestOf(first)); !strings.HasSuffix(string(text), want) {
		t.Errorf("e3.lock has %q", text)
	}
	must(t, testimage.Push(host+"/box:1", second, true))
	requests.Store(0)
	for _, dry := range []bool{false, true} {
		if got, err := resolve(dry); err != nil || got != digestOf(first) || requests.Load() != 0 {
			t.Errorf("the tag moved: %s, %v, after %d requests", got, err, requests.Load())
		}
	}
	list, err := r.Update(t.Context(), base, []string{ref, "oci:box"})
	must(t, err)
	if len(list) != 1 || list[0].Was != images.Digest(digestOf(first)) || list[0].Digest != images.Digest(digestOf(second)) || !list[0].Whole || list[0].Layers != 2 {
		t.Errorf("updated: %+v", list)
	}
	// Another machine gets the pinned image although the tag has moved on.
	must(t, testimage.Push(host+"/box:1", first, true))
	other, _ := newResolver(t)
	if got, _, err := other.Resolve(t.Context(), base, []string{ref}, false); err != nil || got[ref] != digestOf(second) {
		t.Errorf("another machine: %v, %v", got, err)
	}
	proxy.Close()
	if got, err := resolve(false); err != nil || got != digestOf(second) {
		t.Errorf("offline: %s, %v", got, err)
	}
	third, _ := newResolver(t)
	if _, _, err := third.Resolve(t.Context(), base, []string{ref}, false); err == nil || !strings.Contains(err.Error(), "the registry cannot be reached") {
		t.Errorf("offline, and not here: %v", err)
	}
}

// TestProgress: of an image that is fetched, the layers that are missing are counted, and nothing of one that is here.
func TestProgress(t *testing.T) {
	host, end := testimage.Registry()
	defer end()
	ref := host + "/box:1"
	must(t, testimage.Push(ref, some("1"), false))
	r, base := newResolver(t)
	var seen []images.Progress
	var told []string
	ends := 0
	r.Watch = func(reference string, remote bool) (func(images.Progress), func()) {
		told = append(told, fmt.Sprint(reference, " ", remote))
		return func(p images.Progress) { seen = append(seen, p) }, func() { ends++ }
	}
	resolve := func(text string) {
		t.Helper()
		seen = nil
		_, _, err := r.Resolve(t.Context(), base, []string{text}, false)
		must(t, err)
	}
	sizes := func(i testimage.Image, layers ...int) (sum int64) {
		m, _ := i.Blobs()
		var manifest struct{ Layers []struct{ Size int64 } }
		must(t, json.Unmarshal(m, &manifest))
		for _, n := range layers {
			sum += manifest.Layers[n].Size
		}
		return sum
	}
	resolve(ref)
	both := sizes(some("1"), 0, 1)
	if first, last := seen[0], seen[len(seen)-1]; first != (images.Progress{Layer: 1, Layers: 2, Total: both}) || last != (images.Progress{Layer: 2, Layers: 2, Bytes: both, Total: both}) {
		t.Errorf("a new image: from %+v to %+v, of %d bytes", first, last, both)
	}
	for i := range seen[1:] {
		if seen[i+1].Bytes < seen[i].Bytes || seen[i+1].Layer < seen[i].Layer {
			t.Errorf("%+v comes after %+v", seen[i+1], seen[i])
		}
	}
	resolve(ref) // it is here
	if len(seen) > 0 {
		t.Errorf("of what is here: %+v", seen)
	}
	must(t, testimage.WriteLayout(filepath.Join(base, "box"), map[string]testimage.Image{"1": some("2")}))
	resolve("oci:box") // shares the first layer
	if last, want := seen[len(seen)-1], sizes(some("2"), 1); last != (images.Progress{Layer: 1, Layers: 1, Bytes: want, Total: want}) {
		t.Errorf("of an image that shares a layer: %+v, want %d bytes", last, want)
	}
	if want := []string{ref + " true", "oci:box false"}; !slices.Equal(told, want) || ends != len(want) {
		t.Errorf("told of %q, %d ends", told, ends)
	}
}
