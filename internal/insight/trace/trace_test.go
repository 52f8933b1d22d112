package trace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
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
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/internal/insight/runview"
	"e3/internal/insight/trace"
	"e3/internal/jobs/approval"
	"e3/internal/repo"
	"e3/refstore/mem"
	"e3/workspace"
)

// event is an event as a viewer reads it.
type event struct {
	Name string
	Cat  string
	Ph   string
	TS   *int64
	Dur  *int64
	PID  int
	TID  int
	ID   int
	BP   string
	S    string
	Args map[string]any
}

type document struct {
	DisplayTimeUnit string
	OtherData       map[string]any
	TraceEvents     []event
}

func decode(t fataler, data []byte) *document {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var d document
	if err := dec.Decode(&d); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	if dec.More() {
		t.Fatalf("more than one document")
	}
	return &d
}

type fataler interface {
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

type lane struct{ pid, tid int }

// check checks the document against the rules of the format and of this package.
func (d *document) check(t fataler) {
	if d.DisplayTimeUnit != "ms" {
		t.Errorf("displayTimeUnit is %q", d.DisplayTimeUnit)
	}
	names := map[lane]bool{}
	var run *event
	last := int64(math.MinInt64)
	slices := map[lane][]*event{}
	flows := map[int][]*event{}
	counters := map[string]float64{}
	for i := range d.TraceEvents {
		e := &d.TraceEvents[i]
		at := lane{e.PID, e.TID}
		if e.TS == nil {
			t.Fatalf("event without ts: %+v", *e)
		}
		if e.Ph == "M" {
			names[at] = true
			continue
		}
		if *e.TS < last {
			t.Errorf("%q at %d comes after %d", e.Name, *e.TS, last)
		}
		last = *e.TS
		switch e.Ph {
		case "X":
			if e.Dur == nil || *e.Dur < 1 {
				t.Fatalf("slice without a duration: %+v", *e)
			}
			if e.Cat == "run" {
				if run != nil {
					t.Errorf("two slices of the run")
				}
				run = e
			}
			slices[at] = append(slices[at], e)
			if !names[at] {
				t.Errorf("lane %v of %q has no name", at, e.Name)
			}
		case "i":
			if e.S != "t" || !names[at] {
				t.Errorf("instant %+v", *e)
			}
		case "C":
			counters[e.Name] = e.Args["tasks"].(float64)
			if counters[e.Name] < 0 {
				t.Errorf("%s is %v", e.Name, counters[e.Name])
			}
		case "s", "f":
			flows[e.ID] = append(flows[e.ID], e)
			if e.ID == 0 || (e.Ph == "f") != (e.BP == "e") {
				t.Errorf("flow %+v", *e)
			}
		default:
			t.Errorf("phase %q", e.Ph)
		}
	}
	for name, n := range counters {
		if n != 0 {
			t.Errorf("%s ends with %v", name, n)
		}
	}
	if run == nil {
		t.Fatalf("no slice of the run")
	}
	for at, list := range slices {
		end := int64(math.MinInt64)
		for _, e := range list {
			if *e.TS < end {
				t.Errorf("lane %v: %q begins at %d, before %d", at, e.Name, *e.TS, end)
			}
			end = *e.TS + *e.Dur
			if *e.TS < *run.TS || end > *run.TS+*run.Dur {
				t.Errorf("%q is not within the run: %d+%d, %d+%d", e.Name, *e.TS, *e.Dur, *run.TS, *run.Dur)
			}
		}
	}
	for id, ends := range flows {
		if len(ends) != 2 || ends[0].Ph != "s" || ends[1].Ph != "f" {
			t.Errorf("flow %d: %+v", id, ends)
			continue
		}
		for _, e := range ends {
			inside := false
			for _, s := range slices[lane{e.PID, e.TID}] {
				inside = inside || *s.TS <= *e.TS && *e.TS < *s.TS+*s.Dur
			}
			if !inside {
				t.Errorf("flow %d: its end %+v is in no slice", id, *e)
			}
		}
	}
}

// attempts are the slices of executions by "task/attempt/state".
func (d *document) attempts() []string {
	var list []string
	for _, e := range d.TraceEvents {
		if e.Ph == "X" && strings.HasPrefix(e.Cat, "attempt") {
			list = append(list, fmt.Sprintf("%s/%v/%v", e.Name, e.Args["attempt"], e.Args["state"]))
		}
	}
	slices.Sort(list)
	return list
}

func (d *document) instants() []string {
	var list []string
	for _, e := range d.TraceEvents {
		if e.Ph == "i" {
			list = append(list, e.Name)
		}
	}
	slices.Sort(list)
	return list
}

func (d *document) find(t *testing.T, name string) event {
	t.Helper()
	for _, e := range d.TraceEvents {
		if e.Name == name && e.Ph == "X" {
			return e
		}
	}
	t.Fatalf("no slice %q", name)
	return event{}
}

// A place is a repository with a project beside it, and a runner that needs no processes: a script is "ok", "fail", or "once",
// which fails the first time.
type place struct {
	t    *testing.T
	repo *repo.Repo
	dir  string
	x    *executions.Executor
	mark string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir()}
	root, err := repo.Create(filepath.Join(p.dir, repo.DirName))
	if err != nil {
		t.Fatal(err)
	}
	if p.repo, err = repo.Open(context.Background(), root, repo.Options{Version: "test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.repo.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	p.mark = filepath.Join(p.dir, "mark")
	p.x = executions.NewExecutor(p.repo.Executions, p.repo.Objects, p.repo.Records, p, executions.Options{
		Worker: "me@here", Version: "test", Path: "/bin", Getenv: os.LookupEnv, Scratch: p.repo.Scratch, Now: time.Now,
	})
	return p
}

// Run implements executions.Runner.
func (p *place) Run(_ context.Context, spec runner.Spec) (runner.Result, error) {
	script := strings.TrimSpace(spec.Argv[len(spec.Argv)-1])
	res := runner.Result{UserCPU: 2 * time.Second, SystemCPU: time.Second, PeakRSS: 1 << 20}
	switch _, err := os.Stat(p.mark); {
	case script == "fail":
		res.ExitCode = 3
		return res, nil
	case script == "once" && err != nil:
		res.ExitCode = 3
		return res, os.WriteFile(p.mark, nil, 0o644)
	}
	return res, os.WriteFile(filepath.Join(spec.Dir, "o"), []byte(script), 0o644)
}

func (p *place) start(text string) string {
	p.t.Helper()
	file := filepath.Join(p.dir, "e3.yaml")
	if err := os.WriteFile(file, []byte("e3: 1\nname: p\n"+text), 0o644); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.repo.Workspaces.State(p.t.Context(), "w"); err != nil {
		if err := p.repo.Workspaces.Create(p.t.Context(), "w"); err != nil {
			p.t.Fatal(err)
		}
		if _, err := p.repo.Workspaces.Deployer.DeployFile(p.t.Context(), "w", file); err != nil {
			p.t.Fatal(err)
		}
	}
	var people sync.WaitGroup
	res, err := p.repo.Workspaces.Runner.Start(p.t.Context(), "w", workspace.StartOptions{
		Executor: p.x, Concurrency: 4, Durability: workspace.None, Process: p.repo.Process(),
		OnEvent: func(e events.Event) { // every approval is given
			if e.Type == events.TaskDeferred {
				people.Go(func() {
					if _, err := p.repo.Workspaces.Approvals.Resolve(p.t.Context(), "w", e.Task, approval.Resolution{Approve: true, By: "ann@desk", Note: "fine"}); err != nil {
						p.t.Error(err)
					}
				})
			}
		},
	})
	people.Wait()
	if err != nil {
		p.t.Fatal(err)
	}
	return res.Run.RunID
}

func (p *place) trace(run string) *document {
	p.t.Helper()
	report, err := p.repo.Workspaces.Runs.Report(p.t.Context(), "w", run)
	if err != nil {
		p.t.Fatal(err)
	}
	var b bytes.Buffer
	n, err := trace.Write(p.t.Context(), &b, trace.Stores{Records: p.repo.Records, Executions: p.repo.Executions, Packages: p.repo.Workspaces.Packages}, "w", report)
	if err != nil {
		p.t.Fatal(err)
	}
	d := decode(p.t, b.Bytes())
	d.check(p.t)
	if got := len(d.attempts()); got != n {
		p.t.Errorf("%d attempts are in it, and it says %d", got, n)
	}
	return d
}

// A wait for an approval is a slice, and neither an attempt nor a wait for a turn.
func TestApproved(t *testing.T) {
	p := newPlace(t)
	d := p.trace(p.start(`tasks:
  a: {out: o, run: ok, approve: true}
  b: {out: o, run: once, suspend: 3}
`))
	want := []string{"a/1/success", "b/1/deferred", "b/2/success"}
	if got := d.attempts(); !slices.Equal(got, want) {
		t.Errorf("attempts are %q, want %q", got, want)
	}
	got := d.instants()
	slices.Sort(got)
	if want := []string{"deferred: a", "deferred: b", "resumed: a", "resumed: b"}; !slices.Equal(got, want) {
		t.Errorf("instants are %q, want %q", got, want)
	}
	var waits []string
	for _, e := range d.TraceEvents {
		if strings.HasPrefix(e.Cat, "wait,") {
			waits = append(waits, e.Name)
		}
	}
	slices.Sort(waits)
	if want := []string{"a waits for approval", "b waits for approval"}; !slices.Equal(waits, want) {
		t.Errorf("slices of waits are %q, want %q", waits, want)
	}
}

func TestWrite(t *testing.T) {
	p := newPlace(t)
	project := `tasks:
  a: {out: o, run: ok}
  b: {out: o, run: once, retries: {max: 1, backoff: 1ms}}
  c: {out: o, run: fail}
  d: {in: {x: "two[*]"}, out: o, run: ok}
  e: {in: {x: "bad[*]"}, out: o, run: ok}
  two: {out: o, run: "ok", matrix: {k: [1, 2]}}
  bad: {out: o, run: "fail", matrix: {k: [1]}}
`
	first := p.start(project)
	d := p.trace(first)
	want := []string{"a/1/success", "b/1/failed", "b/2/success", "bad[1]/1/failed", "c/1/failed", "d/1/success", "two[1]/1/success", "two[2]/1/success"}
	if got := d.attempts(); !slices.Equal(got, want) {
		t.Errorf("attempts are %q, want %q", got, want)
	}
	if got := d.instants(); len(got) != 3 || !strings.HasPrefix(got[1], "retry: b") || got[2] != "skipped: e" || got[0] != "failed" {
		t.Errorf("instants are %q", got)
	}
	flows := 0
	for _, e := range d.TraceEvents {
		if e.Ph == "f" {
			flows++
		}
	}
	if flows != 2 {
		t.Errorf("%d arrows, want those from two[1] and two[2] to d", flows)
	}
	b := d.find(t, "a")
	for name, want := range map[string]any{
		"state": "success", "exitCode": 0.0, "cached": false, "userCpuMs": 2000.0, "systemCpuMs": 1000.0, "peakRss": float64(1 << 20), "attempt": 1.0,
	} {
		if b.Args[name] != want {
			t.Errorf("a: %s is %v, want %v", name, b.Args[name], want)
		}
	}
	if c := d.find(t, "c"); c.Args["exitCode"] != 3.0 {
		t.Errorf("c: %v", c.Args)
	}
	if _, ok := b.Args["waitedMs"]; !ok || b.Args["execution"] == nil || b.Args["key"] == nil {
		t.Errorf("a: %v", b.Args)
	}
	if run := d.find(t, "run w"); run.Args["status"] != "failed" || run.Args["run"] != first || run.PID != 1 {
		t.Errorf("the run is %+v", run)
	}
	workers := map[string]bool{}
	for _, e := range d.TraceEvents {
		if e.Name == "process_name" {
			workers[e.Args["name"].(string)] = true
		}
	}
	if !workers["me@here"] || !workers["waits"] || len(workers) != 3 { // b waits for its second attempt
		t.Errorf("processes are %v, want those of the run, of me@here and of waits", slices.Sorted(maps.Keys(workers)))
	}

	// Second run: cached tasks take no time, and failed ones run again.
	second := p.start(project)
	d = p.trace(second)
	if got := d.attempts(); !slices.Equal(got, []string{"bad[1]/1/failed", "c/1/failed"}) {
		t.Errorf("attempts of the second run are %q", got)
	}
	cached := 0
	for _, name := range d.instants() {
		if strings.HasPrefix(name, "cached: ") {
			cached++
		}
	}
	if cached != 5 {
		t.Errorf("instants of the second run are %q, want five cached tasks", d.instants())
	}
	p.trace("") // the run that is shown

	// The first run, from its events alone: its package is gone.
	if d := p.trace(first); len(d.attempts()) != 8 {
		t.Errorf("attempts of the first run are now %q", d.attempts())
	}
}

// The timeline of a run without events is made from its report.
func TestWriteWithoutEvents(t *testing.T) {
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	report := &runview.Report{
		Run: &record.Run{
			RunID: "018f3b4c-9a01-7000-8000-000000000000", WorkspaceName: "w", StartedAt: began, CompletedAt: began.Add(time.Minute), State: record.RunFailed,
		},
		Tasks: []runview.TaskReport{
			{Task: "old", State: runview.TaskCached, ExecutionID: "x", StartedAt: moment.At(began.Add(-time.Hour)), Duration: moment.Millis(time.Minute)},
			{Task: "good", State: runview.TaskSuccess, ExecutionID: "y", StartedAt: moment.At(began.Add(time.Second)), Duration: moment.Millis(5 * time.Second), Attempt: 1},
			{Task: "bad", State: runview.TaskFailed, ExecutionID: "z", StartedAt: moment.At(began.Add(2 * time.Second)), Duration: moment.Millis(time.Second), Attempt: 1, ExitCode: 4},
			{Task: "after", State: runview.TaskSkipped, Because: "bad"},
			{Task: "lost", State: runview.TaskSuccess, ExecutionID: "gone"},
		},
	}
	d := write(t, mem.New(), report)
	if got, want := d.attempts(), []string{"bad/1/failed", "good/1/success"}; !slices.Equal(got, want) {
		t.Errorf("attempts are %q, want %q", got, want)
	}
	if got, want := d.instants(), []string{"cached: lost", "cached: old", "skipped: after"}; !slices.Equal(got, want) {
		t.Errorf("instants are %q, want %q", got, want)
	}
}

func write(t fataler, s *mem.Store, report *runview.Report) *document {
	var b bytes.Buffer
	_, err := trace.Write(context.Background(), &b, trace.Stores{Records: s, Executions: executions.NewStore(s, nil)}, "w", report)
	if err != nil {
		t.Fatalf("%v", err)
	}
	d := decode(t, b.Bytes())
	d.check(t)
	return d
}

// Another process writes the end of a crashed run much later: the run lasted until its last sign of life.
func TestWriteCrashed(t *testing.T) {
	s := mem.New()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	began := now
	const id = "018f3b4c-9a01-7000-8000-000000000000"
	log := events.Create(s, "w", id, func() time.Time { return now })
	log.Emit(events.Event{Type: events.RunStarted})
	log.Emit(events.Event{Type: events.TaskMarkedReady, Task: "t"})
	log.Emit(events.Event{Type: events.TaskStarted, Task: "t", Execution: "x", Data: &events.Data{Attempt: 1}})
	now = now.Add(24 * time.Hour)
	log.Emit(events.Event{Type: events.TaskFailed, Task: "t", Execution: "x", Data: &events.Data{Reason: "crashed", Message: "gone"}})
	end := log.Emit(events.Event{Type: events.RunFailed, Data: &events.Data{Reason: "crashed", Message: "the process of this run ended without finishing it"}})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	run := &record.Run{RunID: id, WorkspaceName: "w", StartedAt: began, State: record.RunFailed, CompletedAt: began.Add(time.Second),
		Error: end.Data.Reason + ": " + end.Data.Message}
	report := &runview.Report{Run: run}
	if !report.Crashed() {
		t.Fatal("the report is not of a crashed run: see runview.Report.Crashed")
	}
	d := write(t, s, report)
	if got := d.find(t, "run w"); *got.Dur != 1e6 {
		t.Errorf("the run takes %d µs, want a second", *got.Dur)
	}
	if got := d.find(t, "t"); *got.Dur != 1e6 || got.Args["reason"] != "crashed" {
		t.Errorf("the attempt is %d µs long, %v", *got.Dur, got.Args)
	}
}

// Whatever is in a log, the document keeps the rules, and every attempt is in it.
func TestWriteAnything(t *testing.T) {
	hostile := rapid.OneOf(rapid.SampledFrom([]string{"a", "b", "c", "\x1b[31m", `"`, "</script>", "\xff\xfe", "\u2028", "", "train[1.5]"}), rapid.StringN(0, 8, -1))
	types := append(events.Types(), "task.napped")
	rapid.Check(t, func(t *rapid.T) {
		s := mem.New()
		const id = "018f3b4c-9a01-7000-8000-000000000000"
		now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		log := events.Create(s, "w", id, func() time.Time { return now })
		started, ended := map[string]bool{}, 0
		open := map[string]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(-3, 20).Draw(t, "ms")) * time.Millisecond)
			e := events.Event{Type: rapid.SampledFrom(types).Draw(t, "type"), Task: hostile.Draw(t, "task"), Worker: rapid.SampledFrom([]string{"", "w1", "w2"}).Draw(t, "worker")}
			e.Execution = rapid.SampledFrom([]string{"", "x1", "x2", "x3", "x4"}).Draw(t, "execution")
			if rapid.Bool().Draw(t, "data") {
				e.Data = &events.Data{
					Attempt: rapid.Int64().Draw(t, "attempt"), Duration: rapid.OneOf(rapid.Int64Range(-5, 50), rapid.Int64()).Draw(t, "duration"), Message: hostile.Draw(t, "message"),
					DelayMs: rapid.OneOf(rapid.Int64Range(-5, 50), rapid.Int64Range(-1<<62, 1<<36)).Draw(t, "delay"), Tasks: rapid.Int().Draw(t, "tasks"),
				}
			}
			switch e.Type {
			case events.TaskStarted:
				started[fmt.Sprint(len(started))] = true
				open[e.Execution] = true
			case events.TaskCompleted, events.TaskFailed, events.TaskDeferred:
				if e.Type == events.TaskDeferred && e.Execution == "" {
					break // nothing ran
				}
				if !open[e.Execution] || e.Execution == "" {
					ended++
				}
				delete(open, e.Execution)
			}
			log.Emit(e)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		report := &runview.Report{Run: &record.Run{RunID: id, WorkspaceName: hostile.Draw(t, "ws"), StartedAt: now, State: record.RunRunning}}
		d := write(t, s, report)
		if got, want := len(d.attempts()), len(started)+ended; got != want {
			t.Fatalf("%d attempts, want %d", got, want)
		}
	})
}

// A writer that fails ends it.
func TestWriteFails(t *testing.T) {
	report := &runview.Report{Run: &record.Run{RunID: "r", WorkspaceName: "w", StartedAt: time.Unix(1, 0)}}
	s := mem.New()
	_, err := trace.Write(t.Context(), full{}, trace.Stores{Records: s, Executions: executions.NewStore(s, nil)}, "w", report)
	if err == nil || err.Error() != "full" {
		t.Errorf("got %v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, fmt.Errorf("full") }
