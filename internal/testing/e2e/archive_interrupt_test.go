//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/internal/host/atomicfile"
	"e3/internal/testing/suite"
)

// noHidden demands that nothing of a zip that was not finished lies in a folder.
func noHidden(t testing.TB, dir string) {
	t.Helper()
	f, err := atomicfile.CreateUnnamed(dir, 0o600)
	if atomicfile.UnnamedUnsupported(err) {
		return // a kill leaves it there
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	left, err := filepath.Glob(filepath.Join(dir, ".*.e3"))
	if err != nil || len(left) > 0 {
		t.Errorf("%s holds %q, %v", dir, left, err)
	}
}

// TestInterruptArchives sends SIGINT to what takes results elsewhere and what cleans, at many moments: it ends at once with exit
// code 130, says so in JSON too, and leaves nothing but what the next garbage collection takes.
func TestInterruptArchives(t *testing.T) {
	suite.Thorough(t)
	each := 8
	if testing.Short() {
		each = 2
	}
	rnd := random(t)
	a := newArchives(t)
	for _, c := range killedCommands() {
		m := a.measure(c)
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			interrupted := 0
			for i := range each {
				at := time.Duration((float64(i) + rnd.Float64()) / float64(each) * float64(m.took))
				if a.interrupt(t, m, at, rnd) {
					interrupted++
				}
			}
			if interrupted == 0 && !testing.Short() {
				t.Errorf("none of %d was interrupted in %v", each, m.took)
			}
		})
	}
}

func (a *archives) interrupt(t *testing.T, m *measuredCommand, at time.Duration, rnd *rand.Rand) (interrupted bool) {
	p := m.prepare(t, a, rnd)
	root := p.repository()
	if m.name == "export" {
		root = a.p.repository()
	}
	what := fmt.Sprintf("at %v", at)
	x := p.spawn(append(slices.Clone(m.args(p, a)), "--json")...)
	killPoint{delay: at}.at(x)
	syscall.Kill(x.cmd.Process.Pid, syscall.SIGINT) // it may be gone already
	sent := time.Now()
	r := x.wait()
	if took := time.Since(sent); took > 5*time.Second {
		t.Errorf("%s: it went on for %v", what, took)
	}
	type fault struct {
		Type     string `json:"type"`
		ExitCode int    `json:"exitCode"`
	}
	var last fault
	for line := range strings.Lines(r.stdout) {
		last = fault{}
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Errorf("%s: standard output has %q: %v", what, line, err)
		}
	}
	switch r.code {
	case 0:
	case -1: // before it listened
	case 130:
		interrupted = true
		if last != (fault{"error", 130}) || !strings.Contains(r.stderr, "interrupted") {
			t.Errorf("%s: it says\n%s", what, r.text())
		}
	default:
		t.Fatalf("%s: exit code %d\n%s", what, r.code, r.text())
	}
	noHidden(t, p.dir)
	if m.name != "export" && r.code != -1 {
		if left, err := leftovers(root); err != nil && !os.IsNotExist(err) || len(left) > 0 {
			t.Errorf("%s: tmp holds %v, %v", what, left, err)
		}
	}
	p.verified(root)
	if m.left != nil {
		m.left(t, p, m)
	}
	args := m.args(p, a)
	if m.again != nil {
		args = m.again(p, a)
	}
	p.must(args...)
	p.verified(root)
	if m.name != "export" {
		p.must("gc", ".")
	}
	m.done(t, p, m)
	return interrupted
}
