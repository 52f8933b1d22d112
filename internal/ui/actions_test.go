package ui_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"e3/internal/insight/runview"
	"e3/internal/ui"
)

// deeds notes what pages ask for.
type deeds struct{ list []string }

func (d *deeds) add(words ...string) (string, error) {
	text := strings.Join(words, " ")
	d.list = append(d.list, text)
	if strings.Contains(text, "refuse") {
		return "", errors.New("it is <busy>")
	}
	return "did " + text, nil
}

func (d *deeds) Start(_ context.Context, ws, filter string, force bool) (string, error) {
	if force {
		return d.add("start", ws, filter, "force")
	}
	return d.add("start", ws, filter)
}
func (d *deeds) Cancel(_ context.Context, ws, note string) (string, error) {
	return d.add("cancel", ws, note)
}
func (d *deeds) Retry(_ context.Context, job string) (string, error) { return d.add("retry", job) }
func (d *deeds) Decide(_ context.Context, ws, task string, approve bool, note string) (string, error) {
	if approve {
		return d.add("approve", ws, task, note)
	}
	return d.add("reject", ws, task, note)
}
func (d *deeds) Pin(_ context.Context, execution, note string) (string, error) {
	return d.add("pin", execution, note)
}

// Forms do what they say for this server's own pages, and for no other request.
func TestForms(t *testing.T) {
	b := newBench(t)
	b.run(true, append(small(), made{name: "sign", state: runview.TaskRunning, file: "s"})...)
	did := &deeds{}
	b.serve(ui.Options{Actions: did})
	page := b.page("/run?w=prod")
	m := regexp.MustCompile(`action="/do/cancel"[^>]*><input type="hidden" name="token" value="([0-9a-f]{64})">`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("a live run has no form that cancels it:\n%.3000s", page)
	}
	own := func(r *http.Request) { r.Header.Set("Origin", b.front.URL) }
	form := func(pairs ...string) string {
		v := url.Values{"token": {m[1]}}
		for i := 0; i < len(pairs); i += 2 {
			v.Set(pairs[i], pairs[i+1])
		}
		return v.Encode()
	}
	for _, tt := range []struct{ action, body, want string }{
		{"start", form("w", "prod", "filter", "train*", "force", "1"), "start prod train* force"},
		{"cancel", form("w", "prod", "note", "wrong input"), "cancel prod wrong input"},
		{"approve", form("w", "prod", "t", "sign", "note", "fine"), "approve prod sign fine"},
		{"reject", form("w", "prod", "t", "sign", "note", "no"), "reject prod sign no"},
		{"retry", form("job", "abc"), "retry abc"},
		{"pin", form("x", "0194", "note", "good"), "pin 0194 good"},
	} {
		status, _, text := b.request("POST", "/do/"+tt.action, tt.body, own)
		if status != 200 || !strings.Contains(text, "did "+tt.want) {
			t.Errorf("%s: %d %.300s", tt.action, status, text)
		}
		if !slices.Contains(did.list, tt.want) {
			t.Errorf("%s: %q was done", tt.action, did.list)
		}
	}
	if status, _, text := b.request("POST", "/do/cancel", form("w", "prod", "note", "refuse"), own); status != 409 || !strings.Contains(text, "it is &lt;busy&gt;") {
		t.Errorf("an error: %d %.300s", status, text)
	}
	did.list = nil
	for name, try := range map[string]struct {
		method, path, body string
		change             func(*http.Request)
		want               int
	}{
		"no token":         {"POST", "/do/cancel", "w=prod", own, 403},
		"another token":    {"POST", "/do/cancel", "w=prod&token=" + strings.Repeat("0", 64), own, 403},
		"another origin":   {"POST", "/do/cancel", form("w", "prod"), func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403},
		"another port":     {"POST", "/do/cancel", form("w", "prod"), func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") }, 403},
		"no cookie":        {"POST", "/do/cancel", form("w", "prod"), func(r *http.Request) { own(r); r.Header.Del("Cookie") }, 401},
		"GET":              {"GET", "/do/cancel?" + form("w", "prod"), "", own, 404},
		"token in the URL": {"POST", "/do/cancel?" + form("w", "prod"), "w=prod", own, 403},
		"too long":         {"POST", "/do/cancel", form("w", "prod", "note", strings.Repeat("x", 70_000)), own, 400},
		"no such action":   {"POST", "/do/nothing", form("w", "prod"), own, 404},
	} {
		if status, _, text := b.request(try.method, try.path, try.body, try.change); status != try.want {
			t.Errorf("%s: %d, want %d: %.200s", name, status, try.want, text)
		}
	}
	if len(did.list) > 0 {
		t.Errorf("forged requests did %q", did.list)
	}
}
