package workspace_test

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/refstore"
	"e3/workspace"
)

// crashSite is a finished run whose end can be undone: its record says running again and its log is cut.
type crashSite struct {
	*dead
	before, running []byte // records: its predecessor's, and its own while at work
	first           string
	log             []byte
}

// cut restores the time at which the run's log had the given length.
func (c *crashSite) cut(log, run []byte) {
	c.p.t.Helper()
	for _, id := range c.p.runs() {
		c.p.forget(runRecord("w", id))
	}
	c.put(runRecord("w", c.first), c.before)
	c.put(runRecord("w", c.id), run)
	c.p.currentRun(c.first)
	key := refstore.Key{Partition: "EVENTS/w", Sort: c.id}
	if err := c.p.repo.Records.Cut(c.p.ctx, key, 0); err != nil {
		c.p.t.Fatal(err)
	}
	if err := c.p.repo.Records.Append(c.p.ctx, key, 0, log); err != nil {
		c.p.t.Fatal(err)
	}
}

func (c *crashSite) close() *record.Run {
	c.p.t.Helper()
	if err := c.startNothing(); err == nil {
		c.p.t.Fatal("a filter that names no task is run")
	}
	run, err := c.p.ws.Runs.Run(c.p.ctx, "w", c.id)
	if err != nil {
		c.p.t.Fatal(err)
	}
	return run
}

var eventTime = regexp.MustCompile(`"(time|sum)":"[^"]*"`)

func timeless(log []byte) string { return eventTime.ReplaceAllString(string(log), "") }

// Wherever a crash cut off a run's log, and wherever its closing was interrupted: the run is closed the same way, and
// its record agrees with its events.
func TestCrashedRunIsRebuilt(t *testing.T) {
	wide := "  many: {in: {x: b}, out: o, matrix: {n: [" + numbers(120) + "]}, run: cat $x}"
	for _, test := range []struct {
		name  string
		extra string
	}{{"few tasks", ""}, {"proven ones that share an event", wide}} {
		t.Run(test.name, func(t *testing.T) {
			p := newPlace(t)
			graph := []string{"inputs: {a: {file: a.txt}, b: {file: b.txt}}", "tasks:",
				"  one: {in: [a], out: o, run: cat $a}",
				"  two: {in: {x: one}, out: p, run: fail 4, retries: {max: 1, backoff: 1ms}}",
				"  three: {in: {x: two}, out: q, run: cat}"}
			if test.extra != "" {
				graph = append(graph, test.extra)
			}
			p.write("a.txt", "0")
			p.write("b.txt", "0")
			p.run = shell
			good := slices.Clone(graph)
			good = slices.Delete(good, 3, 5)
			p.deploy(good...)
			c := &crashSite{dead: &dead{p: p}}
			c.first = p.start().Run.RunID
			rec, err := p.repo.Records.Get(p.ctx, runRecord("w", c.first))
			if err != nil {
				t.Fatal(err)
			}
			c.before = rec.Value
			p.write("a.txt", "1")
			p.deploy(graph...)
			run := p.start().Run
			c.id, c.log = run.RunID, (&dead{p: p, id: run.RunID}).bytes()
			atWork := *run
			atWork.State, atWork.CompletedAt, atWork.Tasks, atWork.Summary, atWork.OutputSnapshot = record.RunRunning, time.Time{}, record.RunTasks{}, record.Summary{}, ""
			atWork.FailedTask, atWork.Error = "", ""
			c.running = atWork.Encode()
			if strings.Contains(string(c.log), `"tasks":120`) != (test.extra != "") {
				t.Fatalf("the log is\n%s", c.log)
			}

			lines := bytes.SplitAfter(c.log, []byte("\n"))
			lines = lines[:len(lines)-2] // without the end, which a crashed run does not have, and what follows it
			for n := range len(lines) + 1 {
				log := bytes.Join(lines[:n], nil)
				c.cut(append(log, `{"seq":1,"ti`...), c.running)
				closed := c.close()
				whole := c.bytes()
				c.check(closed, n)
				rest := bytes.SplitAfter(whole[len(log):], []byte("\n"))
				for k := range len(rest) - 1 {
					for _, run := range [][]byte{c.running, closed.Encode()} {
						at := append(slices.Clone(log), bytes.Join(rest[:k], nil)...)
						c.cut(at, run)
						if again := c.close(); !bytes.Equal(again.Encode(), closed.Encode()) {
							t.Errorf("cut after %d lines and closed again after %d of its closing: its record is\n%+v, was\n%+v", n, k, again, closed)
						}
						if now := c.bytes(); timeless(now) != timeless(whole) {
							t.Errorf("cut after %d lines and closed again after %d of its closing: its log is\n%s\nwas\n%s", n, k, now, whole)
						}
					}
				}
			}
		})
	}
}

// check demands that a run that was closed after n events reports all that is known about it.
func (c *crashSite) check(run *record.Run, n int) {
	c.p.t.Helper()
	c.p.wantFolded(run)
	r, err := c.p.ws.Runs.Report(c.p.ctx, "w", c.id)
	if err != nil {
		c.p.t.Fatal(err)
	}
	if !r.Crashed() || run.Error != "crashed: the process of this run ended without finishing it" || run.FailedTask != "" {
		c.p.t.Errorf("cut after %d lines: the run is %+v", n, run)
	}
	var alive time.Time
	for e, err := range events.Read(c.p.ctx, c.p.repo.Records, "w", c.id) {
		if err != nil {
			c.p.t.Fatal(err)
		}
		ends := e.Type == events.TaskCompleted || e.Type == events.TaskFailed && e.Data.ExitCode != 0
		if (int(e.Seq) <= n || ends) && e.Time.After(alive) {
			alive = e.Time
		}
		if e.Type == events.RunFailed && (e.Data.Reason != "crashed" || *e.Data.Summary != events.Summary(run.Summary)) {
			c.p.t.Errorf("cut after %d lines: it ends with %+v", n, e.Data)
		}
	}
	if n == 0 {
		alive = run.StartedAt
	}
	if alive = alive.Truncate(time.Millisecond); alive.Before(run.StartedAt) {
		alive = run.StartedAt
	}
	if !run.CompletedAt.Equal(alive) {
		c.p.t.Errorf("cut after %d lines: the run ends %v, its last event is of %v", n, run.CompletedAt, alive)
	}
	if s, err := c.p.ws.State(c.p.ctx, "w"); err != nil || s.CurrentRunID != c.id {
		c.p.t.Errorf("cut after %d lines: the state names %s, %v", n, s.CurrentRunID, err)
	}
	// Without its record, the report is the same.
	c.p.forget(runRecord("w", c.id))
	// Before a task is ready, it is unknown which tasks an event stands for.
	unnamed := int64(0)
	if n < 4 {
		unnamed = run.Summary.Cached
	}
	c.p.wantTold(run, unnamed)
	if int64(run.Tasks.Len()) < run.Summary.Completed-unnamed {
		c.p.t.Errorf("cut after %d lines: of %+v the record has %d executions", n, run.Summary, run.Tasks.Len())
	}
}

// The next start deletes the record of a crashed run once it has its own, and uses its results. The record of the proven
// run stays until the new one proves more.
func TestStartAfterACrash(t *testing.T) {
	d := newDead(t)
	first := d.p.start().Run.RunID
	d.id = newID(t)
	d.run(record.RunRunning)
	d.log(events.Event{Type: events.RunStarted})
	d.p.write("a.txt", "b")
	var during []string
	run := d.p.run
	d.p.run = nil
	res := d.p.start(func(o *workspace.StartOptions) {
		o.OnStart = func(*workspace.RunInfo) { d.p.run = run }
		o.OnEvent = func(e events.Event) {
			if e.Type == events.TaskStarted {
				during = d.p.runs()
			}
		}
	})
	if want := []string{first, d.id, res.Run.RunID}; !slices.Equal(during, want) {
		t.Errorf("while it runs %v are on record, want %v", during, want)
	}
	if got := d.p.runs(); !slices.Equal(got, []string{res.Run.RunID}) {
		t.Errorf("on record are %v, want %s", got, res.Run.RunID)
	}
	for _, id := range []string{first, d.id} {
		if _, err := d.p.ws.Runs.Report(d.p.ctx, "w", id); err != nil {
			t.Errorf("run %s has no report: %v", id, err)
		}
	}
}

// A run with nothing to do is recorded before its events: wherever these are cut off, all its tasks have one
// afterwards.
func TestUnchangedRunIsToldInFull(t *testing.T) {
	for _, n := range []int{3, 120} {
		p := newPlace(t)
		p.write("a.txt", "0")
		p.deploy("inputs: {a: {file: a.txt}}", "tasks:", "  many: {in: {x: a}, out: o, matrix: {n: ["+numbers(n)+"]}, run: cat $x}")
		c := &crashSite{dead: &dead{p: p}}
		c.first = p.start().Run.RunID
		rec, err := p.repo.Records.Get(p.ctx, runRecord("w", c.first))
		if err != nil {
			t.Fatal(err)
		}
		c.before = rec.Value
		run := p.start().Run
		c.id, c.log = run.RunID, (&dead{p: p, id: run.RunID}).bytes()
		lines := bytes.SplitAfter(c.log, []byte("\n"))
		for k := range len(lines) - 1 {
			c.cut(bytes.Join(lines[:k], nil), run.Encode())
			if got := c.close(); !bytes.Equal(got.Encode(), run.Encode()) {
				t.Errorf("%d tasks, cut after %d lines: the record is %+v, was %+v", n, k, got, run)
			}
			p.wantFolded(run)
			p.forgetRecords()
			c.put(runRecord("w", c.first), c.before)
			if k == 0 { // only the record had the run's package and inputs
				continue
			}
			p.wantTold(run, 0)
		}
	}
}
