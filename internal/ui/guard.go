package ui

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
)

// A guard decides which requests are served. A request needs a cookie that only this server's tickets give, the name
// of a loopback address as its host, and no other origin. All of these derive from one secret, so that a server that
// is started again with the same secret still serves open tabs.
type guard struct {
	secret []byte

	mu      sync.Mutex
	tickets map[string]bool // tickets that were not used yet
	used    func()          // called after a ticket was used; may be nil
}

// SecretSize is the length of a secret in bytes.
const SecretSize = 32

// NewSecret returns a random secret.
func NewSecret() []byte {
	secret := make([]byte, SecretSize)
	_, _ = rand.Read(secret) // never fails
	return secret
}

func newGuard(secret []byte) *guard { return &guard{secret: secret, tickets: map[string]bool{}} }

// derived is a text that only holders of the secret can make.
func (g *guard) derived(what string) string {
	mac := hmac.New(sha256.New, g.secret)
	mac.Write([]byte("e3 ui " + what))
	return hex.EncodeToString(mac.Sum(nil))
}

// cookieName differs between servers, since browsers send cookies to every port of a host.
func (g *guard) cookieName() string { return "e3_" + g.derived("name")[:12] }

// ticket returns a text that one request may exchange for the cookie.
func (g *guard) ticket() string {
	t := hex.EncodeToString(NewSecret())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tickets[t] = true
	return t
}

// redeem uses a ticket up.
func (g *guard) redeem(ticket string) bool {
	g.mu.Lock()
	ok := g.tickets[ticket]
	delete(g.tickets, ticket)
	tell := g.used
	g.mu.Unlock()
	if ok && tell != nil {
		tell()
	}
	return ok
}

// admitted reports whether a request has the cookie.
func (g *guard) admitted(r *http.Request) bool {
	c, err := r.Cookie(g.cookieName())
	return err == nil && same(c.Value, g.derived("cookie"))
}

// cookie is the cookie that a ticket is exchanged for. It ends with the browser's session.
func (g *guard) cookie() *http.Cookie {
	return &http.Cookie{Name: g.cookieName(), Value: g.derived("cookie"), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

// formToken is a text in the forms of this server's pages that no other page knows.
func (g *guard) formToken() string { return g.derived("form") }

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// isLoopback reports whether a Host header names a loopback address, with any port, since ssh -L forwards from other
// ports. A name that an attacker's server resolves to this machine (DNS rebinding) is no loopback address.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	at, err := netip.ParseAddr(host)
	return err == nil && at.IsLoopback() && at.Zone() == ""
}

// isForeign reports whether another site made a request. A request is not foreign if a person typed the address, or
// followed a link to a page: its answer is shown to that person alone.
func isForeign(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return true
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return r.Method != http.MethodGet || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// policy forbids pages everything except what the server's own files do. There is no inline script or style in any
// page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// foreignPolicy is the policy for content that tasks have made: it is shown and runs nothing.
const foreignPolicy = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"

// harden sets the headers of every answer.
func harden(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "SAMEORIGIN")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers send the page's own forms without their origin
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("X-DNS-Prefetch-Control", "off")
	h.Set("Cache-Control", "no-store")
}

// guarded serves only what the guard lets pass.
func (g *guard) guarded(next http.Handler, login http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		harden(w.Header())
		switch {
		case !isLoopback(r.Host):
			http.Error(w, "this server answers to loopback names only", http.StatusMisdirectedRequest)
		case isForeign(r):
			http.Error(w, "another site has made this request", http.StatusForbidden)
		case r.URL.Path == "/login":
			login(w, r)
		case !g.admitted(r):
			http.Error(w, "Open the address that e3 ui has printed: it lets one browser in, once.", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
