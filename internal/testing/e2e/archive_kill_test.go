//go:build linux

package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/internal/testing/suite"
)

// archiveGraph makes executions of every kind that travels: hundreds of small ones, directories, large outputs that
// compress and that do not, failures, logs that are kept beside their record.
const archiveGraph = `
e3: 1
name: big
version: 1.0.0
inputs:
  seed: {value: one}
  data: {file: data.bin}
  lib: {dir: lib}
tasks:
  small: {in: [seed], out: s.txt, matrix: {n: [%s]}, run: 'echo "$seed $n" > "$out"'}
  tree: {in: [seed, lib], out: tree/, matrix: {n: [1, 2, 3, 4, 5, 6, 7, 8]}, run: 'for i in {1..12}; do echo "$seed $n $i" > "$out/$i"; done; cp -r "$lib" "$out/lib"'}
  steady: {in: [lib], out: s.txt, matrix: {n: [1, 2, 3, 4, 5, 6, 7, 8, 9]}, run: 'cat "$lib"/* > "$out"; echo "$n" >> "$out"'}
  large: {in: [data, seed], out: large.bin, matrix: {n: [1, 2]}, run: '{ cat "$data"; echo "$seed $n"; } > "$out"'}
  zeros: {in: [seed], out: zeros.bin, run: '{ head -c 3000000 /dev/zero; echo "$seed"; } > "$out"'}
  noisy: {in: [seed], out: n.txt, matrix: {n: [1, 2, 3, 4]}, run: 'seq 1 30000; seq 1 20000 >&2; echo "$seed $n" > "$out"'}
  bad: {in: [seed], out: b.txt, matrix: {n: [1, 2, 3]}, run: 'seq 1 15000 >&2; exit 3'}
  twin: {in: {s: "small[*]"}, out: {l: l.txt, r: r/}, run: 'cat "$s"/* > "$l"; cp "$s"/* "$r"'}
`

// archives are what is killed at: a repository with two runs, and exports of each.
type archives struct {
	t        *testing.T
	p        *project // its repository is not changed any more, but for who exports from it
	files    []string // of the project, beside the repository
	template string   // an idle copy of the repository
	previous string   // the zip of the first run
	current  string   // the zip of the second run
	history  string   // with the executions of both
}

func newArchives(t *testing.T) *archives {
	var items []string
	for i := range 60 {
		items = append(items, fmt.Sprint(i))
	}
	rnd := rand.New(rand.NewPCG(7, 7))
	data := make([]byte, 1_000_000)
	for i := range data {
		data[i] = byte(rnd.Uint32())
	}
	files := map[string]string{"e3.yaml": fmt.Sprintf(archiveGraph, strings.Join(items, ", ")), "data.bin": string(data)}
	for i := range 20 {
		files[fmt.Sprintf("lib/%d", i)] = fmt.Sprintf("file %d\n", i)
	}
	a := &archives{t: t, p: newProjectBelow(t, inMemory(), files), files: slices.Sorted(maps.Keys(files))}
	p := a.p
	p.env = append(p.env, "E3_KEY="+p.path("key")) // exports are signed
	p.must("key", "generate")
	a.previous, a.current, a.history = p.path("previous.zip"), p.path("current.zip"), p.path("history.zip")
	p.start(1, "--durability", "none")
	p.must("workspace", "export", ".", "big", a.previous)
	p.must("set", ".", "big.seed", "two")
	p.start(1, "--durability", "none")
	p.must("workspace", "export", ".", "big", a.current)
	p.must("workspace", "export", ".", "big", a.history, "--all-history")
	p.must("reject", ".", p.of("zeros")[0].ExecutionID)
	p.must("pin", "add", ".", p.of("steady[3]")[0].ExecutionID)
	check(t, p.repository())
	a.template = p.path("template")
	copyTree(t, p.repository(), a.template)
	return a
}

// A killedCommand is a command that is killed, and what must be left and come of it.
type killedCommand struct {
	name string
	// prepare makes a project with the repository in which the command runs.
	prepare func(t *testing.T, a *archives, rnd *rand.Rand) *project
	args    func(p *project, a *archives) []string
	// again are the arguments with which the command is repeated; nil: the same.
	again func(p *project, a *archives) []string
	// left looks at what a kill has left, done at what the repeated command has.
	left, done func(t *testing.T, p *project, m *measuredCommand)
}

// A measuredCommand is a command that was left alone once.
type measuredCommand struct {
	killedCommand
	want map[string]string // what its repository held afterwards
	zip  string            // SHA-256 of what it exported

	mu   sync.Mutex
	took time.Duration // by what is known; others at work make it longer
	hits int           // kills that landed while the command ran
}

// moment is how long after its beginning the command is to be killed: a part of its time.
func (m *measuredCommand) moment(part float64) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(part * float64(m.took))
}

// learn takes in that the command was killed at a moment, or had ended by then after some time.
func (m *measuredCommand) learn(killed bool, at time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !killed:
		m.took = (m.took + at) / 2
	case 10*at > 9*m.took:
		m.took += m.took / 6
	}
	if killed {
		m.hits++
	}
}

func killedCommands() []killedCommand {
	out := func(p *project) string { return p.path("out.zip") }
	// Beside the repository, which several exports share.
	share := func(t *testing.T, a *archives, _ *rand.Rand) *project {
		p := newProjectBelow(t, inMemory(), nil)
		p.env = slices.Clone(a.p.env)
		return p
	}
	empty := func(t *testing.T, a *archives, _ *rand.Rand) *project {
		p := newProjectBelow(t, inMemory(), nil)
		p.must("init")
		return p
	}
	earlier := func(t *testing.T, a *archives, rnd *rand.Rand) *project {
		p := empty(t, a, rnd)
		p.must("workspace", "import", ".", a.previous, "old")
		return p
	}
	copied := func(t *testing.T, a *archives, _ *rand.Rand) *project {
		p := newProjectBelow(t, inMemory(), nil)
		copyTree(t, a.template, p.repository())
		for _, file := range a.files {
			p.write(file, a.p.read(file))
		}
		return p
	}
	littered := func(t *testing.T, a *archives, rnd *rand.Rand) *project {
		p := copied(t, a, rnd)
		addGarbage(t, p.repository(), 2000, rnd)
		addLeftovers(t, p.repository(), 20, rnd)
		return p
	}
	zipOrNone := func(t *testing.T, p *project, m *measuredCommand) {
		if _, err := os.Lstat(out(p)); err == nil {
			m.isWhole(t, out(p))
		}
		noHidden(t, p.dir)
	}
	asAlone := func(t *testing.T, p *project, m *measuredCommand) {
		if d := difference(contents(t, p.repository()), m.want); d != "" {
			t.Errorf("the repository is not as after a command that was left alone:\n  %s", d)
		}
	}
	return []killedCommand{{
		name: "export", prepare: share, left: zipOrNone,
		args: func(p *project, a *archives) []string {
			return []string{"workspace", "export", a.p.repository(), "big", out(p), "--all-history"}
		},
		again: func(p *project, a *archives) []string {
			return []string{"workspace", "export", a.p.repository(), "big", out(p), "--all-history", "--force"}
		},
		done: func(t *testing.T, p *project, m *measuredCommand) { m.isWhole(t, out(p)) },
	}, {
		name: "package import", prepare: empty,
		args: func(p *project, a *archives) []string { return []string{"package", "import", ".", a.history} },
		done: asAlone,
	}, {
		name: "workspace import", prepare: earlier,
		args: func(p *project, a *archives) []string {
			return []string{"workspace", "import", ".", a.history, "new"}
		},
		done: func(t *testing.T, p *project, m *measuredCommand) {
			asAlone(t, p, m)
			r := p.exits(1, "start", ".", "new", "--json") // what has failed is tried again
			if ran := r.ran(t); !slices.Equal(ran, []string{"bad[1]", "bad[2]", "bad[3]"}) {
				t.Errorf("a start of the imported workspace ran %v", ran)
			}
		},
	}, {
		name: "gc", prepare: littered,
		args: func(p *project, a *archives) []string { return []string{"gc", "."} },
		left: func(t *testing.T, p *project, m *measuredCommand) {
			now := contents(t, p.repository())
			for path := range m.want {
				if _, ok := now[path]; !ok {
					t.Errorf("%s was removed", path)
				}
			}
		},
		done: asAlone,
	}, {
		name: "prune", prepare: copied,
		args: func(p *project, a *archives) []string { return []string{"prune", ".", "--keep-last", "1"} },
		done: func(t *testing.T, p *project, m *measuredCommand) {
			now := contents(t, p.repository())
			_, needed := checkBut(t, p.repository(), tolerated{collected: true})
			for path, hash := range now { // what a cut off prune has taken out is kept for a while
				if _, ok := m.want[path]; !ok && strings.HasPrefix(path, "objects/") && needed[hash] {
					delete(now, path)
				}
			}
			if d := difference(now, m.want); d != "" {
				t.Errorf("the repository is not as after a command that was left alone:\n  %s", d)
			}
			if ran := p.exits(1, "start", ".", "big", "--json").ran(t); !slices.Equal(ran, []string{"bad[1]", "bad[2]", "bad[3]"}) {
				t.Errorf("a start after the prune ran %v", ran)
			}
		},
	}}
}

// isWhole demands that a zip is whole and the one that the command writes when it is left alone.
func (m *measuredCommand) isWhole(t *testing.T, path string) {
	t.Helper()
	sum, err := wholeZip(path)
	if err != nil {
		t.Errorf("%v", err)
	} else if sum != m.zip {
		t.Errorf("%s is whole, and not the zip of a command that was left alone", path)
	}
}

// measure leaves the command alone, and remembers what comes of it.
func (a *archives) measure(c killedCommand) *measuredCommand {
	t := a.t
	m := &measuredCommand{killedCommand: c, took: time.Hour}
	for range 2 {
		p := c.prepare(t, a, rand.New(rand.NewPCG(1, 1)))
		began := time.Now()
		p.must(c.args(p, a)...)
		m.took = min(m.took, time.Since(began))
		if c.name == "export" {
			var err error
			if m.zip, err = wholeZip(p.path("out.zip")); err != nil {
				t.Fatal(err)
			}
			continue
		}
		p.must("gc", ".")
		m.want = contents(t, p.repository())
		checkBut(t, p.repository(), tolerated{collected: true})
		c.done(t, p, m)
	}
	return m
}

// TestKillArchives kills what takes results out of a repository and into it, and what cleans it, at many moments. Nothing
// half-made may be seen afterwards, the repository must be whole, and the command must succeed when it is repeated.
func TestKillArchives(t *testing.T) {
	suite.Thorough(t)
	n := killCount(t)
	rnd := random(t)
	a := newArchives(t)
	var all []*measuredCommand
	for _, c := range killedCommands() {
		m := a.measure(c)
		t.Logf("%s takes %v", c.name, m.took.Round(time.Millisecond))
		all = append(all, m)
	}
	order := rnd.Perm((n + len(all) - 1) / len(all))
	t.Run("kill", func(t *testing.T) {
		for i := range n {
			m := all[i%len(all)]
			// Each part of the time gets as many kills, and a bit beyond the end.
			turn := i / len(all)
			part := 1.1 * (float64(order[turn]) + rnd.Float64()) / float64(len(order))
			seed := rnd.Uint64()
			t.Run(fmt.Sprintf("%03d_%s_at_%.0f_percent", i, strings.ReplaceAll(m.name, " ", "_"), 100*part), func(t *testing.T) {
				t.Parallel()
				a.try(t, m, part, turn%2 == 1, rand.New(rand.NewPCG(seed, 0)))
			})
		}
	})
	for i, m := range all {
		share := n / len(all)
		if i < n%len(all) {
			share++
		}
		t.Logf("%s: %d kills, %d of them while it ran, which took %v", m.name, share, m.hits, m.took.Round(time.Millisecond))
		if 2*m.hits < share {
			t.Errorf("%s: of %d kills only %d landed while it ran", m.name, share, m.hits)
		}
	}
	a.p.must("gc", ".")
	checkBut(t, a.p.repository(), tolerated{collected: true})
}

func (a *archives) try(t *testing.T, m *measuredCommand, part float64, group bool, rnd *rand.Rand) {
	p := m.prepare(t, a, rnd)
	root := p.repository()
	if m.name == "export" {
		root = a.p.repository()
	}
	began := time.Now()
	x := p.spawn(m.args(p, a)...)
	killPoint{delay: m.moment(part)}.at(x)
	at := time.Since(began)
	x.kill(group)
	r := x.result()
	m.learn(r.code == -1, at)
	if r.code > 0 {
		t.Fatalf("it was not killed, and failed: exit code %d\n%s", r.code, r.text())
	}

	p.verified(root)
	checkBut(t, root, tolerated{collected: true, killed: true})
	if m.left != nil {
		m.left(t, p, m)
	}
	args := m.args(p, a)
	if m.again != nil {
		args = m.again(p, a)
	}
	if r := p.e3(args...); r.code != 0 {
		t.Fatalf("repeated: exit code %d\n%s\nthe killed one said:\n%s", r.code, r.text(), x.result().text())
	}
	p.verified(root)
	if m.name != "export" { // others are at work there
		p.must("gc", ".")
		checkBut(t, root, tolerated{collected: true})
	}
	m.done(t, p, m)
}

// verified demands that e3 verify finds no fault.
func (p *project) verified(root string) {
	p.t.Helper()
	if r := p.e3("verify", root); r.code != 0 || !strings.Contains(r.stdout, ": no faults\n") {
		p.t.Fatalf("e3 verify: exit code %d\n%s", r.code, r.text())
	}
}
