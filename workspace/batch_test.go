package workspace_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/workspace"
)

// A batchRunner runs commands that read their items from a file, or from their folder without one. Of an item that says
// bad they write half an output and fail; one that says lazy gets none in a batch.
type batchRunner struct {
	mu    sync.Mutex
	sizes []int               // of the commands
	made  map[string][]string // by item, the whole outputs that commands with exit code 0 have left
	begun func(ctx context.Context, items int)
	boom  func() // of the command boom, which fails when it returns
	fault error  // that no command may have

	timeouts []string
}

type batchItem struct{ Matrix, In, Out map[string]string }

func (b *batchRunner) Run(ctx context.Context, spec runner.Spec) (runner.Result, error) {
	if slices.Contains(spec.Argv, "boom") {
		spec.OnStart(process.ID{PID: os.Getpid()})
		b.boom()
		return runner.Result{ExitCode: 1}, nil
	}
	env := map[string]string{}
	for _, e := range spec.Env {
		name, text, _ := strings.Cut(e, "=")
		env[name] = text
	}
	items := []batchItem{{Matrix: map[string]string{"n": env["n"]}, In: map[string]string{"raw": env["raw"]}, Out: map[string]string{"out": env["out"]}}}
	if list := env["E3_BATCH"]; list != "" {
		data, err := os.ReadFile(filepath.Join(spec.Dir, list))
		if err != nil {
			return runner.Result{}, err
		}
		var file struct{ Items []batchItem }
		if err := json.Unmarshal(data, &file); err != nil {
			return runner.Result{}, err
		}
		items = file.Items
	}
	b.mu.Lock()
	b.sizes = append(b.sizes, len(items))
	b.timeouts = append(b.timeouts, spec.Timeout.String())
	if code, err := os.ReadFile(filepath.Join(spec.Dir, env["code"])); err != nil || string(code) != "code" || env["n"] != "" && env["E3_BATCH"] != "" {
		b.fault = fmt.Errorf("a command has the code %q (%v) and n=%s in its environment", code, err, env["n"])
	}
	b.mu.Unlock()
	if _, err := fmt.Fprintf(spec.Stdout, "%d items\n", len(items)); err != nil {
		return runner.Result{}, err
	}
	if b.begun != nil {
		spec.OnStart(process.ID{PID: os.Getpid()})
		b.begun(ctx, len(items))
		if ctx.Err() != nil {
			return runner.Result{Cancelled: true, ExitCode: 1}, nil
		}
	}
	made := map[string]string{}
	for _, it := range items {
		text, err := os.ReadFile(filepath.Join(spec.Dir, it.In["raw"]))
		if err != nil {
			return runner.Result{}, err
		}
		out := filepath.Join(spec.Dir, it.Out["out"])
		switch {
		case strings.HasPrefix(string(text), "bad"):
			return runner.Result{ExitCode: 3}, os.WriteFile(out, []byte("half"), 0o644)
		case string(text) == "slow":
			return runner.Result{ExitCode: -1, TimedOut: true}, nil
		case strings.HasPrefix(string(text), "lazy") && len(items) > 1:
			continue
		}
		whole := it.Matrix["n"] + ":" + string(text)
		if err := os.WriteFile(out, []byte(whole), 0o644); err != nil {
			return runner.Result{}, err
		}
		made[it.Matrix["n"]] = whole
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, whole := range made {
		b.made[n] = append(b.made[n], whole)
	}
	return runner.Result{}, nil
}

// batchPlace is a place whose commands b runs.
func batchPlace(t *testing.T, b *batchRunner) *place {
	p := newPlace(t)
	p.executor = executions.NewExecutor(p.repo.Executions, p.repo.Objects, p.repo.Records, b, executions.Options{
		Worker: "me@here", Version: "test", Path: "/bin", Getenv: os.LookupEnv, Scratch: p.repo.Scratch, Now: time.Now,
	})
	p.write("code", "code")
	if err := os.Mkdir(filepath.Join(p.dir, "raw"), 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *place) deployBatch(size int) {
	batch := ""
	if size > 0 {
		batch = fmt.Sprintf(", batch: %d", size)
	}
	p.deploy("inputs: {code: {file: code}, raw: {files: 'raw/{n}.txt'}}", "tasks:",
		"  t: {matrix: raw, in: {raw: 'raw[n]', code: code}, out: o, run: go"+batch+"}")
}

// Random items are edited, added and removed, and some fail, in batches of any size. Each item ends as it would
// alone, and no success is made twice.
func TestBatchModel(t *testing.T) {
	rounds := 0
	rapid.Check(t, func(rt *rapid.T) {
		if rounds++; testing.Short() && rounds > 20 {
			return
		}
		b := &batchRunner{made: map[string][]string{}}
		p := batchPlace(t, b)
		files := map[string]string{}
		known := map[string]bool{} // item and content: an answer exists
		for range rapid.IntRange(1, 4).Draw(rt, "runs") {
			for k := range rapid.IntRange(0, 8).Draw(rt, "edits") {
				n := fmt.Sprint(rapid.IntRange(0, 11).Draw(rt, "item"))
				text := fmt.Sprint(rapid.SampledFrom([]string{"", "", "", "good", "good", "bad", "lazy"}).Draw(rt, "kind"), k%3)
				name := filepath.Join(p.dir, "raw", n+".txt")
				if len(text) == 1 {
					delete(files, n)
					if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
						rt.Fatal(err)
					}
					continue
				}
				files[n] = text
				p.write("raw/"+n+".txt", text)
			}
			size := rapid.IntRange(1, 6).Draw(rt, "batch")
			p.deployBatch(size)
			b.sizes, b.made = nil, map[string][]string{}
			res := p.start(func(o *workspace.StartOptions) { o.Concurrency = rapid.IntRange(1, 3).Draw(rt, "cores") })
			failed, want := 0, map[string][]string{}
			for n, text := range files {
				switch whole := n + ":" + text; {
				case strings.HasPrefix(text, "bad"):
					failed++
				case !known[whole]:
					known[whole] = true
					want[n] = []string{whole}
				}
			}
			p.checkLog(rt, res.Run)
			if got := res.Run.Summary; int(got.Failed) != failed || int(got.Completed) != len(files)-failed {
				rt.Errorf("%d of %d items are bad; the run has %+v", failed, len(files), got)
			}
			for n, text := range files {
				if got, whole := "", n+":"+text; !strings.HasPrefix(text, "bad") {
					if got = p.read("t[" + n + "]"); got != whole {
						rt.Errorf("item %s is %q, want %q", n, got, whole)
					}
				}
			}
			// An item may succeed in a command that leaves another one without an output, never twice.
			if !maps.EqualFunc(b.made, want, slices.Equal) {
				rt.Errorf("commands have made %v, want %v", b.made, want)
			}
			if m := slices.Max(append(b.sizes, 0)); m > size {
				rt.Errorf("a command got %d items, at most %d are allowed", m, size)
			}
			if b.fault != nil {
				rt.Error(b.fault)
			}
		}
	})
}

// A run that is cancelled in the middle of a batch leaves no item done; the next one runs them again. While the command
// runs, each item is on record as running.
func TestBatchCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	running := 0
	b := &batchRunner{made: map[string][]string{}}
	p := batchPlace(t, b)
	b.begun = func(ctx context.Context, _ int) {
		for e, err := range p.repo.Executions.All(context.WithoutCancel(ctx)) {
			if err == nil && e.State == record.Running && e.Detail.Batch.Items == 5 {
				running++
			}
		}
		cancel()
		<-ctx.Done()
	}
	for n := range 5 {
		p.write(fmt.Sprintf("raw/%d.txt", n), "good")
	}
	p.deployBatch(5)
	was := p.ctx
	p.ctx = ctx
	var log []events.Event
	var mu sync.Mutex
	res, err := p.ws.Runner.Start(ctx, "w", workspace.StartOptions{Concurrency: 1, Durability: workspace.None, Process: &events.Process{PID: 1}, Executor: p.executor,
		OnEvent: func(e events.Event) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, e)
		}})
	if err != nil {
		t.Fatal(err)
	}
	if res.Run.State != record.RunCancelled || running != 5 {
		t.Errorf("the run is %v, and %d items were on record as running; want cancelled and 5", res.Run.State, running)
	}
	batches := map[string]int{}
	for _, e := range log {
		if e.Type == events.TaskStarted {
			batches[e.Facts().Batch]++
		}
	}
	if len(batches) != 1 || batches[""] > 0 {
		t.Errorf("the events of starts name the batches %v, want one", batches)
	}
	p.ctx, b.begun = was, nil
	if res := p.start(); res.Run.State != record.RunCompleted || !slices.Equal(b.sizes, []int{5, 5}) {
		t.Errorf("the next run is %v, with commands of %v items; want completed, 5 and 5", res.Run.State, b.sizes)
	}
	cached := 0
	var total time.Duration
	for e, err := range p.repo.Executions.All(p.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if e.State == record.Success && e.Detail.Batch.Items == 5 {
			cached++
			total += e.CompletedAt.Sub(e.StartedAt)
		}
	}
	if cached != 5 || total > time.Minute {
		t.Errorf("%d successes, which took %v together; want 5", cached, total)
	}
}

// A batch is full while items are ready, whatever is looked up meanwhile: all items that must run are found first.
func TestBatchesAreFull(t *testing.T) {
	b := &batchRunner{made: map[string][]string{}}
	p := batchPlace(t, b)
	for n := range 40 {
		p.write(fmt.Sprintf("raw/%02d.txt", n), "good")
	}
	p.deployBatch(10)
	p.start(func(o *workspace.StartOptions) { o.Concurrency = 4 })
	if !slices.Equal(b.sizes, []int{10, 10, 10, 10}) {
		t.Errorf("commands got %v items, want 10 each", b.sizes)
	}
	b.sizes = nil
	for n := 0; n < 40; n += 4 { // a quarter of them
		p.write(fmt.Sprintf("raw/%02d.txt", n), "good too")
	}
	p.deployBatch(10)
	if p.start(); !slices.Equal(b.sizes, []int{10}) {
		t.Errorf("commands got %v items after the edit of ten, want one of 10", b.sizes)
	}
	b.sizes = nil
	p.deployBatch(0)
	if p.start(); len(b.sizes) != 40 {
		t.Errorf("without batch, %d commands ran, want 40: the key says that a task has batches", len(b.sizes))
	}
}
