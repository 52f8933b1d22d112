//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTightLimits starts e3 under limits around those that it needs. It works, or one sentence names the limit. Only before any code
// of e3 has begun can the Go runtime end the process with its stacks.
func TestTightLimits(t *testing.T) {
	if raceBuild {
		t.Skip("the race detector maps terabytes: run the test without -race")
	}
	for _, limit := range []struct {
		letter          string
		from, til       int // memory in KiB
		tries, inShort  int
		userWithoutMore bool
	}{
		{"v", 700_000, 3_600_000, 60, 10, false},
		{"d", 40_000, 2_400_000, 60, 10, false},
		{"u", 1, 91, 90, 10, true},
	} {
		t.Run("ulimit -"+limit.letter, func(t *testing.T) {
			p := newProject(t, map[string]string{"e3.yaml": limitsPackage})
			if limit.userWithoutMore {
				p.asUserAlone(t)
			}
			p.mustRun("init", ".")
			refused, worked := 0, 0
			tries := limit.tries
			if testing.Short() {
				tries = limit.inShort
			}
			for i := range tries {
				value := limit.from + i*(limit.til-limit.from)/tries
				for _, command := range []string{"version", "status .", "start -f e3.yaml --force"} {
					switch r := p.underLimit(t, limit.letter, value, command); r.code {
					case 0:
						worked++
					case 1:
						refused++
						if !strings.Contains(r.text(), "ulimit -"+limit.letter) {
							t.Errorf("ulimit -%s %d; e3 %s: no sentence names the limit:\n%s", limit.letter, value, command, r.text())
						}
					}
				}
			}
			if refused == 0 || worked == 0 {
				t.Errorf("%d commands were refused and %d worked: the limits tried are not around what e3 needs", refused, worked)
			}
		})
	}
}

const limitsPackage = `e3: 1
name: tight
version: 1.0.0
tasks:
  a:
    matrix: {n: [1, 2, 3, 4, 5, 6]}
    out: a.txt
    run: |
        echo hi > "$out"
`

// asUserAlone gives the project to a user without other processes, since root has no limit on them.
func (p *project) asUserAlone(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root becomes a user without other processes: run the tests as root")
	}
	p.as(40_000 + rand.IntN(10_000))
}

// ourFrames are the lines of a stack trace that show that code of e3, beyond the trial of the limits, had begun.
var ourFrames = regexp.MustCompile(`(?m)^(e3/|main\.).*`)

// underLimit runs e3 under a limit.
func (p *project) underLimit(t *testing.T, letter string, limit int, command string) result {
	t.Helper()
	line := fmt.Sprintf("ulimit -%s %d; exec %s %s", letter, limit, program, command)
	r := p.spawnCommand("bash", "-c", "ulimit -c 0; "+line).wait()
	if frames := ourFrames.FindString(r.stderr); frames != "" {
		t.Errorf("%s: ended with the stacks of its goroutines, in %s\n%.1000s", line, frames, r.stderr)
	}
	return r
}

func (p *project) mustRun(args ...string) {
	p.t.Helper()
	if r := p.e3(args...); r.code != 0 {
		p.t.Fatalf("e3 %q: exit code %d\n%s", args, r.code, r.text())
	}
}
