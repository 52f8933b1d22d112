// Command bench measures e3 against its peers on the same generated work, in one run, and
// prints medians and ratios.
//
//	go run ./bench             graphs of 10,000 tasks, items that a task makes, events, files, folders, exports, gc, uploads, lookups, changes, workers, pages, start-up (some minutes)
//	go run ./bench -full       and 100,000 tasks, a folder of 100,000 files, and a 2 GiB file
//	go run ./bench -run null   only measurements whose name contains "null"
//	go run ./bench -run table  e3, ninja, make and samurai: times at 1,000 and 10,000 tasks (or -sizes), as a fixed part and a slope
//	go run ./bench -run states  processor time of status and start after failures, gaps, filtered runs; memory of plan, diff, verify
//	go run ./bench -run questions  processor time and memory of diff, why, plan and verify at 1,000 and 10,000 tasks (or -sizes)
//	go run ./bench -run moving  e3, DVC, Snakemake and make: processor time of one pipeline in the situations of a day
//
// Each figure is a median of interleaved rounds, so that both sides see the same
// machine. A ratio says more than a time: see CHANGELOG.md for the targets.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

type bench struct {
	e3     string // the binary under test
	other  string // another one, for what has no peer
	dir    string // for generated work
	rounds int
	full   bool
	match  string
	mib    int64 // of the file that is uploaded
	jobs   int   // tasks that workers execute
	sizes  sizes // of the table
}

func main() {
	b := bench{sizes: sizes{1_000, 10_000}}
	flag.StringVar(&b.dir, "dir", "", "work here (default: a temporary folder, removed at the end)")
	flag.StringVar(&b.match, "run", "", "only measurements whose name contains this")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds of each measurement")
	flag.Int64Var(&b.mib, "mib", 1024, "MiB of the file that is uploaded")
	flag.IntVar(&b.jobs, "jobs", 10_000, "tasks that workers execute")
	flag.Var(&b.sizes, "sizes", "the two numbers of tasks of the table")
	flag.BoolVar(&b.full, "full", false, "the large cases too")
	flag.StringVar(&b.other, "e3", "", "measure this program instead, where changes in shared repositories are measured")
	flag.Parse()
	if err := b.main(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) main() error {
	if flag.NArg() == 2 && flag.Arg(0) == "store" { // a process of its own, see files.go
		return store(flag.Arg(1))
	}
	if flag.NArg() == 1 && flag.Arg(0) == "minidyn" { // likewise, see lookups.go
		return minidyn()
	}
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "e3-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		b.dir = dir
	}
	b.e3 = filepath.Join(b.dir, "e3")
	if err := build(b.e3); err != nil {
		return err
	}
	fmt.Printf("%d cores, %s, %s\n\n", runtime.NumCPU(), runtime.Version(), time.Now().UTC().Format("2006-01-02"))
	fmt.Printf("%-34s %12s %12s %8s %8s\n", "what", "e3", "peer", "ratio", "target")
	for _, part := range []func() error{b.startup, b.table, b.states, b.questions, b.moving, b.graphs, b.items, b.events, b.files, b.folder, b.room, b.roomInputs, b.traced, b.large, b.archives, b.shared, b.queue, b.pages} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) wants(name string) bool { return strings.Contains(name, b.match) }

// row prints one comparison. target 0 means that none was set.
func row(name string, e3, peer time.Duration, target float64, note string) {
	ratio, aim := "", ""
	if peer > 0 {
		ratio = fmt.Sprintf("%.2f", float64(e3)/float64(peer))
	}
	if target > 0 {
		aim = fmt.Sprintf("≤ %.2f", target)
	}
	fmt.Printf("%-34s %12s %12s %8s %8s  %s\n", name, show(e3), show(peer), ratio, aim, note)
}

func show(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// median is the middle of the measured rounds.
func median[T cmp.Ordered](v []T) T {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// timed runs a command in dir and returns how long it took and its peak memory in KiB.
func timed(dir string, argv ...string) (time.Duration, int64, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return took, peakMemory(cmd.ProcessState), nil
}

// startup measures "e3 version" against a program that does nothing.
func (b *bench) startup() error {
	if !b.wants("version") {
		return nil
	}
	var e3, peer []time.Duration
	for range 4 * b.rounds {
		t, _, err := timed(b.dir, b.e3, "version")
		if err != nil {
			return err
		}
		u, _, err := timed(b.dir, "true")
		if err != nil {
			return err
		}
		e3, peer = append(e3, t), append(peer, u)
	}
	row("version (peer: true)", median(e3), median(peer), 0, "target: under 10 ms")
	return nil
}

// have reports whether a peer is installed. If it is not, have prints that its comparison is left out.
func have(program string) bool {
	_, err := exec.LookPath(program)
	if err != nil {
		fmt.Printf("%-34s not measured: %s is not installed\n", "", program)
	}
	return err == nil
}
