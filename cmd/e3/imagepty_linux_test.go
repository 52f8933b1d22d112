package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/testing/testimage"
)

// On a terminal the fetching of an image shows which layer comes and how many bytes of all layers are there. The line is gone in the
// end. Without a terminal, and for an image that is here, nothing of it is shown.
func TestFetchingOnTerminal(t *testing.T) {
	first, second := testimage.Layer(testimage.File("first", strings.Repeat("a", 300_000), 0o644)), testimage.Layer(testimage.File("second", strings.Repeat("b", 100_000), 0o644))
	host, end := testimage.Registry()
	defer end()
	if err := testimage.Push(host+"/box:1", testimage.Image{Layers: [][]byte{first, second}, Plain: true}, false); err != nil {
		t.Fatal(err)
	}
	term := newTerminal(t, 120)
	pass := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, testimage.Sum(second)) {
			pass.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(second)))
		_, _ = w.Write(second[:50_000])
		_ = http.NewResponseController(w).Flush()
		term.await("layer 2 of 2 of image ")
		_, _ = w.Write(second[50_000:])
	}))
	defer front.Close()
	name := strings.TrimPrefix(front.URL, "http://") + "/box:1"
	dir := t.TempDir()
	env := map[string]string{"TERM": "xterm"}
	pull := []string{"image", "pull", dir, name, "-f", filepath.Join(dir, "e3.yaml")}
	if code := term.play(env, "init", dir); code != 0 {
		t.Fatal(term.shown())
	}
	if code := term.play(env, pull...); code != 0 {
		t.Fatal(term.shown())
	}
	text := sequences.ReplaceAllString(term.shown(), "")
	if !strings.Contains(text, "Fetching image "+name+"\r\n") || !strings.Contains(text, "/394.0 KiB] layer 2 of 2 of image "+name) {
		t.Errorf("shown: %q", text)
	}
	for line := range strings.SplitSeq(text, "\r\n") { // the live line is erased by what follows
		if rest := line[strings.LastIndexByte(line, '\r')+1:]; strings.Contains(rest, "layer 2") {
			t.Errorf("%q stays on the terminal", rest)
		}
	}
	again := newTerminal(t, 120)
	if code := again.play(env, pull...); code != 0 {
		t.Error("the image is here, and cannot be pulled")
	}
	if text := again.shown(); strings.Contains(text, "layer 2 of 2 of") || strings.Contains(text, "Fetching") {
		t.Errorf("of an image that is here: %q", text)
	}
}
