//go:build linux

package e2e

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/repo"
	"e3/internal/testing/testserver"
	"e3/objectstore"
)

const offlineManifest = `e3: 1
name: p
version: 1.0.0
inputs: {a: {file: a.txt}}
tasks:
  first: {in: [a], out: o, run: "echo running first >&2; cp a.txt o"}
  second: {in: [first], out: s, run: "cat o o > s"}
`

// TestOffline starts while no server answers: from what this machine knows, saying so. What it made is sent by the next
// start online, and answers other machines.
func TestOffline(t *testing.T) {
	p := newProject(t, map[string]string{"e3.yaml": offlineManifest, "a.txt": "one\n"})
	proxies := [2]*testserver.Proxy{testserver.NewProxy(t, testserver.Minidyn(t)), testserver.NewProxy(t, testserver.GoFakeS3(t))}
	location := "dynamodb://e3-offline/team?lease=2s&settle=1s&endpoint=" + url.QueryEscape(proxies[0].URL())
	p.env = append(p.env, testserver.Env()...)
	env := slices.Clone(p.env)
	machine := func(name string) {
		p.env = append(slices.Clone(env), repo.CacheDirVariable+"="+p.path(name), repo.StateDirVariable+"="+p.path(name+"-state"))
	}
	says := func(code int, want string, args ...string) result {
		t.Helper()
		r := p.e3(args...)
		if r.code != code || !strings.Contains(r.stdout+r.stderr, want) {
			t.Fatalf("e3 %s: exit code %d, want %d and %q\n%s", strings.Join(args, " "), r.code, code, want, r.text())
		}
		return r
	}
	requests := func() (n int) {
		for _, proxy := range proxies {
			for _, calls := range proxy.Calls() {
				n += calls
			}
		}
		return n
	}

	machine("one")
	says(1, "this machine has never reached", "start", location, "dev", "--offline")
	says(0, "", "init", location+"&bucket=e3-offline&s3-endpoint="+url.QueryEscape(proxies[1].URL()))
	says(0, "0 cached, 2 executed", "start", location, "-f", "e3.yaml", "dev")
	for _, proxy := range proxies {
		proxy.Refuse()
		proxy.Reset()
	}

	// Nothing is asked; what is known is a hit, and the rest runs here.
	r := says(0, "2 cached, 0 executed", "start", location, "dev", "--offline")
	for _, want := range []string{"Offline: ", "as this machine last saw it at 20", "the next start that is online sends it"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("it does not say %q:\n%s", want, r.stderr)
		}
	}
	// A hit whose output this machine has no copy of is none.
	h := objectstore.Sum([]byte("one\none\n")).String()
	copies, err := filepath.Glob(p.path("one/*/objects/" + h[:2] + "/" + h[2:]))
	if err != nil || len(copies) != 1 || os.Remove(copies[0]) != nil {
		t.Fatalf("copies of an output: %v, %v", copies, err)
	}
	says(0, "1 cached, 1 executed", "start", location, "dev", "--offline")
	p.write("a.txt", "two\n")
	says(0, "0 cached, 2 executed", "start", location, "dev", "--offline")
	says(0, "2 cached, 0 executed", "start", location, "dev", "--offline")
	p.env = append(p.env, "E3_OFFLINE=true")
	says(0, "Not sent yet: 3 executions made offline, in ", "status", location, "dev")
	says(0, `"unsent":true,"offline":"20`, "status", location, "dev", "--json")
	says(0, "two\ntwo\n", "get", location, "dev.second")
	says(0, "running first", "logs", location, "dev.first", "--stderr")
	if n := requests(); n != 0 {
		t.Errorf("%d requests were made offline", n)
	}

	// Another machine does not know of it until it was sent.
	for _, proxy := range proxies {
		proxy.Restore()
	}
	machine("one")
	says(0, "Not sent yet: 3 executions", "status", location, "dev")
	r = says(0, "2 cached, 0 executed", "start", location, "dev")
	if !strings.Contains(r.stderr, "Sent 3 executions that this machine has made offline") {
		t.Errorf("it does not say what it sent:\n%s", r.stderr)
	}
	if r = says(0, "", "start", location, "dev"); strings.Contains(r.stderr, "Sent") || strings.Contains(r.stderr, "offline") {
		t.Errorf("it is sent again:\n%s", r.stderr)
	}
	machine("two")
	says(0, "two\n", "get", location, "dev.first")
	says(0, "running first", "logs", location, "dev.first", "--stderr")
	says(0, "(offline)", "logs", location, "dev.first", "--list", "--json")

	// A machine that has no copy of an output or an input cannot go on, and says what is missing.
	machine("three")
	p.outside = t.TempDir()
	says(0, "2 cached, 0 executed", "start", location, "dev")
	for _, proxy := range proxies {
		proxy.Refuse()
	}
	says(1, "it cannot be used offline: this machine has no copy of all that this needs, as it never fetched it", "start", location, "dev", "--offline")

	// Records in a folder are always here.
	says(0, "", "init", p.path("here"))
	says(1, "so leave --offline out", "start", p.path("here"), "dev", "--offline")
}
