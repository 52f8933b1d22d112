package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A tool is a program that the table compares: how it builds a graph that lies in the present folder.
type tool struct {
	name string
	argv []string
}

// sizes are the numbers of tasks between which a line is drawn, as the flag -sizes gives them.
type sizes [2]int

func (s sizes) String() string { return fmt.Sprintf("%d,%d", s[0], s[1]) }

// Set implements flag.Value.
func (s *sizes) Set(text string) error {
	small, large, _ := strings.Cut(text, ",")
	var err error
	for i, one := range []string{small, large} {
		if s[i], err = strconv.Atoi(one); err != nil {
			return fmt.Errorf("want two numbers of tasks, as 1000,10000: %w", err)
		}
	}
	if s[0] < 20 || s[1] <= s[0] {
		return errors.New("want two numbers of tasks, the first at least 20 and the second greater")
	}
	return nil
}

// cost is a time that grows with the number of tasks: a fixed part, and what each task adds.
type cost struct {
	fixed, each time.Duration
}

// line is the cost that gives these times at the two sizes.
func (s sizes) line(small, large time.Duration) cost {
	each := (large - small) / time.Duration(s[1]-s[0])
	return cost{small - each*time.Duration(s[0]), each}
}

func (c cost) String() string {
	return fmt.Sprintf("%.1f ms + %.1f µs a task", float64(c.fixed.Microseconds())/1000, float64(c.each.Nanoseconds())/1000)
}

// table measures e3 and its peers in turn on layered graphs of two sizes: cold, unchanged, and with one source changed. A line
// gives the medians at both sizes, and the fixed part and the slope between them.
//
// No graph is removed before the end: ext4 looks for new inodes among those that were freed in the last minutes.
func (b *bench) table() error {
	if !b.wants("table") {
		return nil
	}
	tools := []tool{{"e3", []string{b.e3, "start", "-f", "e3.yaml", "--progress", "none"}}}
	for _, t := range []tool{{"ninja", []string{"ninja"}}, {"make", []string{"make", "-s", "-j", strconv.Itoa(runtime.NumCPU())}}, {"samu", []string{"samu"}}} {
		if have(t.name) {
			tools = append(tools, t)
		}
	}
	for _, shell := range []bool{false, true} {
		how := map[bool]string{false: "argv", true: "script"}[shell]
		times := map[string]*[2][]time.Duration{} // by what and tool, then size
		for size, n := range b.sizes {
			if err := b.tableRounds(tools, graph{"layered", n, n / 5, shell}, how, func(key string, t time.Duration) {
				if times[key] == nil {
					times[key] = &[2][]time.Duration{}
				}
				times[key][size] = append(times[key][size], t)
			}); err != nil {
				return err
			}
		}
		fmt.Printf("table %-26s %12d %12d tasks\n", how, b.sizes[0], b.sizes[1])
		for _, what := range []string{"cold", "unchanged", "one changed"} {
			for _, t := range tools {
				all := times[what+" "+t.name]
				small, large := median(all[0]), median(all[1])
				fmt.Printf("table %-26s %12s %12s  %s\n", what+", "+how+", "+t.name, show(small), show(large), b.sizes.line(small, large))
			}
		}
	}
	return nil
}

// tableRounds measures each tool in each round in a folder of its own.
func (b *bench) tableRounds(tools []tool, g graph, how string, add func(key string, t time.Duration)) error {
	last := map[string]string{}
	measure := func(what string, t tool) error {
		took, _, err := timed(last[t.name], t.argv...)
		add(what+" "+t.name, took)
		return err
	}
	for r := range b.rounds {
		for _, t := range tools {
			last[t.name] = filepath.Join(b.dir, "table", fmt.Sprintf("%s-%d-%d-%s", how, g.tasks, r, t.name))
			if err := g.write(last[t.name]); err != nil {
				return err
			}
			if err := create(filepath.Join(last[t.name], "Makefile"), g.makefile); err != nil {
				return err
			}
			if err := os.Mkdir(filepath.Join(last[t.name], "out"), 0o777); err != nil {
				return err
			}
			if err := measure("cold", t); err != nil {
				return err
			}
		}
	}
	for _, t := range tools { // the first start after a cold one looks at every object
		if _, _, err := timed(last[t.name], t.argv...); err != nil {
			return err
		}
	}
	for range b.rounds {
		for _, t := range tools {
			if err := measure("unchanged", t); err != nil {
				return err
			}
		}
	}
	for r := range b.rounds {
		for _, t := range tools {
			_, path := node(-1 - g.sources/2)
			if err := os.WriteFile(filepath.Join(last[t.name], path), g.source(g.sources/2, r+1), 0o644); err != nil {
				return err
			}
			if err := measure("one changed", t); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g graph) makefile(w *bufio.Writer) {
	fmt.Fprint(w, "all:")
	for i := range g.tasks {
		_, path := node(i)
		fmt.Fprintf(w, " %s", path)
	}
	fmt.Fprint(w, "\n")
	command := "cp %s %s"
	if g.shell {
		command = "cat %s > %s"
	}
	for i := range g.tasks {
		a, c := g.inputs(i)
		_, path := node(i)
		_, pathA := node(a)
		_, pathC := node(c)
		fmt.Fprintf(w, "%s: %s %s\n\t"+command+"\n", path, pathA, pathC, pathA, path)
	}
}

// build builds the program under test as README.md says, without cgo.
func build(target string) error {
	cmd := exec.Command("go", "build", "-o", target, "e3/cmd/e3")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build e3: %w\n%s", err, out)
	}
	return nil
}
