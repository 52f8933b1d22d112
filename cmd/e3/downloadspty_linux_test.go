package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// On a terminal the fetching of files from servers shows how many bytes of all of them are there, and which come. The
// line is gone in the end.
func TestDownloadsOnTerminal(t *testing.T) {
	term := newTerminal(t, 120)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Length", "300000")
		_, _ = w.Write(make([]byte, 100_000))
		_ = http.NewResponseController(w).Flush()
		term.await("KiB] http://")
		_, _ = w.Write(make([]byte, 200_000))
	}))
	defer server.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "e3.yaml")
	text := "e3: 1\nname: p\ninputs:\n  a: {url: URL/a.bin}\n  b: {url: URL/b.bin}\ntasks:\n  t: {in: [a, b], out: o, run: cat a.bin b.bin > \"$out\"}\n"
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "URL", server.URL)), 0o644); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"TERM": "xterm"}
	if code := term.play(env, "start", "-f", file); code != 0 {
		t.Fatalf("exit code %d: %s", code, term.shown())
	}
	shown := sequences.ReplaceAllString(term.shown(), "")
	if !strings.Contains(shown, "Fetching "+server.URL+"/a.bin\r\n") || !strings.Contains(shown, "KiB] "+server.URL+"/") {
		t.Errorf("shown: %q", shown)
	}
	for line := range strings.SplitSeq(shown, "\r\n") { // the live line is erased by what follows
		if rest := line[strings.LastIndexByte(line, '\r')+1:]; strings.Contains(rest, "KiB] "+server.URL) {
			t.Errorf("%q stays on the terminal", rest)
		}
	}
}
