package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// questions measures what questions about a graph cost at both sizes: the processor time at each, the ratio of the two, and the
// memory at the larger one. The runs that are compared differ in one task. There is no peer: a question that costs what it shows has the
// ratio 1, one that looks at everything that of the sizes.
func (b *bench) questions() error {
	if !b.wants("questions") {
		return nil
	}
	var dirs [2]string
	for k, n := range b.sizes {
		dirs[k] = filepath.Join(b.dir, "questions", fmt.Sprint(n))
		g := graph{"layered", n, n / 5, false}
		if err := g.write(dirs[k]); err != nil {
			return err
		}
		for edition := range 3 { // the third run changes nothing
			if edition == 1 {
				_, path := node(-1)
				if err := os.WriteFile(filepath.Join(dirs[k], path), g.source(0, edition), 0o644); err != nil {
					return err
				}
			}
			if _, _, err := timed(dirs[k], b.e3, "start", "-f", "e3.yaml", "--progress", "none"); err != nil {
				return err
			}
		}
	}
	for _, q := range []struct {
		name string
		args []string
	}{
		{"diff, a run and the next start", []string{"diff", ".", "bench"}},
		{"diff, equal runs", []string{"diff", ".", "bench@-1", "@"}},
		{"diff, one task", []string{"diff", ".", "bench@-2", "@-1"}},
		{"why", []string{"why", ".", "bench"}},
		{"why, a task", []string{"why", ".", "bench", "t5"}},
		{"plan", []string{"plan", ".", "bench"}},
		{"plan -f", []string{"plan", "-f", "e3.yaml"}},
		{"verify", []string{"verify", "."}},
	} {
		var took [2]time.Duration
		var memory [2]int64
		for k, dir := range dirs {
			var list []time.Duration
			for range 2*b.rounds + 1 {
				t, m, err := busyFor(dir, b.e3, q.args...)
				if err != nil {
					return err
				}
				list, memory[k] = append(list, t), max(memory[k], m)
			}
			took[k] = median(list)
		}
		row("questions, "+q.name, took[1], took[0], 0, fmt.Sprintf("CPU of %d tasks, beside %d; %d and %d MiB", b.sizes[1], b.sizes[0], memory[1]>>10, memory[0]>>10))
	}
	return nil
}
