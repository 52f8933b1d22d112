package fetch_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"e3/internal/fetch"
)

// lab is a client with what it has taken, by its mark.
type lab struct {
	*testing.T
	*fetch.Client
	folder string
	mu     sync.Mutex
	taken  map[string][]byte
}

func newLab(t *testing.T) *lab {
	l := &lab{T: t, folder: t.TempDir(), taken: map[string][]byte{}}
	l.Client = &fetch.Client{
		Folder: func() (string, error) { return l.folder, nil }, Agent: "e3/test", Pause: time.Millisecond, Recent: -1,
		Getenv: func(name string) string { return map[string]string{"HOME": l.folder}[name] },
	}
	return l
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// get fetches a URL. If want is not "", other content is refused.
func (l *lab) get(url string, known fetch.Known, want string) (fetch.Known, error) {
	has := func(mark string) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, ok := l.taken[mark]
		return ok && (want == "" || want == mark)
	}
	return l.Get(l.Context(), &fetch.Request{URL: url, Known: known, Has: has, Summed: want != "", Take: func(_ context.Context, in *os.Root, name string) (string, error) {
		b, err := in.ReadFile(name)
		if err != nil {
			return "", err
		}
		if want != "" && sum(b) != want {
			return "", fmt.Errorf("%w: %s", fetch.ErrContent, sum(b))
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.taken[sum(b)] = b
		return sum(b), nil
	}})
}

// mustGet fetches content that must be the wanted.
func (l *lab) mustGet(url string, known fetch.Known, want []byte) fetch.Known {
	l.Helper()
	got, err := l.get(url, known, "")
	if err != nil {
		l.Fatal(err)
	}
	if got.Mark != sum(want) {
		l.Fatalf("got content %s, want %s", got.Mark, sum(want))
	}
	return got
}

// left are the bytes in the folder that were fetched in part.
func (l *lab) left() (n int64) {
	parts, err := filepath.Glob(filepath.Join(l.folder, "*.part"))
	if err != nil {
		l.Fatal(err)
	}
	for _, p := range parts {
		info, err := os.Stat(p)
		if err != nil {
			l.Fatal(err)
		}
		n += info.Size()
	}
	return n
}

// host is a web server with one file.
type host struct {
	*httptest.Server
	mu       sync.Mutex
	content  []byte
	tag      string
	cut      int // after so many bytes of a body the connection breaks; 0: it does not
	cuts     int // so often
	requests []*http.Request
	sent     atomic.Int64
}

func newHost(t *testing.T, content []byte, tag string) *host {
	h := &host{content: content, tag: tag}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.Close)
	return h
}

func (h *host) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, r)
	if h.tag != "" {
		w.Header().Set("ETag", h.tag)
	}
	out := &breaking{ResponseWriter: w, h: h, left: -1}
	if h.cuts > 0 && h.cut > 0 {
		h.cuts--
		out.left = h.cut
	}
	http.ServeContent(out, r, "", time.Time{}, bytes.NewReader(h.content))
}

// breaking is a connection that breaks after some bytes.
type breaking struct {
	http.ResponseWriter
	h    *host
	left int
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.left >= 0 && len(p) > b.left {
		p = p[:b.left]
	}
	n, err := b.ResponseWriter.Write(p)
	b.h.sent.Add(int64(n))
	if b.left >= 0 {
		if b.left -= n; b.left == 0 {
			b.ResponseWriter.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	return n, err
}

func (h *host) set(content []byte, tag string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.content, h.tag = content, tag
}

// asked are the requests since the last call.
func (h *host) asked() []*http.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.requests
	h.requests = nil
	return list
}

func data(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = r.Read(b)
	return b
}

func TestUnchangedIsNotFetchedAgain(t *testing.T) {
	for _, tag := range []string{`"v1"`, `W/"v1"`} {
		l, content := newLab(t), data(1<<20, 1)
		h := newHost(t, content, tag)
		known := l.mustGet(h.URL+"/x", fetch.Known{}, content)
		h.sent.Store(0)
		if again := l.mustGet(h.URL+"/x", known, content); again != known {
			t.Errorf("tag %s: known is %v, want %v", tag, again, known)
		}
		if n := h.sent.Load(); n != 0 {
			t.Errorf("tag %s: %d bytes were sent again", tag, n)
		}
		h.set(data(10, 2), `"v2"`)
		l.mustGet(h.URL+"/x", known, data(10, 2))
	}
}

// Where a server does not know conditions, its tag tells.
func TestServerWithoutConditions(t *testing.T) {
	l, asked := newLab(t), 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("ETag", `"same"`)
		_, _ = w.Write([]byte("content"))
	}))
	defer s.Close()
	known := l.mustGet(s.URL, fetch.Known{}, []byte("content"))
	clear(l.taken)
	l.taken[known.Mark] = nil
	if _, err := l.get(s.URL, known, ""); err != nil {
		t.Fatal(err)
	}
	if l.taken[known.Mark] != nil || asked != 2 {
		t.Errorf("the content was taken again, after %d requests", asked)
	}
}

// A fetch goes on where the connection broke, and where an earlier process was stopped.
func TestResumed(t *testing.T) {
	l, content := newLab(t), data(1<<20, 1)
	h := newHost(t, content, `"v1"`)
	h.cut, h.cuts = 300<<10, 3
	l.mustGet(h.URL+"/x", fetch.Known{}, content)
	if n := h.sent.Load(); n != int64(len(content)) {
		t.Errorf("%d bytes were sent for %d", n, len(content))
	}

	h.set(data(1<<20, 2), `"v2"`)
	h.cuts, h.cut = 1, 500<<10
	ctx, cancel := context.WithCancel(t.Context())
	l.Watch = func(string) (func(int64, int64), func()) {
		return func(done, _ int64) {
			if done >= 400<<10 {
				cancel()
			}
		}, func() {}
	}
	_, err := l.Get(ctx, &fetch.Request{URL: h.URL + "/x", Has: func(string) bool { return false }})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled fetch ended with %v", err)
	}
	before := l.left()
	if before < 400<<10 {
		t.Fatalf("%d bytes are kept", before)
	}
	var first int64
	l.Watch = func(string) (func(int64, int64), func()) {
		return func(done, total int64) {
			if first == 0 {
				first = done
			}
			if total != 1<<20 {
				t.Errorf("total is %d", total)
			}
		}, func() {}
	}
	h.cuts = 0
	l.mustGet(h.URL+"/x", fetch.Known{}, data(1<<20, 2))
	if first <= before {
		t.Errorf("progress begins with %d, and %d were here", first, before)
	}
	if l.left() != 0 {
		t.Errorf("%d bytes are left", l.left())
	}
}

// Bytes of two contents are never joined.
func TestChangedWhileFetched(t *testing.T) {
	l := newLab(t)
	h := newHost(t, data(1<<20, 1), `"v1"`)
	h.cut, h.cuts = 300<<10, 1
	l.Pause = 0
	h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			h.set(data(1<<20, 2), `"v2"`)
		}
		h.serve(w, r)
	})
	l.mustGet(h.URL+"/x", fetch.Known{}, data(1<<20, 2))
}

// A shorter file answers 416 to the request for the rest.
func TestShorterWhileFetched(t *testing.T) {
	l := newLab(t)
	h := newHost(t, data(1<<20, 1), `"v1"`)
	h.cut, h.cuts = 300<<10, 1
	h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			h.set(data(1000, 2), `"v1"`) // and the tag lies
		}
		h.serve(w, r)
	})
	l.mustGet(h.URL+"/x", fetch.Known{}, data(1000, 2))
}

// With one tag for two contents, a sum finds the mixture, and the file is fetched from its beginning.
func TestLyingTag(t *testing.T) {
	l, content := newLab(t), data(1<<20, 2)
	h := newHost(t, data(1<<20, 1), `"v"`)
	h.cut, h.cuts = 300<<10, 1
	ranged := 0
	h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			ranged++
			h.set(content, `"v"`)
		}
		h.serve(w, r)
	})
	got, err := l.get(h.URL+"/x", fetch.Known{}, sum(content))
	if err != nil || got.Mark != sum(content) || ranged != 1 {
		t.Fatalf("got %v, %v after %d requests for the rest", got, err, ranged)
	}
	if _, err = l.get(h.URL+"/x", fetch.Known{}, sum([]byte("other"))); !errors.Is(err, fetch.ErrContent) {
		t.Errorf("another sum gives %v", err)
	}
	if l.left() != 0 {
		t.Errorf("%d bytes of refused content are left", l.left())
	}
}

// A body without an end that can be recognised is no input, unless its sum is known.
func TestNoLength(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = buf.WriteString("HTTP/1.0 200 OK\r\n\r\npart")
		_ = buf.Flush()
		c.Close()
	}))
	defer s.Close()
	l := newLab(t)
	if _, err := l.get(s.URL, fetch.Known{}, ""); err == nil || !strings.Contains(err.Error(), "how long the file is") {
		t.Errorf("without a sum: %v", err)
	}
	if got, err := l.get(s.URL, fetch.Known{}, sum([]byte("part"))); err != nil || got.Mark != sum([]byte("part")) {
		t.Errorf("with the sum: %v, %v", got, err)
	}
}

// A body that is shorter or longer than it says is no input.
func TestWrongLength(t *testing.T) {
	for _, says := range []int{5, 50} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, buf, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(buf, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: \"v\"\r\nConnection: close\r\n\r\n0123456789", says)
			_ = buf.Flush()
			c.Close()
		}))
		l := newLab(t)
		l.Attempts = 2
		got, err := l.get(s.URL, fetch.Known{}, "")
		if says > 10 && !errors.Is(err, fetch.ErrUnreachable) {
			t.Errorf("10 of %d bytes: %v, %v", says, got, err)
		}
		if says < 10 && (err != nil || got.Mark != sum([]byte("01234"))) { // HTTP ends it there
			t.Errorf("%d bytes: %v, %v", says, got, err)
		}
		s.Close()
	}
}

func TestRefusals(t *testing.T) {
	l := newLab(t)
	l.Attempts = 2
	for _, c := range []struct {
		code        int
		want        string
		unreachable bool
	}{
		{http.StatusNotFound, "the server says 404 Not Found", false},
		{http.StatusForbidden, "machine 127.0.0.1 login NAME password SECRET", false},
		{http.StatusServiceUnavailable, "the server says 503", true},
	} {
		n := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n++
			w.WriteHeader(c.code)
		}))
		_, err := l.get(s.URL+"/x", fetch.Known{}, "")
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, fetch.ErrUnreachable) != c.unreachable {
			t.Errorf("%d: %v, want %q", c.code, err, c.want)
		}
		if want := map[bool]int{false: 1, true: 2}[c.unreachable]; n != want {
			t.Errorf("%d: %d requests, want %d", c.code, n, want)
		}
		s.Close()
		if _, err := l.get(s.URL+"/x", fetch.Known{}, ""); !errors.Is(err, fetch.ErrUnreachable) {
			t.Errorf("a closed server: %v", err)
		}
	}
}

// A silent server is out of reach.
func TestSilence(t *testing.T) {
	l := newLab(t)
	l.Attempts, l.Patience = 2, 50*time.Millisecond
	for _, begin := range []bool{false, true} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if begin {
				w.Header().Set("Content-Length", "10")
				_, _ = w.Write([]byte("12345"))
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
		}))
		_, err := l.get(s.URL, fetch.Known{}, "")
		if !errors.Is(err, fetch.ErrUnreachable) || !strings.Contains(err.Error(), "silent for 50ms") {
			t.Errorf("begun %v: %v", begin, err)
		}
		s.CloseClientConnections()
		s.Close()
	}
}

// A password goes to the machine that the netrc file names, and to no other to which that redirects.
func TestPasswordStays(t *testing.T) {
	l := newLab(t)
	var elsewhere []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.Header.Get("Authorization"))
		_, _ = w.Write([]byte("secret data"))
	}))
	defer other.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		switch {
		case name != "me" || password != "pass word"[5:]:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/away":
			http.Redirect(w, r, other.URL+"/x", http.StatusFound)
		case r.URL.Path == "/here":
			http.Redirect(w, r, "/x", http.StatusFound)
		default:
			_, _ = w.Write([]byte("own data"))
		}
	}))
	defer first.Close()
	if _, err := l.get(first.URL+"/x", fetch.Known{}, ""); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without a netrc file: %v", err)
	}
	netrc := "default login a password b\nmachine example.org login x password y\n# machine 127.0.0.1 login no password no\n" +
		"machine 127.0.0.1\n\tlogin me\n\tpassword word\nmachine z login q password r\n"
	if err := os.WriteFile(filepath.Join(l.folder, ".netrc"), []byte(netrc), 0o600); err != nil {
		t.Fatal(err)
	}
	l.mustGet(first.URL+"/x", fetch.Known{}, []byte("own data"))
	l.mustGet(first.URL+"/here", fetch.Known{}, []byte("own data"))
	l.mustGet(first.URL+"/away", fetch.Known{}, []byte("secret data"))
	if len(elsewhere) != 1 || elsewhere[0] != "" {
		t.Errorf("the other server got the headers %q", elsewhere)
	}
}

// Of several that want a file at the same time one fetches it.
func TestAtTheSameTime(t *testing.T) {
	content := data(1<<20, 1)
	h := newHost(t, content, `"v1"`)
	l := newLab(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got, err := l.get(h.URL+"/x", fetch.Known{}, ""); err != nil || got.Mark != sum(content) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	all.Wait()
	if n := h.sent.Load(); n != int64(len(content)) {
		t.Errorf("%d bytes were sent for %d", n, len(content))
	}
	if got := l.Known(h.URL + "/x"); got.Mark != sum(content) {
		t.Errorf("this machine knows %v", got)
	}
}

func TestTrim(t *testing.T) {
	l := newLab(t)
	h := newHost(t, data(1<<20, 1), `"v1"`)
	h.cut, h.cuts, l.Attempts = 300<<10, 100, 1
	if _, err := l.get(h.URL+"/x", fetch.Known{}, ""); err == nil || l.left() == 0 {
		t.Fatalf("the fetch ended with %v, and %d bytes are left", err, l.left())
	}
	for _, c := range []struct {
		before time.Time
		dry    bool
		files  int
		left   bool
	}{{time.Now().Add(-time.Hour), false, 0, true}, {time.Now().Add(time.Hour), true, 1, true}, {time.Now().Add(time.Hour), false, 1, false}} {
		files, n, err := fetch.Trim(l.folder, c.before, c.dry)
		if err != nil || files != c.files || (n > 0) != (files > 0) || (l.left() > 0) != c.left {
			t.Errorf("%v: removed %d files with %d bytes (%v), and %d bytes are left", c, files, n, err, l.left())
		}
	}
	if entries, err := os.ReadDir(l.folder); err != nil || len(entries) != 0 {
		t.Errorf("left are %v (%v)", entries, err)
	}
}

// A damaged note, or bytes without one, are begun anew.
func TestDamagedNote(t *testing.T) {
	l, content := newLab(t), data(1<<20, 1)
	h := newHost(t, content, `"v1"`)
	h.cut, h.cuts, l.Attempts = 300<<10, 1, 1
	if _, err := l.get(h.URL+"/x", fetch.Known{}, ""); err == nil {
		t.Fatal("the fetch did not fail")
	}
	notes, err := filepath.Glob(filepath.Join(l.folder, "*.json"))
	if err != nil || len(notes) != 1 {
		t.Fatalf("notes %v (%v)", notes, err)
	}
	if err := os.WriteFile(notes[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.mustGet(h.URL+"/x", fetch.Known{}, content)
}

func TestOffline(t *testing.T) {
	l := newLab(t)
	h := newHost(t, []byte("x"), `"v1"`)
	l.mustGet(h.URL+"/x", fetch.Known{}, []byte("x"))
	h.asked()
	l.Offline = true
	if _, err := l.get(h.URL+"/x", fetch.Known{}, ""); !errors.Is(err, fetch.ErrUnreachable) || len(h.asked()) != 0 {
		t.Errorf("offline: %v", err)
	}
}
