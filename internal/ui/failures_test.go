package ui_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/explain"
	"e3/internal/insight/runview"
	"e3/internal/ui"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// ill is a run with failures of several kinds.
func ill() []made {
	list := small()
	for i := range 4 {
		list = append(list, made{name: fmt.Sprintf("fit[%d]", i), state: runview.TaskFailed, took: time.Second, stdout: "epoch 1\n", stderr: "loading\nRuntimeError: the loss is NaN\n", file: "f"})
	}
	return append(list,
		made{name: "lint", state: runview.TaskFailed, mayFail: true, stderr: "2 problems <b>here</b>\n", file: "l"},
		made{name: "absent", state: runview.TaskError, message: "output out: expected a file o, found nothing", file: "o"})
}

// The page of a run says why tasks failed, without a click and without a script.
func TestRunSaysWhyItFailed(t *testing.T) {
	b := newBench(t)
	b.run(false, ill()...)
	b.serve(ui.Options{})
	page := b.page("/run?w=prod")
	wantIn(t, page, "What failed", "RuntimeError: the loss is NaN", "the same in fit[1], fit[2], fit[3]", "exit code 3",
		`<span class="t-1">ValueError</span>: no &lt;data&gt;`, "the command wrote no file. One that only checks something may end with: touch",
		"e3 logs /srv/e3 &#39;prod.fit[0]&#39; --stderr", "e3 shell /srv/e3 prod.broken", "2 problems &lt;b&gt;here&lt;/b&gt;", "exit code 3, allowed to fail")
	// The groups are those that the terminal and programs get.
	f := b.failures().Groups
	for i := range f {
		wantIn(t, page, `id="why-`+f[i].Task+`"`)
	}
	if n := strings.Count(page, `id="why-`); n != 4 || len(f) != 4 {
		t.Errorf("%d failures are explained, and %d are in the answer; want broken, fit, absent and lint", n, len(f))
	}
	// A failure that is allowed is told apart: in its words, its mark, the counts and the filter.
	wantIn(t, page, `class="failed s-allowed"`, ">!</span> allowed", "<b>1</b> allowed", "status=allowed")
	if list := b.page("/run?w=prod&status=allowed"); !strings.Contains(list, `id="t-lint"`) || strings.Contains(list, `id="t-broken"`) {
		t.Error("the filter does not find the allowed failure alone")
	}
	// An earlier run is named by its executions, since the task's latest is another.
	page = b.page("/run?w=prod&r=" + runID)
	if !regexp.MustCompile(`e3 shell /srv/e3 @[0-9a-f-]{18}<`).MatchString(page) {
		t.Error("a run of the past has no command for its execution")
	}
}

// failures are the failures of the bench's run, as commands tell them.
func (b *bench) failures() *explain.Failures {
	b.t.Helper()
	r, err := b.stores.Runs.Report(b.t.Context(), "prod", "")
	if err != nil {
		b.t.Fatal(err)
	}
	return (&explain.FailureReader{Executions: b.stores.Executions, Objects: b.objects}).Read(b.t.Context(), "prod", r.Tasks, 8)
}

// In a window of a notebook the message is in sight, and its command can be copied.
func TestMessageIsInSight(t *testing.T) {
	b := newBench(t)
	b.run(false, ill()...)
	b.serve(ui.Options{})
	tab := b.tab()
	tab.Window(1280, 800, false)
	tab.Go(b.front.URL + "/run?w=prod")
	var bottom float64
	tab.Eval(`document.querySelector("#failures .log").getBoundingClientRect().bottom`, &bottom)
	if bottom > 800 {
		t.Errorf("the first message ends at %v, below the window of 800", bottom)
	}
	tab.Eval(`Object.defineProperty(navigator, "clipboard", {value: {writeText: async (s) => { window.copied = s }}}); document.querySelector("#failures .command .copy").click()`, nil)
	tab.Until(`window.copied !== undefined && document.querySelector("#failures .copy").textContent === "copied"`)
	var copied string
	if tab.Eval("window.copied", &copied); copied != "e3 logs /srv/e3 prod.broken --stderr" {
		t.Errorf("%q was copied", copied)
	}
	keepShot(t, tab, "why", 1280, false)
	if said := tab.Said(); len(said) > 0 {
		t.Errorf("%q", said)
	}
}

// The log of a task that has failed opens at stderr, which is marked. Another task's opens at stdout.
func TestLogOpensWhereItFailed(t *testing.T) {
	b := newBench(t)
	b.run(false, append(ill(), made{name: "fine", state: runview.TaskSuccess, stdout: "all well\n", stderr: "a warning\n", file: "x"})...)
	b.serve(ui.Options{})
	page := b.page("/task?w=prod&t=" + urlOf("fit[0]"))
	wantIn(t, page, "RuntimeError: the loss is NaN", "✗ stderr, where it failed", "log=stdout")
	if strings.Contains(page, "epoch 1") {
		t.Error("it shows stdout")
	}
	wantIn(t, b.page("/task?w=prod&log=stdout&t="+urlOf("fit[0]")), "epoch 1")
	page = b.page("/task?w=prod&t=fine")
	wantIn(t, page, "all well", "log=stderr")
	if strings.Contains(page, "where it failed") {
		t.Error("a success is marked as failed")
	}
}

// ends counts how often the size of a log is asked for, which comes before reading its end.
type ends struct {
	memory
	asked atomic.Int64
}

func (e *ends) Size(ctx context.Context, key refstore.Key) (refstore.StreamInfo, error) {
	if strings.HasSuffix(key.Sort, ".txt") {
		e.asked.Add(1)
	}
	return e.memory.Size(ctx, key)
}

// Of 10,000 tasks with 100 failures few logs are read, and none again while nothing has failed.
func TestFailuresOfALargeRun(t *testing.T) {
	b := newBench(t)
	counted := &ends{memory: b.records}
	b.stores.Executions = executions.NewStore(counted, b.objects)
	b.large(10_000)
	hash, err := objectstore.ParseHash(b.pkg.Tasks[0].Task)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		b.change(hash, 20*i+1, 1)
	}
	if err := b.log.Flush(); err != nil {
		t.Fatal(err)
	}
	b.serve(ui.Options{})
	wantIn(t, b.page("/run?w=prod"), "90 more of train0 ended with exit code 1; their logs were not read")
	const most = 2 * 10 // both streams, since these are empty
	if n := counted.asked.Load(); n > most {
		t.Errorf("%d logs were looked at for 100 failures, want at most %d", n, most)
	}
	before := counted.asked.Load()
	b.tell(lateTask())
	b.page("/run?w=prod")
	if n := counted.asked.Load() - before; n > 0 {
		t.Errorf("%d logs were looked at again, want none: nothing else has failed", n)
	}
	b.tell(events.Event{Time: now, Type: events.TaskFailed, Task: "late", Execution: "01950000-0000-7000-8000-000000000000",
		Data: &events.Data{Attempt: 1, ExitCode: 9, Key: executions.Key{Task: hash, Inputs: executions.InputsHash(nil)}.String()}})
	b.page("/run?w=prod")
	if n := counted.asked.Load() - before; n != 2 {
		t.Errorf("%d logs were looked at for one more failure, want its two", n)
	}
}

// latest are answers with the latest run of the bench's workspace.
type latest struct {
	answers
	runs *runview.Runs
}

func (l latest) Status(ctx context.Context, ws string) (*workspace.Status, error) {
	st := status(ws, dataflow.Absent)
	var err error
	st.Run, err = l.runs.Summary(ctx, ws)
	return st, err
}

// The first page names what failed with the last that it said, and leads to its log in one click.
func TestFirstPageNamesFailures(t *testing.T) {
	for _, live := range []bool{false, true} {
		t.Run(map[bool]string{false: "ended", true: "live"}[live], func(t *testing.T) {
			b := newBench(t)
			counted := &ends{memory: b.records}
			b.stores.Executions, b.stores.Answers = executions.NewStore(counted, b.objects), latest{runs: b.stores.Runs}
			b.run(live, ill()...)
			if !live {
				b.record(record.Run{RunID: runID, WorkspaceName: "prod", PackageRef: "demo@1.0.0", StartedAt: b.began, CompletedAt: now, State: record.RunFailed,
					Summary: record.Summary{Total: 10, Completed: 3, Failed: 7}})
			}
			b.serve(ui.Options{})
			page := b.page("/")
			wantIn(t, page, "fit[0] and 3 more", "RuntimeError: the loss is NaN", "ValueError: no &lt;data&gt;", "and 1 more")
			at, _ := link(t, page, `href="(/task[^"]*fit[^"]*)"()`)
			wantIn(t, b.page(at), "✗ stderr, where it failed", "RuntimeError: the loss is NaN")
			before := counted.asked.Load()
			if b.page("/"); counted.asked.Load() != before {
				t.Errorf("%d logs were looked at again, want none", counted.asked.Load()-before)
			}
		})
	}
}

// Failed finds of a run what its report finds.
func TestFailedIsAsInTheReport(t *testing.T) {
	b := newBench(t)
	b.run(true, ill()...)
	var tasks runview.FailedTasks
	for _, e := range []events.Event{
		{Type: events.TaskRetryScheduled, Task: "broken", Data: &events.Data{Attempt: 2}},
		{Type: events.TaskLeftOut, Task: "fit[1]", Data: &events.Data{Because: "report"}},
		{Type: events.TaskReopened, Task: "fit[2]", Execution: "x", Data: &events.Data{Message: "again"}},
	} {
		head, err := b.stores.Runs.Summary(t.Context(), "prod")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tasks.Read(t.Context(), b.stores.Runs, head); err != nil { // it goes on from there
			t.Fatal(err)
		}
		b.tell(e)
	}
	for _, live := range []bool{true, false} {
		b.desk.live = live
		whole, err := b.stores.Runs.Report(t.Context(), "prod", "")
		if err != nil {
			t.Fatal(err)
		}
		head, err := b.stores.Runs.Summary(t.Context(), "prod")
		if err != nil {
			t.Fatal(err)
		}
		found, err := tasks.Read(t.Context(), b.stores.Runs, head)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for i := range found {
			got = append(got, found[i].Task+" "+strings.Join(found[i].Notes(), ", "))
		}
		for i := range whole.Tasks {
			if r := &whole.Tasks[i]; r.HasFailed() {
				want = append(want, r.Task+" "+strings.Join(r.Notes(), ", "))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || len(got) < 5 {
			t.Errorf("live: %v\n got %q\nwant %q", live, got, want)
		}
	}
}

// A folded node of the graph counts its failures first, names them and leads to them: on a page and in a file.
func TestFoldedFailures(t *testing.T) {
	b := newBench(t)
	var list []made
	for i := range 240 {
		m := made{name: fmt.Sprintf("fit[%d]", i), state: runview.TaskSuccess, file: "f"}
		if i%60 == 7 {
			m.state, m.stderr = runview.TaskFailed, "no luck"
		}
		list = append(list, m)
	}
	b.run(false, list...)
	b.serve(ui.Options{})
	page := b.page("/run?w=prod&view=graph")
	wantIn(t, page, "4 failed, 236 success: fit[7], fit[67], fit[127], fit[187]</title>", ">4 failed, 236 success<")
	at, _ := link(t, page, `href="(/run[^"]*q=fit[^"]*)"()><title>`)
	found := b.page(at)
	wantIn(t, found, `id="t-fit[7]"`, "4 of 240")
	r, err := b.stores.Runs.Report(t.Context(), "prod", "")
	if err != nil {
		t.Fatal(err)
	}
	var file strings.Builder
	if err := ui.WriteRun(t.Context(), &file, b.stores, r, ui.Options{Now: func() time.Time { return now }}); err != nil {
		t.Fatal(err)
	}
	wantIn(t, file.String(), "4 failed, 236 success: fit[7]", `<a href="#log-t7"><title>fit ×240`, `id="log-t7"`)
}
