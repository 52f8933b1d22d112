package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// runtimeItems is how many items a task makes whose tasks are known only then.
const runtimeItems = 10_000

// items measures a graph of which a task makes the list of items, beside the same graph written out, and beside checkpoints of
// Snakemake. All three run one command for each item, and one that reads all results.
func (b *bench) items() error {
	if !b.wants("items") {
		return nil
	}
	grown, fixed := filepath.Join(b.dir, "items", "grown"), filepath.Join(b.dir, "items", "fixed")
	for _, dir := range []string{grown, fixed} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := create(filepath.Join(dir, "e3.yaml"), func(w *bufio.Writer) { itemFile(w, dir == fixed) }); err != nil {
			return err
		}
	}
	what := fmt.Sprintf("items %d", runtimeItems)
	cold, kib := map[string][]time.Duration{}, map[string][]int64{}
	again := map[string][]time.Duration{}
	for range b.rounds {
		for _, dir := range []string{grown, fixed} {
			if err := os.RemoveAll(filepath.Join(dir, ".e3")); err != nil {
				return err
			}
			took, memory, err := timed(dir, b.e3, "start", "-f", "e3.yaml")
			if err != nil {
				return err
			}
			unchanged, _, err := timed(dir, b.e3, "start")
			if err != nil {
				return err
			}
			cold[dir], kib[dir], again[dir] = append(cold[dir], took), append(kib[dir], memory), append(again[dir], unchanged)
		}
	}
	const written = "peer: the same graph written out"
	row(what+" cold", median(cold[grown]), median(cold[fixed]), 1.3, fmt.Sprintf("%s; peak memory %d and %d MiB, ratio %.2f (target ≤ 1.30)", written,
		median(kib[grown])>>10, median(kib[fixed])>>10, float64(median(kib[grown]))/float64(median(kib[fixed]))))
	row(what+" unchanged", median(again[grown]), median(again[fixed]), 1.3, written)
	if !have("snakemake") {
		return nil
	}
	dir := filepath.Join(b.dir, "items", "snakemake")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "Snakefile"), []byte(checkpoints), 0o644); err != nil {
		return err
	}
	run := []string{"snakemake", "--cores", "all", "--quiet", "all"}
	took, memory, err := timed(dir, run...)
	if err != nil {
		return err
	}
	unchanged, _, err := timed(dir, run...)
	if err != nil {
		return err
	}
	row(what+" cold", median(cold[grown]), took, 0, fmt.Sprintf("peer: checkpoints of Snakemake, once, peak memory %d MiB", memory>>10))
	row(what+" unchanged", median(again[grown]), unchanged, 0, "peer: checkpoints of Snakemake, once")
	return nil
}

// itemFile writes the package file, with the items written out or as a task makes them.
func itemFile(w *bufio.Writer, fixed bool) {
	fmt.Fprintf(w, "e3: 1\nname: items\ntasks:\n  list: {out: list.txt, run: seq %d > \"$out\"}\n  each:\n", runtimeItems)
	if fixed {
		fmt.Fprint(w, "    matrix: {item: [")
		for i := range runtimeItems {
			if i > 0 {
				fmt.Fprint(w, ", ")
			}
			fmt.Fprint(w, i+1)
		}
		fmt.Fprint(w, "]}\n    in: [list]\n")
	} else {
		fmt.Fprint(w, "    matrix: {item: list}\n    in: [list]\n")
	}
	fmt.Fprint(w, "    out: each.txt\n    run: echo \"$item\" > \"$out\"\n  all: {in: {parts: \"each[*]\"}, out: all.txt, run: ls \"$parts\" > \"$out\"}\n")
}

const checkpoints = `
def parts(wildcards):
    return expand("each/{item}.txt", item=open(checkpoints.list.get().output[0]).read().split())
rule all:
    input:
        parts,
    output:
        "all.txt",
    shell:
        "ls each > {output}"
checkpoint list:
    output:
        "list.txt",
    shell:
        "seq 10000 > {output}"
rule each:
    input:
        "list.txt",
    output:
        "each/{item}.txt",
    shell:
        "echo {wildcards.item} > {output}"
`
