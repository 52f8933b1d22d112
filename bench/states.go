package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// A state is what the last run has left a workspace in, by the tasks that are added to a graph and by a further start.
type state struct {
	name string
	more string
	then []string // a start that follows the first
}

var states = []state{
	{name: "all is well"},
	{name: "an allowed failure", more: "  bad: {in: {a: t0}, out: bad, may_fail: true, run: [\"false\"]}\n"},
	{name: "a failure", more: "  bad: {in: {a: t0}, out: bad, run: [\"false\"]}\n"},
	{name: "a gap", more: "  m: {matrix: {k: [1, 2, 3]}, in: {a: t0}, out: m, run: 'test $k != 3; cat $a > $out'}\n" +
		"  all: {in: {ms: {from: \"m[*]\", need: 2}}, out: all, run: 'ls $ms > $out'}\n"},
	{name: "a task that waits", more: "  ask: {in: {a: t0}, out: ask, approve: true, run: [cp, \"{a}\", \"{out}\"]}\n"},
	{name: "items from a task", more: "  list: {in: {a: t0}, out: list.txt, run: 'printf \"x\\ny\\n\" > $out'}\n" +
		"  item: {matrix: {i: list}, in: {a: t1}, out: item, run: [cp, \"{a}\", \"{out}\"]}\n"},
	{name: "after a filtered run", then: []string{"--filter", "t1"}},
}

// states measures what doing nothing costs in each state: the processor time of status and start beside those of a workspace in which
// all is well. Of a failed task, a start tries the command again. Then the memory of the commands that look at everything.
func (b *bench) states() error {
	if !b.wants("states") {
		return nil
	}
	const tasks = 3000
	var well [2]time.Duration
	for k, s := range states {
		dir := filepath.Join(b.dir, "states", fmt.Sprint(k))
		if err := (graph{"layered", tasks, tasks / 5, false}).write(dir); err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(dir, "e3.yaml"), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(s.more)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return err
		}
		start := []string{"start", "-f", "e3.yaml", "--no-wait", "--progress", "none"}
		for _, args := range [][]string{start, slices.Concat(start, s.then), start} { // the last one makes good what the first run could not know
			if _, _, err := busyFor(dir, b.e3, args...); err != nil {
				return err
			}
		}
		if s.then != nil {
			if _, _, err := busyFor(dir, b.e3, slices.Concat(start, s.then)...); err != nil {
				return err
			}
		}
		for i, args := range [][]string{{"status", ".", "bench"}, start} {
			var took []time.Duration
			for range 2*b.rounds + 1 {
				t, _, err := busyFor(dir, b.e3, args...)
				if err != nil {
					return err
				}
				took = append(took, t)
			}
			if k == 0 {
				well[i] = median(took)
			}
			row("states, "+args[0]+", "+s.name, median(took), well[i], 2, "CPU; peer: all is well")
		}
	}
	return b.memory(filepath.Join(b.dir, "states", "0"), tasks)
}

// memory measures the peak memory of commands about a whole graph.
func (b *bench) memory(dir string, tasks int) error {
	for _, args := range [][]string{{"plan", ".", "bench"}, {"plan", "-f", "e3.yaml"}, {"diff", ".", "bench"}, {"verify", "."}, {"why", ".", "bench"}} {
		t, m, err := busyFor(dir, b.e3, args...)
		if err != nil {
			return err
		}
		row(fmt.Sprintf("states, %s, %d tasks", args[0]+" "+args[1], tasks), t, 0, 0, fmt.Sprintf("CPU; %d MiB", m>>10))
	}
	return nil
}

// busyFor runs a command, which may fail, and returns its processor time and its peak memory in KiB.
func busyFor(dir, program string, args ...string) (time.Duration, int64, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	if err := cmd.Run(); cmd.ProcessState == nil {
		return 0, 0, err
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), peakMemory(cmd.ProcessState), nil
}
