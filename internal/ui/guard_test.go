package ui_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/suite"
	"e3/internal/ui"
)

// request sends a request as a test writes it, without the client's habits.
func (b *bench) request(method, path string, body string, change func(*http.Request)) (int, http.Header, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.front.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.AddCookie(b.cookie())
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	change(r)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(data)
}

func TestOnlyThisBrowserIsServed(t *testing.T) {
	b := newBench(t)
	b.run(false, small()...)
	b.serve(ui.Options{})
	host := strings.TrimPrefix(b.front.URL, "http://")
	_, port, _ := net.SplitHostPort(host)
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == "Host" {
					r.Host = pairs[i+1]
				} else {
					r.Header.Set(pairs[i], pairs[i+1])
				}
			}
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*http.Request)
		want   int
	}{
		{"as it should be", header(), 200},
		{"typed by a person", header("Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"), 200},
		{"through ssh -L", header("Host", "localhost:8123"), 200},
		{"by IPv6", header("Host", "[::1]:8123"), 200},
		{"no cookie", func(r *http.Request) { r.Header.Del("Cookie") }, 401},
		{"another cookie", func(r *http.Request) {
			c := *b.cookie()
			c.Value = strings.Repeat("0", len(c.Value))
			r.Header.Del("Cookie")
			r.AddCookie(&c)
		}, 401},
		{"a name that was made to point here", header("Host", "evil.example:"+port), 421},
		{"such a name that begins with an address", header("Host", "127.0.0.1.evil.example:"+port), 421},
		{"another address", header("Host", "10.0.0.1:"+port), 421},
		{"no host", header("Host", ":"+port), 421},
		{"another site", header("Origin", "https://evil.example"), 403},
		{"no site", header("Origin", "null"), 403},
		{"another port of this machine", header("Origin", "http://127.0.0.1:1"), 403},
		{"a script of another site", header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"), 403},
		{"a picture of another port", header("Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"), 403},
		{"a frame of another site", header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"), 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, path := range []string{"/", "/run?w=prod", "/static/ui.js", "/content", "/log"} {
				status, h, text := b.request("GET", path, "", tt.change)
				if tt.want == 200 && (path == "/content" || path == "/log") {
					continue // needs more
				}
				if status != tt.want {
					t.Errorf("%s: %d, want %d: %.200s", path, status, tt.want, text)
				}
				if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe-inline") && path != "/content" {
					t.Errorf("%s: policy %q", path, csp)
				}
				if tt.want != 200 && strings.Contains(text, "train") {
					t.Errorf("%s: a refused request got a page", path)
				}
			}
		})
	}
}

func TestTicketsServeOnce(t *testing.T) {
	b := newBench(t)
	used := 0
	b.serve(ui.Options{Used: func() { used++ }})
	if used != 1 {
		t.Errorf("%d tickets are counted as used, want 1", used)
	}
	login := b.server.Login(ui.Start(""))
	outside := func(r *http.Request) { r.Header.Del("Cookie") }
	if status, h, _ := b.request("HEAD", login, "", outside); status != 405 || h.Get("Set-Cookie") != "" { // as mail and chat programs ask
		t.Errorf("HEAD: %d, want 405 and no cookie", status)
	}
	status, h, _ := b.request("GET", login, "", outside)
	if set := h.Get("Set-Cookie"); status != 200 || !strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Strict") {
		t.Errorf("%d %q, want a strict cookie that no script reads", status, set)
	}
	if status, h, _ := b.request("GET", login, "", outside); status != 401 || h.Get("Set-Cookie") != "" {
		t.Errorf("the ticket's second use: %d, want 401", status)
	}
	for _, next := range []string{"https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"} {
		login := b.server.Login(ui.Start(""))
		login = login[:strings.Index(login, "&next=")] + "&next=" + url.QueryEscape(next)
		if _, _, text := b.request("GET", login, "", outside); strings.Contains(text, "evil") || strings.Contains(text, "alert") {
			t.Errorf("%s is followed: %s", next, text)
		}
	}
	if status, _, _ := b.request("GET", "/login?ticket=", "", outside); status != 401 {
		t.Errorf("an empty ticket: %d, want 401", status)
	}
}

func TestPathsLeadNowhere(t *testing.T) {
	b := newBench(t)
	b.run(false, small()...)
	b.serve(ui.Options{})
	for _, path := range []string{
		"/static/../server.go", "/static/..%2f..%2fserver.go", "/static/%2e%2e/guard.go", "/etc/passwd", "/run/../../x", "/do/start",
		"/content?k=../../x&x=y", "/content?k=" + strings.Repeat("0", 64) + "/" + strings.Repeat("0", 64) + "&x=..%2f..%2fx",
		"/log?k=x&x=y", "/log?k=" + strings.Repeat("0", 64) + "/" + strings.Repeat("0", 64) + "&x=../x",
	} {
		if status, text := b.get(path); status != 404 {
			t.Errorf("%s: %d, want 404: %.100s", path, status, text)
		}
	}
	for _, path := range []string{"/run?w=..%2f..%2fx", "/task?w=prod&t=..%2fx", "/run?w=prod&r=..%2fx", "/task?w=prod&t=clean&view=x", "/run?w=prod&sort=x", "/run?w=prod&page=-1", "/run?w=prod&over=x", "/compare?w=prod&a=:::"} {
		if status, text := b.get(path); status != 404 && status != 400 || strings.Contains(text, "panic") {
			t.Errorf("%s: %d, want 400 or 404: %.300s", path, status, text)
		}
	}
	key, id := link(t, b.page("/task?w=prod&t=clean&view=data"), `/content\?io=out&amp;k=([^&]*)&amp;n=out&amp;x=([0-9a-f-]*)`)
	for _, rel := range []string{"..", "../x", "/etc/passwd", "a/../../x"} {
		if status, _ := b.get("/content?k=" + key + "&x=" + id + "&io=out&n=out&path=" + url.QueryEscape(rel)); status != 400 {
			t.Errorf("path %s: %d, want 400", rel, status)
		}
	}
	if status, text := b.get("/content?k=" + key + "&x=" + id + "&io=out&n=out"); status != 200 || text != "a,b\n1,2\n" {
		t.Errorf("the output itself: %d %q", status, text)
	}
}

// Without --actions there are no forms and no path that does anything.
func TestPagesOnlyShow(t *testing.T) {
	b := newBench(t)
	b.run(false, small()...)
	b.serve(ui.Options{})
	for _, path := range []string{"/", "/run?w=prod", "/task?w=prod&t=broken", "/queue"} {
		if strings.Contains(b.page(path), `method="post"`) {
			t.Errorf("%s has a form that does something", path)
		}
	}
	for _, action := range []string{"start", "cancel", "approve", "pin"} {
		if status, _, _ := b.request("POST", "/do/"+action, "w=prod", func(*http.Request) {}); status != 405 && status != 404 {
			t.Errorf("%s: %d, want none", action, status)
		}
	}
}

// A client with many connections that sends nothing, or slowly, keeps no browser out.
func TestSlowConnectionsAreBounded(t *testing.T) {
	b := newBench(t)
	b.run(false, small()...)
	b.serve(ui.Options{})
	l, err := ui.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- b.server.Serve(b.ctx, l) }()
	n := 10_000
	if testing.Short() {
		n = 700
	}
	var open []net.Conn
	for i := range n {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			break // the system's bound is ours as well
		}
		open = append(open, c)
		fmt.Fprintf(c, "GET /run HTTP/1.1\r\nHost: 127.0.0.1\r\nX-%d: ", i)
		if len(open) > 600 { // descriptors of this process are scarce too; the server has closed the old ones
			_ = open[0].Close()
			open = open[1:]
		}
	}
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+l.Addr().String()+"/run?w=prod", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(b.cookie())
	client := &http.Client{Timeout: suite.Stuck}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatalf("a browser is kept out: %v", err)
	}
	answer.Body.Close()
	if answer.StatusCode != 200 {
		t.Errorf("%d, want 200", answer.StatusCode)
	}
	// The connections that the server has not accepted yet are in the system's queue: the rest ends as it comes to them.
	held := len(open)
	for deadline := time.Now().Add(suite.Stuck); held > 257 && time.Now().Before(deadline); {
		held = 0
		for _, c := range open {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			var one [1]byte
			if _, err := c.Read(one[:]); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				held++
			}
		}
	}
	if held > 257 {
		t.Errorf("%d of %d slow connections are open, want at most 256", held, len(open))
	}
	b.stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
