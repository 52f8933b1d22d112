package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// A graph is generated work: commands that copy small files, the same for e3 and for ninja.
type graph struct {
	shape   string // chain, wide or layered
	tasks   int
	sources int
	shell   bool // commands are scripts; else argv
}

func (g graph) name() string {
	how := "argv"
	if g.shell {
		how = "shell"
	}
	return fmt.Sprintf("%s %d/%d %s", g.shape, g.tasks, g.sources, how)
}

// inputs returns what task i reads: sources are negative, -1 the first.
func (g graph) inputs(i int) (a, b int) {
	source := func(k int) int { return -1 - k%g.sources }
	switch g.shape {
	case "chain":
		if i == 0 {
			return source(0), source(1)
		}
		return i - 1, source(i)
	case "wide":
		return source(2 * i), source(2*i + 1)
	}
	const layers = 10
	width := g.tasks / layers
	layer, k := i/width, i%width
	if layer == 0 || layer >= layers {
		return source(2 * k), source(2*k + 1)
	}
	below := (layer - 1) * width
	return below + k, below + (k+1)%width
}

func node(i int) (name, path string) {
	if i < 0 {
		n := strconv.Itoa(-1 - i)
		return "s" + n, "src/s" + n + ".txt"
	}
	n := strconv.Itoa(i)
	return "t" + n, "out/t" + n
}

// write generates the graph in dir.
func (g graph) write(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "src"), 0o755); err != nil {
		return err
	}
	for i := range g.sources {
		_, path := node(-1 - i)
		if err := os.WriteFile(filepath.Join(dir, path), g.source(i, 0), 0o644); err != nil {
			return err
		}
	}
	if err := create(filepath.Join(dir, "e3.yaml"), g.manifest); err != nil {
		return err
	}
	return create(filepath.Join(dir, "build.ninja"), g.ninja)
}

// source is the content of a source file, which each edition changes.
func (g graph) source(i, edition int) []byte {
	return fmt.Appendf(nil, "source %d edition %d\n%0200d\n", i, edition, i)
}

func create(path string, write func(*bufio.Writer)) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	write(w)
	if err := w.Flush(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func (g graph) manifest(w *bufio.Writer) {
	fmt.Fprint(w, "e3: 1\nname: bench\ninputs:\n")
	for i := range g.sources {
		name, path := node(-1 - i)
		fmt.Fprintf(w, "  %s: {file: %s}\n", name, path)
	}
	fmt.Fprint(w, "tasks:\n")
	run := `[cp, "{a}", "{out}"]`
	if g.shell {
		run = strconv.Quote(`cat "$a" > "$out"`)
	}
	for i := range g.tasks {
		a, b := g.inputs(i)
		name, path := node(i)
		nameA, _ := node(a)
		nameB, _ := node(b)
		fmt.Fprintf(w, "  %s: {in: {a: %s, b: %s}, out: %s, run: %s}\n", name, nameA, nameB, path, run)
	}
}

func (g graph) ninja(w *bufio.Writer) {
	command := "cp $a $out"
	if g.shell {
		command = "cat $a > $out"
	}
	fmt.Fprintf(w, "rule r\n  command = %s\n", command)
	// The same shell and strictness as e3 uses for a script.
	fmt.Fprintf(w, "rule bash\n  command = bash -euo pipefail -c '%s'\n", command)
	for i := range g.tasks {
		a, b := g.inputs(i)
		_, path := node(i)
		_, pathA := node(a)
		_, pathB := node(b)
		rule := "r"
		if g.shell {
			rule = "bash"
		}
		fmt.Fprintf(w, "build %s: %s %s %s\n  a = %s\n", path, rule, pathA, pathB, pathA)
	}
}

func (b *bench) graphs() error {
	if !b.wants("null") && !b.wants("cold") && !b.wants("one changed") && !b.wants("plan") || !have("ninja") {
		return nil
	}
	list := []graph{
		{"layered", 10_000, 2_000, false}, {"layered", 10_000, 2_000, true},
		{"wide", 10_000, 2_000, false}, {"chain", 1_000, 200, false},
	}
	if b.full {
		list = append(list, graph{"layered", 100_000, 20_000, false})
	}
	for k, g := range list {
		if err := b.graph(g, filepath.Join(b.dir, fmt.Sprintf("g%d", k))); err != nil {
			return fmt.Errorf("%s: %w", g.name(), err)
		}
	}
	return nil
}

// graph measures one graph: cold in fresh folders, then unchanged, then with one source changed.
func (b *bench) graph(g graph, dir string) error {
	target := map[bool]float64{false: 0.9, true: 1.3}[g.shell]
	if g.shape == "chain" {
		target = 0
	}
	rounds := min(b.rounds, 3)
	if g.tasks > 10_000 {
		rounds = 1
	}
	var e3, peer []time.Duration
	var memory int64
	var last string
	for r := range rounds {
		last = filepath.Join(dir, strconv.Itoa(r))
		if err := g.write(last); err != nil {
			return err
		}
		t, m, err := timed(last, b.e3, "start", "-f", "e3.yaml", "--progress", "none")
		if err != nil {
			return err
		}
		u, _, err := timed(last, "ninja")
		if err != nil {
			return err
		}
		e3, peer, memory = append(e3, t), append(peer, u), max(memory, m)
	}
	row("cold, "+g.name(), median(e3), median(peer), target, fmt.Sprintf("%d MiB", memory>>10))
	if err := b.unchanged(g, last); err != nil {
		return err
	}
	if err := b.plan(g, last); err != nil {
		return err
	}
	return b.changed(g, last)
}

func (b *bench) unchanged(g graph, dir string) error {
	target := map[int]float64{10_000: 0.5, 100_000: 0.25}[g.tasks]
	var e3, peer []time.Duration
	var memory int64
	for r := range 4 * b.rounds {
		t, m, err := timed(dir, b.e3, "start", "-f", "e3.yaml")
		if err != nil {
			return err
		}
		u, _, err := timed(dir, "ninja")
		if err != nil {
			return err
		}
		if r > 0 { // the first run after a cold one checks every object once
			e3, peer, memory = append(e3, t), append(peer, u), max(memory, m)
		}
	}
	row("null, "+g.name(), median(e3), median(peer), target, fmt.Sprintf("%d MiB", memory>>10))
	return nil
}

// plan measures e3 plan with nothing changed, and with every task forced.
func (b *bench) plan(g graph, dir string) error {
	for _, how := range []string{"unchanged", "forced"} {
		var e3, peer []time.Duration
		for range 2 * b.rounds {
			args := []string{b.e3, "plan", ".", "bench"}
			if how == "forced" {
				args = append(args, "--force")
			}
			t, _, err := timed(dir, args...)
			if err != nil {
				return err
			}
			u, _, err := timed(dir, "ninja", "-n")
			if err != nil {
				return err
			}
			e3, peer = append(e3, t), append(peer, u)
		}
		row("plan "+how+", "+g.name(), median(e3), median(peer), 0, "peer: ninja -n, unchanged")
	}
	return nil
}

func (b *bench) changed(g graph, dir string) error {
	target := 0.0
	if g.tasks == 10_000 {
		target = 1
	}
	_, path := node(-1 - g.sources/2)
	var e3, peer []time.Duration
	for r := range 2 * b.rounds {
		if err := os.WriteFile(filepath.Join(dir, path), g.source(g.sources/2, r+1), 0o644); err != nil {
			return err
		}
		t, _, err := timed(dir, b.e3, "start", "-f", "e3.yaml")
		if err != nil {
			return err
		}
		u, _, err := timed(dir, "ninja")
		if err != nil {
			return err
		}
		e3, peer = append(e3, t), append(peer, u)
	}
	row("one changed, "+g.name(), median(e3), median(peer), target, "")
	return nil
}
