package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"e3/internal/jobs/queue"
	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/fs"
)

// queue measures runs whose tasks workers execute: latency, throughput, and cost.
func (b *bench) queue() error {
	if b.wants("queue latency") {
		if err := b.queueLatency(); err != nil {
			return fmt.Errorf("queue latency: %w", err)
		}
	}
	if b.wants("queue throughput") {
		if err := b.queueThroughput(); err != nil {
			return fmt.Errorf("queue throughput: %w", err)
		}
	}
	if b.wants("queue chain") {
		if err := b.queueChain(); err != nil {
			return fmt.Errorf("queue chain: %w", err)
		}
	}
	if b.wants("queue shared") {
		if err := b.queueShared(); err != nil {
			return fmt.Errorf("queue shared: %w", err)
		}
	}
	if slices.ContainsFunc(workloads, func(w workload) bool { return b.wants(w.measured()) }) {
		if err := b.queueCalls(); err != nil {
			return fmt.Errorf("queue calls: %w", err)
		}
	}
	return nil
}

// noops writes a package file of trivial tasks, either chained or independent of each other. script has the place of
// the task's number; "" makes an empty file.
func noops(dir string, n int, chained bool, script string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return create(filepath.Join(dir, "e3.yaml"), func(w *bufio.Writer) {
		fmt.Fprint(w, "e3: 1\nname: bench\ninputs:\n  a: {value: 1}\ntasks:\n")
		for i := range n {
			in := "a"
			if chained && i > 0 {
				in = fmt.Sprint("t", i-1)
			}
			run := `[touch, "{out}"]`
			if script != "" {
				run = `[sh, -c, "` + fmt.Sprintf(script, i) + `"]`
			}
			fmt.Fprintf(w, "  t%d: {in: [%s], out: o%d, run: %s}\n", i, in, i, run)
		}
	})
}

// A team is a repository and workers that wait for tasks in it.
type team struct {
	b       *bench
	dir     string   // where the programs run
	where   string   // the repository
	env     []string // of the programs, in addition to this one's
	workers []*exec.Cmd
}

// newTeam makes the repository in a new folder, and starts workers that share the cores.
func (b *bench) newTeam(dir, where string, env []string, workers int) (*team, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	t := &team{b: b, dir: dir, where: where, env: env}
	if _, err := t.e3("init", where); err != nil {
		return nil, err
	}
	for range workers {
		if err := t.hire(max(1, runtime.NumCPU()/workers)); err != nil {
			return nil, errors.Join(err, t.dismiss())
		}
	}
	return t, nil
}

func (t *team) command(args ...string) *exec.Cmd {
	cmd := exec.Command(t.b.e3, args...)
	cmd.Dir, cmd.Env = t.dir, append(os.Environ(), t.env...)
	return cmd
}

// e3 runs a command and returns the processor time of the command and of the children that it waited for.
func (t *team) e3(args ...string) (time.Duration, error) {
	cmd := t.command(args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("e3 %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// hire starts a worker, and returns once the worker waits for tasks.
func (t *team) hire(cores int) error {
	cmd := t.command("worker", t.where, "--concurrency", strconv.Itoa(cores))
	out, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil || !strings.HasPrefix(first, "Waiting for tasks") {
		rest, _ := io.ReadAll(lines)
		return fmt.Errorf("a worker said %q (%v), then ended: %w", first+string(rest), err, cmd.Wait())
	}
	go io.Copy(io.Discard, lines) // until it ends
	t.workers = append(t.workers, cmd)
	return nil
}

// dismiss ends the workers.
func (t *team) dismiss() (err error) {
	for _, cmd := range t.workers {
		err = errors.Join(err, cmd.Process.Signal(syscall.SIGTERM))
	}
	for _, cmd := range t.workers {
		err = errors.Join(err, cmd.Wait())
	}
	return err
}

// start runs the package file.
func (t *team) start(args ...string) (took, processors time.Duration, err error) {
	began := time.Now()
	processors, err = t.e3(append([]string{"start", t.where, "-f", "e3.yaml", "--progress", "none"}, args...)...)
	return time.Since(began), processors, err
}

// queueLatency measures the time until one of two idle workers has claimed a ready task.
func (b *bench) queueLatency() error {
	const n = 300
	var waits []time.Duration
	for r := range min(b.rounds, 3) {
		dir := filepath.Join(b.dir, "latency", strconv.Itoa(r))
		if err := noops(dir, n, true, ""); err != nil {
			return err
		}
		t, err := b.newTeam(dir, ".", nil, 2)
		if err != nil {
			return err
		}
		_, _, err = t.start("--workers")
		if err = errors.Join(err, t.dismiss()); err != nil {
			return err
		}
		jobs, err := finishedJobs(dir)
		if err != nil {
			return err
		}
		if len(jobs) != n {
			return fmt.Errorf("%d jobs have finished, want %d", len(jobs), n)
		}
		for _, j := range jobs {
			waits = append(waits, j.Claimed.Time().Sub(j.Created.Time()))
		}
	}
	slices.Sort(waits)
	row("queue latency, ready to claimed", median(waits), 0, 0,
		fmt.Sprintf("target: under 5 ms; 95 %%: %s, most: %s", show(waits[len(waits)*95/100]), show(waits[len(waits)-1])))
	return nil
}

// finishedJobs reads the jobs that have finished in the repository of a folder.
func finishedJobs(dir string) (jobs []queue.Job, err error) {
	ctx := context.Background()
	store, err := fs.Open(filepath.Join(dir, ".e3"), fs.Options{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	q := queue.New(queue.Store{Store: store}, nil, queue.Options{Now: time.Now}) // Finished asks for no session
	runs := queue.Kind + "/" + queue.DefaultQueue + "/finished"
	for r, err := range store.List(ctx, refstore.Query{Partition: runs}) {
		if err != nil {
			return nil, err
		}
		for j, err := range q.Finished(ctx, queue.DefaultQueue, r.Key.Sort) {
			if err != nil {
				return nil, err
			}
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// queueThroughput compares cold runs on one and on two workers of this machine with one in a single process, with the same
// number of commands at a time: the time, and the processor time of all processes with their commands.
func (b *bench) queueThroughput() error {
	var took, used [3][]time.Duration // by the number of workers; 0: in-process
	var starts [3][]time.Duration
	round := func(r, workers int) error {
		dir := filepath.Join(b.dir, "throughput", strconv.Itoa(r), strconv.Itoa(workers))
		if err := noops(dir, b.jobs, false, ""); err != nil {
			return err
		}
		before := processorsOfChildren()
		var args []string
		if workers > 0 {
			args = []string{"--workers"}
		}
		t, err := b.newTeam(dir, ".", nil, workers)
		if err != nil {
			return err
		}
		d, start, err := t.start(args...)
		if err = errors.Join(err, t.dismiss()); err != nil {
			return err
		}
		reapOrphans()
		took[workers], starts[workers] = append(took[workers], d), append(starts[workers], start)
		used[workers] = append(used[workers], processorsOfChildren()-before)
		return nil // ext4 is slower after recent deletions, so the rounds are removed at the end
	}
	for r := range b.rounds {
		for i := range 3 {
			if err := round(r, (r+i)%3); err != nil {
				return err
			}
		}
	}
	for workers, name := range []string{1: "a worker", 2: "2 workers"} {
		if workers == 0 {
			continue
		}
		row(fmt.Sprintf("queue throughput, %d, %s", b.jobs, name), median(took[workers]), median(took[0]), 0,
			fmt.Sprintf("peer: in one process; %.0f tasks a second", float64(b.jobs)/median(took[workers]).Seconds()))
		row("  processor time of all", median(used[workers]), median(used[0]), 1.2,
			fmt.Sprintf("start %s, least %s and %s", show(median(starts[workers])), show(slices.Min(used[workers])), show(slices.Min(used[0]))))
	}
	return nil
}

// A workload is a run whose requests queueCalls counts.
type workload struct {
	name    string
	chained bool
	script  string
	few     int // tasks; the difference to many is what the others cost
	many    int
	workers int
	each    int // commands that a worker runs at a time
}

func (w workload) measured() string { return "queue calls, " + w.name }

var workloads = []workload{
	{"short, a worker -j 20", false, "echo %d > {out}", 50, 350, 1, 20},
	{"short, 4 workers -j 5", false, "echo %d > {out}", 50, 350, 4, 5},
	{"0.5 s, a worker -j 20", false, "sleep 0.5; echo %d > {out}", 50, 350, 1, 20},
	{"a chain, short", true, "echo %d > {out}", 10, 50, 1, 2},
}

// queueCalls counts the requests of a task to DynamoDB and S3, in runs with workers that share nothing with the run, as
// on other machines, and in one without. The difference of runs of two sizes is the cost per task.
func (b *bench) queueCalls() error {
	tb := &servers{dir: b.dir}
	defer tb.stop()
	var mu sync.Mutex
	calls := map[string]int{}
	watch := func(c testserver.Call) {
		mu.Lock()
		defer mu.Unlock()
		calls[strings.TrimSpace(c.Operation+" "+subject(c))]++
	}
	records, objects := testserver.NewProxy(tb, testserver.Minidyn(tb)), testserver.NewProxy(tb, testserver.GoFakeS3(tb))
	records.Watch(watch)
	objects.Watch(watch)
	name, repositories := testserver.Name(), 0
	// count runs n tasks and returns the requests.
	count := func(w workload, n int, local bool) (map[string]int, error) {
		repositories++
		dir := filepath.Join(b.dir, "calls", strconv.Itoa(repositories))
		if err := noops(dir, n, w.chained, w.script); err != nil {
			return nil, err
		}
		where := fmt.Sprintf("dynamodb://%s/%d?lease=10m&endpoint=%s&bucket=%s&s3-endpoint=%s", name, repositories,
			url.QueryEscape(records.URL()), name, url.QueryEscape(objects.URL()))
		machine := func(name string) []string {
			return append(testserver.Env(), "E3_CACHE_DIR="+filepath.Join(dir, name+"cache"), "E3_STATE_DIR="+filepath.Join(dir, name+"state"))
		}
		t, err := b.newTeam(dir, where, machine(""), 0)
		args := []string{"-j", strconv.Itoa(w.workers * w.each)}
		if !local {
			args = []string{"--workers"}
			for i := 0; i < w.workers && err == nil; i++ {
				t.env = machine(strconv.Itoa(i))
				err = t.hire(w.each)
			}
		}
		if err != nil {
			return nil, errors.Join(err, t.dismiss())
		}
		t.env = machine("")
		mu.Lock()
		clear(calls)
		mu.Unlock()
		_, _, err = t.start(args...)
		err = errors.Join(err, t.dismiss()) // they write what follows from the last jobs
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(calls), err
	}
	perTask := func(w workload, local bool) (map[string]float64, error) {
		small, err := count(w, w.few, local)
		if err != nil {
			return nil, err
		}
		large, err := count(w, w.many, local)
		if err != nil {
			return nil, err
		}
		cost := map[string]float64{}
		for kind := range large {
			cost[kind] = float64(large[kind]-small[kind]) / float64(w.many-w.few)
		}
		return cost, nil
	}
	sum := func(cost map[string]float64, ofObjects bool) (total float64) {
		for kind, n := range cost {
			if strings.Contains(kind, "Object") == ofObjects {
				total += n
			}
		}
		return total
	}
	for _, w := range workloads {
		if !b.wants(w.measured()) {
			continue
		}
		ours, err := perTask(w, false)
		if err != nil {
			return err
		}
		local, err := perTask(w, true)
		if err != nil {
			return err
		}
		fmt.Printf("%-34s %6.1f + %3.1f %6.1f + %3.1f  DynamoDB + S3; target: 12 + 2\n", w.measured(),
			sum(ours, false), sum(ours, true), sum(local, false), sum(local, true))
		for _, kind := range slices.SortedFunc(maps.Keys(ours), func(a, b string) int { return cmp.Compare(ours[b], ours[a]) }) {
			if ours[kind] >= 0.05 {
				fmt.Printf("  %-32s %12.2f %12.2f\n", kind, ours[kind], local[kind])
			}
		}
	}
	return nil
}

// subject is the kind of record or object of a call; for a queue's records it also names the record.
func subject(c testserver.Call) string {
	parts := strings.Split(c.Subject, "/")
	switch {
	case parts[0] == queue.Kind && len(parts) > 3: // the repository, the queue
		return parts[0] + "/" + parts[3]
	case len(parts) > 2 && strings.Contains(c.Operation, "Object"): // the table, the repository
		return parts[2]
	}
	return parts[0]
}
