package explain_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"e3/executions"
	"e3/exportimport"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/explain"
	"e3/internal/verify"
	"e3/refstore"
	"e3/workspace"
)

// A scene is a history with the expected explanation.
type scene struct {
	name    string
	yaml    string                // below "tasks:"
	do      func(h *house)        // after the first start
	bare    bool                  // there is no first start
	target  string                // <workspace>.<task>
	which   func(h *house) string // "@<execution>" of it; nil: its present state
	there   func(h *house) *house // the repository in which why is called; nil: h
	state   explain.State
	kind    explain.Kind
	of      string // the task of the root; "": that of the target
	subject string
	says    []string
	also    func(h *house, w *explain.Explanation) // what else must hold
}

const two = `
  raw: {in: [file], out: raw.txt, run: 'cat "$file" > "$out"'}
  clean: {in: [raw], out: clean.txt, run: 'tac "$raw" > "$out"'}
`

const random = `
  raw: {in: [file], out: raw.txt, run: 'date +%N > "$out"'}
  clean: {in: [raw], out: clean.txt, run: 'cat "$raw" > "$out"'}
`

const failing = `
  raw: {in: [file], out: raw.txt, run: 'cat "$file" > "$out"; echo some words >&2; exit 3'}
  clean: {in: [raw], out: clean.txt, run: 'cat "$raw" > "$out"'}
  report: {in: [clean], out: report.txt, run: 'cat "$clean" > "$out"'}
`

const twoSources = `
  raw: {in: [file], out: raw.txt, run: 'cat "$file" > "$out"'}
  own: {out: own.txt, run: 'echo one > "$out"'}
  both: {in: [raw, own], out: both.txt, run: 'cat "$raw" "$own" > "$out"'}
`

const entries = `
  multi: {in: [file], out: {a: a.txt, b: b.txt}, run: 'cat "$file" > "$b"; echo a > "$a"'}
  ra: {in: {x: multi.a}, out: ra.txt, run: 'cat "$x" > "$out"'}
  rb: {in: {x: multi.b}, out: rb.txt, run: 'cat "$x" > "$out"'}
`

var long = strings.Repeat("x", 400)

func latestOf(ws, task string) func(h *house) string {
	return func(h *house) string { return h.latest(ws, task).ExecutionID }
}

var scenes = []scene{
	{name: "forced", yaml: two, do: func(h *house) { h.start("w", forced("raw")) }, target: "w.raw", which: latestOf("w", "raw"),
		state: explain.Ran, kind: explain.Forced, says: []string{"forced by ann@lab (--force)"}},
	{name: "forced, and its output differs", yaml: random, do: func(h *house) { h.start("w", forced("raw")) }, target: "w.clean",
		state: explain.WouldRun, kind: explain.Nondeterministic, of: "raw", says: []string{"upstream, in raw,", "forced by ann@lab"}},
	{name: "forced, and its output differed", yaml: random, do: func(h *house) {
		h.start("w", forced("raw"))
		h.start("w")
	}, target: "w.clean",
		state: explain.Current, kind: explain.Nondeterministic, of: "raw", says: []string{"upstream, in raw,", "forced by ann@lab"}},
	{name: "rejected", yaml: two, do: func(h *house) {
		e := h.latest("w", "clean")
		_, err := h.curator().Reject(h.Context(), e.Key, e.ExecutionID, &record.Rejection{Rejected: true, By: "eve@lab", At: time.Now(), Reason: "wrong units"})
		h.must(err)
	}, target: "w.clean", state: explain.WouldRun, kind: explain.Rejected, says: []string{"rejected just now by eve@lab: wrong units"}},
	{name: "ran after a rejection", yaml: two, do: func(h *house) {
		e := h.latest("w", "clean")
		_, err := h.curator().Reject(h.Context(), e.Key, e.ExecutionID, &record.Rejection{Rejected: true, By: "eve@lab", At: time.Now(), Reason: "wrong units"})
		h.must(err)
		h.start("w")
	}, target: "w.clean", state: explain.Current, kind: explain.Rejected},
	{name: "pruned", yaml: two, do: func(h *house) { h.prune("clean") }, target: "w.clean", state: explain.WouldRun, kind: explain.Pruned,
		says: []string{"pruned 3 days ago by eve@lab (older than 30d)"}},
	{name: "ran after pruning", yaml: two, do: func(h *house) {
		h.prune("clean")
		h.ahead = 0
		h.start("w")
	}, target: "w.clean", state: explain.Current, kind: explain.Pruned},
	{name: "the pruned one itself", yaml: two, do: func(h *house) {
		h.edit(`'tac "$raw" > "$out"'`, `'cat "$raw" > "$out"'`)
		h.start("w")
		h.prune("clean")
	}, target: "w.clean", which: func(h *house) string { return h.gone }, state: explain.Gone, kind: explain.Command},
	{name: "output gone", yaml: two, do: func(h *house) { h.removeObject(h.latest("w", "clean").OutputHash) }, target: "w.clean",
		state: explain.WouldRun, kind: explain.OutputGone},
	{name: "output was gone", yaml: two + "  own: {out: o, run: 'date +%N > \"$out\"'}\n", do: func(h *house) {
		h.removeObject(h.latest("w", "own").OutputHash)
		h.start("w")
	}, target: "w.own", state: explain.Current, kind: explain.OutputGone, says: []string{"was missing then"}},
	{name: "record unreadable", yaml: two, do: func(h *house) {
		h.must(os.WriteFile(h.recordFile(h.latest("w", "clean")), []byte("\x1b[31mnonsense"), 0o644))
		h.doubt()
	}, target: "w.clean", state: explain.WouldRun, kind: explain.Unreadable},
	{name: "ran after its record was unreadable", yaml: two, do: func(h *house) {
		h.must(os.WriteFile(h.recordFile(h.latest("w", "clean")), nil, 0o644))
		h.doubt()
		h.start("w")
	}, target: "w.clean", state: explain.Current, kind: explain.Unreadable},
	{name: "record gone", yaml: two, do: func(h *house) {
		h.must(os.RemoveAll(filepath.Dir(h.recordFile(h.latest("w", "clean")))))
		h.doubt()
	}, target: "w.clean", state: explain.WouldRun, kind: explain.RecordGone},
	{name: "failed", yaml: failing, target: "w.raw", state: explain.Failed, kind: explain.ExitCode, says: []string{"failed with exit code 3"},
		also: func(h *house, w *explain.Explanation) {
			if w.Failure == nil || strings.Join(w.Failure.Tail, "|") != "some words" || w.Failure.Log != "stderr" {
				h.Errorf("failure is %+v", w.Failure)
			}
		}},
	{name: "failed before", yaml: failing, do: func(h *house) { h.start("w") }, target: "w.raw", which: latestOf("w", "raw"),
		state: explain.Failed, kind: explain.ExitCode, also: func(h *house, w *explain.Explanation) {
			if w.Reason == nil || w.Reason.Cause.Kind != explain.FailedBefore {
				h.Errorf("reason is %+v, want that it had failed before", w.Reason)
			}
		}},
	{name: "succeeded after a failure", yaml: `
  raw: {in: [file], out: raw.txt, run: 'test -e DIR/go && cat "$file" > "$out"'}
`, do: func(h *house) {
		h.write("go", "")
		h.start("w")
	}, target: "w.raw", state: explain.Current, kind: explain.FailedBefore, subject: "exit code", says: []string{"the last attempt on the same inputs (just now) failed with exit code 1"}},
	{name: "failed since the command changed", yaml: two, do: func(h *house) {
		h.edit(`'tac "$raw" > "$out"'`, `'cat "$raw" > "$out"; exit 4'`)
		h.start("w")
	}, target: "w.clean", state: explain.Failed, kind: explain.ExitCode, says: []string{"failed with exit code 4; since it last worked the command changed"},
		also: changed(explain.Command, "clean")},
	{name: "failed since an input upstream changed", yaml: `
  raw: {in: [file], out: raw.txt, run: 'cat "$file" > "$out"'}
  clean: {in: [raw], out: clean.txt, run: 'grep -v bad "$raw" > "$out"'}
`, do: func(h *house) {
		h.write("data.txt", "bad\n")
		h.start("w")
	}, target: "w.clean", state: explain.Failed, kind: explain.ExitCode, says: []string{"since it last worked input file changed"},
		also: changed(explain.Input, "raw")},
	{name: "fails where it had succeeded", yaml: `
  raw: {in: [file], out: raw.txt, run: 'test ! -e DIR/stop && cat "$file" > "$out"'}
`, do: func(h *house) {
		h.write("stop", "")
		h.start("w", forced(""))
	}, target: "w.raw", which: latestOf("w", "raw"), state: explain.Failed, kind: explain.ExitCode, says: []string{"the same command on the same inputs had succeeded before"}},
	{name: "timeout", yaml: `
  raw: {in: [file], out: raw.txt, timeout: 50ms, run: 'sleep 60'}
`, target: "w.raw", state: explain.Failed, kind: explain.TimedOut, says: []string{"timed out after 50ms"}},
	{name: "killed by a signal", yaml: `
  raw: {in: [file], out: raw.txt, run: 'kill -9 $$'}
`, target: "w.raw", state: explain.Failed, kind: explain.Signal, says: []string{"was killed by signal 9"}},
	{name: "no output", yaml: `
  raw: {in: [file], out: raw.txt, run: 'true'}
`, target: "w.raw", state: explain.Failed, kind: explain.BadOutput},
	{name: "cancelled", bare: true, yaml: `
  raw: {in: [file], out: raw.txt, run: 'touch DIR/began; sleep 60'}
`, do: func(h *house) {
		ctx, cancel := context.WithCancel(h.Context())
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				if _, err := os.Stat(filepath.Join(h.dir, "began")); err == nil {
					cancel()
				}
			}
		}()
		h.startIn(ctx, "w")
	}, target: "w.raw", state: explain.Failed, kind: explain.Cancelled, says: []string{"was cancelled"}},
	{name: "crashed", yaml: two, do: func(h *house) {
		e := h.latest("w", "clean")
		h.must(os.RemoveAll(filepath.Dir(h.recordFile(e))))
		h.record(e, h.id(-time.Hour), func(s *record.Status) { s.State = record.Running })
		h.doubt()
	}, target: "w.clean", state: explain.WouldRun, kind: explain.FailedBefore, subject: "crashed", says: []string{"was interrupted"}},
	{name: "retried", yaml: `
  raw: {in: [file], out: raw.txt, retries: 2, run: 'test -e DIR/once || { touch DIR/once; exit 5; }; cat "$file" > "$out"'}
`, target: "w.raw", state: explain.Current, kind: explain.Retry, says: []string{"attempt 1 of its run failed with exit code 5"},
		also: func(h *house, w *explain.Explanation) {
			if w.Reason.Before == nil || w.Reason.Before.Cause.Kind != explain.NeverRan {
				h.Errorf("the first attempt was made because %+v", w.Reason.Before)
			}
		}},
	{name: "skipped", yaml: failing, target: "w.report", state: explain.Skipped, kind: explain.ExitCode, of: "raw",
		says: []string{"w.report was skipped because raw failed with exit code 3"}, also: func(h *house, w *explain.Explanation) {
			if got := strings.Join(w.Chain, " "); got != "raw clean report" {
				h.Errorf("chain is %q", got)
			}
		}},
	{name: "waits since the failed one was edited", yaml: failing, do: func(h *house) { h.edit("; exit 3", "") }, target: "w.report",
		state: explain.Waits, kind: explain.FailedBefore, of: "raw"},
	{name: "never ran", yaml: two, bare: true, target: "w.raw", state: explain.WouldRun, kind: explain.NeverRan},
	{name: "first run", yaml: two, target: "w.clean", state: explain.Current, kind: explain.NeverRan},
	{name: "renamed", yaml: two, do: func(h *house) { h.edit("  clean: {", "  tidy: {") }, target: "w.tidy", state: explain.Current, kind: explain.NeverRan, of: "clean",
		also: noted("w.clean ran the same")},
	{name: "renamed and changed", yaml: two, do: func(h *house) { h.edit("  clean: {", "  tidy: {env: {A: b}, ") }, target: "w.tidy",
		state: explain.WouldRun, kind: explain.Environment, subject: "A", also: func(h *house, w *explain.Explanation) {
			if c := w.Reason.Compared; c == nil || c.Task != "clean" || !strings.Contains(strings.Join(w.Reason.Notes, "\n"), "w.clean") {
				h.Errorf("compared with %+v, notes %q", c, w.Reason.Notes)
			}
		}},
	{name: "removed", yaml: two, do: func(h *house) {
		h.edit("  clean: {in: [raw], out: clean.txt, run: 'tac \"$raw\" > \"$out\"'}\n", "")
		h.start("w")
	}, target: "w.clean", state: explain.Removed, kind: explain.NeverRan},
	{name: "two changes, one behind the other", yaml: two, do: func(h *house) {
		h.write("data.txt", "1\n2\n3\n")
		h.edit(`'tac "$raw" > "$out"'`, `'cat "$raw" > "$out"'`)
	}, target: "w.clean", state: explain.Waits, kind: explain.Input, of: "raw", says: []string{"w.clean waits for raw, which would run because input file changed", "and 1 more cause"},
		also: func(h *house, w *explain.Explanation) {
			if len(w.Roots) != 2 || w.Roots[1].Kind != explain.Command || w.Roots[1].Task != "clean" {
				h.Errorf("roots are %+v", w.Roots)
			}
		}},
	{name: "touched only", yaml: two, do: func(h *house) {
		was := h.latest("w", "raw").ExecutionID
		later := time.Now().Add(time.Minute)
		h.must(os.Chtimes(filepath.Join(h.dir, "data.txt"), later, later))
		h.start("w")
		if is := h.latest("w", "raw").ExecutionID; is != was {
			h.Errorf("it ran again")
		}
	}, target: "w.raw", state: explain.Current, kind: explain.NeverRan},
	{name: "entry-level cut-off", yaml: `
  multi: {in: [file], out: {a: a.txt, b: b.txt}, run: 'cat "$file" > "$b"; echo a > "$a"'}
  ra: {in: {x: multi.a}, out: ra.txt, run: 'cat "$x" > "$out"'}
`, do: func(h *house) {
		h.write("data.txt", "other")
		h.start("w")
	}, target: "w.ra", state: explain.Current, kind: explain.NeverRan, also: func(h *house, w *explain.Explanation) {
		up := h.why("w.multi")
		if up.Root.Kind != explain.Input || up.Downstream == nil || up.Downstream.Answered != 1 || up.Downstream.Total != 2 {
			h.Errorf("multi: root %+v, downstream %+v, want ra answered", up.Root, up.Downstream)
		}
	}},
	{name: "an id from the future", yaml: two, do: func(h *house) {
		h.record(h.latest("w", "clean"), h.id(24*time.Hour), nil)
		h.edit(`'tac "$raw" > "$out"'`, `'cat "$raw" > "$out"'`)
		h.start("w")
	}, target: "w.clean", state: explain.Current, kind: explain.Command, also: noted("a clock was ahead")},
	{name: "an execution before all others by its id", yaml: two, do: func(h *house) {
		h.record(h.latest("w", "clean"), h.id(-24*time.Hour), nil)
	}, target: "w.clean", which: func(h *house) string { return h.made }, state: explain.Ran, kind: explain.NeverRan},
	{name: "verified", yaml: two, do: func(h *house) {
		h.must(verify.Rerun(h.Context(), verify.RerunStores{Objects: h.Objects, Sessions: h.Records, Executor: h.executor, Workspaces: h.Workspaces},
			"w", "clean", func(*verify.Again) {}))
	}, target: "w.clean", which: latestOf("w", "clean"), state: explain.Ran, kind: explain.Rerun, says: []string{"to verify it"}},
	{name: "old content collected", yaml: two, do: func(h *house) {
		old := h.latest("w", "raw").InputHashes[0]
		h.write("data.txt", "1\n2\n3\n")
		h.start("w")
		h.removeObject(old)
	}, target: "w.clean", state: explain.Current, kind: explain.Input, of: "raw", subject: "file", also: func(h *house, w *explain.Explanation) {
		d := w.Reason.Upstream[0].Differences[0]
		if d.Change == nil || !strings.Contains(d.Change.Gone, "the old content is no longer here: only its hash is known") {
			h.Errorf("change is %+v", d.Change)
		}
	}},
	{name: "answered from another workspace", yaml: two, do: func(h *house) { h.deploy("v"); h.start("v") }, target: "v.clean",
		state: explain.Current, kind: explain.NeverRan, also: noted("w.clean ran the same")},
	{name: "compared with another workspace", yaml: two, do: func(h *house) {
		h.edit(`'tac "$raw" > "$out"'`, `'cat "$raw" > "$out"'`)
		h.deploy("v")
	}, target: "v.clean", state: explain.WouldRun, kind: explain.Command, also: func(h *house, w *explain.Explanation) {
		if c := w.Reason.Compared; c == nil || c.Workspace != "w" {
			h.Errorf("compared with %+v, want one of w", c)
		}
	}},
	{name: "imported history", yaml: two, do: func(h *house) { h.write("data.txt", "1\n2\n3\n"); h.start("w") }, target: "w.clean",
		there: func(h *house) *house { return h.sent(exportimport.ImportOptions{NewWorkspace: true}) },
		state: explain.Current, kind: explain.Input, of: "raw", subject: "file", also: noted("imported from bob@far")},
	{name: "imported run of a workspace that is not here", yaml: two, do: func(h *house) { h.write("data.txt", "1\n2\n3\n"); h.start("w") }, target: "w.clean",
		there: func(h *house) *house { return h.sent(exportimport.ImportOptions{}) },
		state: explain.Ran, kind: explain.Input, of: "raw", subject: "file", also: noted("workspace w is not here")},
	{name: "imported failure", yaml: failing, target: "w.raw", there: func(h *house) *house { return h.sent(exportimport.ImportOptions{}) },
		state: explain.Failed, kind: explain.ExitCode},
	{name: "removed workspace", yaml: two, do: func(h *house) {
		h.edit(`'tac "$raw" > "$out"'`, `'cat "$raw" > "$out"'`)
		h.start("w")
		h.must(h.Workspaces.Cleaner.Remove(h.Context(), "w"))
	}, target: "w.clean", state: explain.Ran, kind: explain.Command, also: noted("workspace w is not here")},
	{name: "the same twice", yaml: `
  one: {in: [file], out: o.txt, run: 'cat "$file" > "$out"'}
  two: {in: [file], out: o.txt, run: 'cat "$file" > "$out"'}
  a: {in: [one], out: a.txt, run: 'cat "$one" > "$out"'}
  b: {in: [two], out: b.txt, run: 'cat "$two" > "$out"'}
  cat: {in: [a, b], out: c.txt, run: 'cat "$a" "$b" > "$out"'}
`, bare: true, target: "w.cat", state: explain.Waits, kind: explain.NeverRan, of: "one", says: []string{"w.cat waits for one"}},
	{name: "gone back, then changed", yaml: two, do: func(h *house) { // the nearest success is the state gone back to, not the one tried in between
		h.write("data.txt", "1\n2\nlonger\n")
		h.start("w")
		h.write("data.txt", "1\n2\n")
		h.start("w")
		h.write("data.txt", "")
		h.start("w")
	}, target: "w.clean", state: explain.Current, kind: explain.Input, of: "raw", subject: "file", says: []string{"file changed (4 B → 0 B)"}},
	{name: "gone back upstream, then changed elsewhere", yaml: twoSources, do: func(h *house) {
		h.edit("one > ", "another > ")
		h.start("w")
		h.edit("another > ", "one > ")
		h.start("w")
		h.write("data.txt", "other")
		h.start("w")
	}, target: "w.both", state: explain.Current, kind: explain.Input, of: "raw", subject: "file", also: roots(1)},
	{name: "the same made anew later", yaml: entries, do: func(h *house) { // a later remake of multi.b is not the cause for its earlier readers
		h.write("data.txt", "other")
		h.start("w")
		h.edit("echo a > ", "echo c > ")
		h.start("w")
	}, target: "w.rb", state: explain.Current, kind: explain.Input, of: "multi", subject: "file", also: roots(1)},
	{name: "the same made anew between", yaml: entries, do: func(h *house) {
		h.edit("echo a > ", "echo c > ")
		h.start("w")
		h.write("data.txt", "other")
		h.start("w")
	}, target: "w.rb", state: explain.Current, kind: explain.Input, of: "multi", subject: "file", also: roots(1)},
	{name: "the same made anew, imported without events", yaml: entries, do: func(h *house) {
		h.write("data.txt", "other")
		h.start("w")
		h.edit("echo a > ", "echo c > ")
		h.start("w")
		h.edit("echo c > ", "echo a > ")
		h.start("w")
	}, target: "w.rb", there: func(h *house) *house {
		to := h.sent(exportimport.ImportOptions{NewWorkspace: true})
		h.must(os.RemoveAll(to.file("events")))
		return to
	}, state: explain.Current, kind: explain.Input, of: "multi", subject: "file", also: roots(1)},
	{name: "imported without what ran before", yaml: two, do: func(h *house) { h.write("data.txt", "1\n2\n3\n"); h.start("w") }, target: "w.clean",
		there: func(h *house) *house { return h.sentLatest() },
		state: explain.Current, kind: explain.NeverRan, says: []string{"that ran because nothing that ran before it is on record here"}},
	{name: "mended", yaml: `
  raw: {in: [file], out: raw.txt, run: 'exit 3'}
`, do: func(h *house) {
		h.edit("'exit 3'", `'cat "$file" > "$out"'`)
		h.start("w")
	}, target: "w.raw", state: explain.Current, kind: explain.FailedBefore, subject: "exit code", says: []string{"it had never succeeded: the last attempt"}},
	{name: "interrupted, and only events tell", yaml: two, do: func(h *house) {
		h.write("data.txt", "1\n2\n3\n")
		h.start("w")
		e := h.latest("w", "raw")
		h.must(os.RemoveAll(filepath.Dir(filepath.Dir(h.recordFile(e)))))
		h.must(os.RemoveAll(h.file("events")))
		run := h.id(0)
		h.must(h.Records.Append(h.Context(), refstore.Key{Partition: "EVENTS/w", Sort: run}, 0, h.lines(
			events.Event{Run: run, Time: time.Now(), Type: events.RunStarted},
			events.Event{Run: run, Time: time.Now(), Type: events.TaskStarted, Task: "raw", Execution: h.id(0), Data: &events.Data{Key: e.Key.String()}})))
		h.doubt()
	}, target: "w.raw", state: explain.WouldRun, kind: explain.FailedBefore, subject: "crashed", says: []string{"the last attempt on the same inputs (just now) was interrupted"}},
	{name: "fails where it had succeeded, and that answers", yaml: `
  raw: {in: [file], out: raw.txt, run: 'test ! -e DIR/stop && cat "$file" > "$out"'}
`, do: func(h *house) {
		h.write("stop", "")
		h.start("w", forced(""))
	}, target: "w.raw", state: explain.Current, kind: explain.NeverRan, also: noted("its latest attempt, execution ")},
	{name: "the rejected one itself", yaml: two, do: func(h *house) {
		e := h.latest("w", "clean")
		h.gone = e.ExecutionID
		_, err := h.curator().Reject(h.Context(), e.Key, e.ExecutionID, &record.Rejection{Rejected: true, By: "eve@lab", At: time.Now(), Reason: "wrong units"})
		h.must(err)
		h.start("w")
	}, target: "w.clean", which: func(h *house) string { return h.gone }, state: explain.Ran, kind: explain.NeverRan, also: noted("it was rejected just now by eve@lab: wrong units")},
	{name: "one of another task", yaml: two, target: "w.clean", which: latestOf("w", "raw"), state: explain.Ran, kind: explain.NeverRan, of: "raw",
		says: []string{"w.raw ran because"}, also: noted("the execution is not one of w.clean: w.raw ran it")},
	{name: "waits for one, another is edited besides", yaml: two + "  report: {in: [clean], out: r.txt, run: 'cat \"$clean\" > \"$out\"'}\n", do: func(h *house) {
		h.write("data.txt", "1\n2\n3\n")
		h.edit(`'tac "$raw" > "$out"'`, `'cat "$raw" > "$out"'`)
	}, target: "w.report", state: explain.Waits, kind: explain.Input, of: "raw", subject: "file", says: []string{"waits for raw, which would run because"}, also: roots(2)},
	{name: "another order", yaml: `
  raw: {in: [file], out: raw.txt, env: {A: a, B: b}, run: 'cat "$file" > "$out"'}
`, do: func(h *house) {
		h.edit("A: a, B: b", "A: a, B: c")
		h.start("w")
		h.edit("A: a, B: c", "B: b, A: a")
	}, target: "w.raw", state: explain.WouldRun, kind: explain.Definition, subject: "order"},
	{name: "an item under another name", yaml: `
  sq: {matrix: {a: [1, 2], b: [x, z]}, out: k.txt, run: 'echo "$a$b" > "$out"'}
`, do: func(h *house) { h.edit("a: [1, 2], b: [x, z]", "b: [x, z], a: [1, 2]") }, target: "w.sq[b=z,a=1]", state: explain.WouldRun, kind: explain.Definition, subject: "order",
		also: func(h *house, w *explain.Explanation) {
			if c := w.Reason.Compared; c == nil || c.Task != "sq[a=1,b=z]" {
				h.Errorf("compared with %+v, want sq[a=1,b=z]", c)
			}
		}},
	{name: "the end of a long line", yaml: "  raw: {in: [file], out: raw.txt, env: {E: '" + long + "1'}, run: ': " + long + "1; cat \"$file\" > \"$out\"'}\n", do: func(h *house) {
		h.edit(long+"1'}", long+"2'}")
		h.edit(long+"1;", long+"2;")
	}, target: "w.raw", state: explain.WouldRun, kind: explain.Command, also: func(h *house, w *explain.Explanation) {
		l, env := w.Reason.Differences[0].Lines, w.Reason.Differences[1]
		if len(l) != 2 || !strings.Contains(l[0].Text, "x1; cat") || !strings.Contains(l[1].Text, "x2; cat") || !strings.HasSuffix(env.Was, `x1"`) || !strings.HasSuffix(env.Is, `x2"`) {
			h.Errorf("lines %q, variable %s → %s, want to see where they differ", l, env.Was, env.Is)
		}
	}},
	{name: "gone from the package file", yaml: two, do: func(h *house) {
		h.edit("  clean: {in: [raw], out: clean.txt, run: 'tac \"$raw\" > \"$out\"'}\n", "")
	}, target: "w.clean", state: explain.Ran, kind: explain.NeverRan, also: noted("its package file has it no more")},
	{name: "the package file is broken", yaml: two, do: func(h *house) { h.edit("tasks:", "taskss:") }, target: "w.clean",
		state: explain.Current, kind: explain.NeverRan, also: noted("the package file cannot be taken in")},
}

func changed(kind explain.Kind, task string) func(*house, *explain.Explanation) {
	return func(h *house, w *explain.Explanation) {
		h.Helper()
		if len(w.Changed) != 1 || w.Changed[0].Kind != kind || w.Changed[0].Task != task {
			h.Errorf("changed since it last worked: %+v, want %s of %s", w.Changed, kind, task)
		}
	}
}

func noted(text string) func(*house, *explain.Explanation) {
	return func(h *house, w *explain.Explanation) {
		h.Helper()
		if !strings.Contains(strings.Join(w.Notes, "\n"), text) {
			h.Errorf("notes are %q, want %q in them", w.Notes, text)
		}
	}
}

func roots(n int) func(*house, *explain.Explanation) {
	return func(h *house, w *explain.Explanation) {
		h.Helper()
		if len(w.Roots) != n {
			h.Errorf("roots are %+v, want %d", w.Roots, n)
		}
	}
}

// prune removes the latest execution of a task of w, as if this had happened three days ago.
func (h *house) prune(task string) {
	h.Helper()
	e := h.latest("w", task)
	h.gone = e.ExecutionID
	_, err := h.curator().Prune(h.Context(), e.Key.Task, []executions.Victim{e.Victim()}, "eve@lab", "older than 30d")
	h.must(err)
	h.ahead = 3*24*time.Hour + time.Minute
}

// doubt removes the proof that nothing has changed. Changes of files by hand would not do this.
func (h *house) doubt() {
	h.Helper()
	end, err := h.curator().Begin(h.Context())
	h.must(err)
	end()
}

// id makes an id with another time.
func (h *house) id(ahead time.Duration) string {
	h.Helper()
	u, err := uuid.NewV7()
	h.must(err)
	ms := time.Now().Add(ahead).UnixMilli()
	for i := range 6 {
		u[i] = byte(ms >> (40 - 8*i))
	}
	return u.String()
}

// record puts a copy of an execution on record under another id.
func (h *house) record(e *executions.Execution, id string, adjust func(*record.Status)) {
	h.Helper()
	status := e.Status
	status.ExecutionID = id
	at, err := executions.ParseID(id)
	h.must(err)
	status.StartedAt, status.CompletedAt = at, at.Add(time.Second)
	if adjust != nil {
		adjust(&status)
	}
	_, err = h.Records.Put(h.Context(), refstore.Record{
		Key: refstore.Key{Partition: "EXECUTION/" + e.Key.String(), Sort: id}, Value: status.Encode(),
		Fields: []refstore.Field{{Name: "detail.beast2", Value: e.Detail.Encode()}},
	})
	h.must(err)
	h.made = id
}

// sent exports workspace w and imports it into an empty repository.
func (h *house) sent(o exportimport.ImportOptions) *house {
	h.Helper()
	dir := filepath.Join(h.dir, "there")
	h.must(os.MkdirAll(dir, 0o755))
	to := newHouse(h.tester, dir)
	h.send(to, "w", o)
	return to
}

// sentLatest is sent without the executions before the latest run.
func (h *house) sentLatest() *house {
	h.Helper()
	dir := filepath.Join(h.dir, "there")
	h.must(os.MkdirAll(dir, 0o755))
	to := newHouse(h.tester, dir)
	h.sendWith(to, "w", exportimport.ExportOptions{}, exportimport.ImportOptions{NewWorkspace: true})
	return to
}

func TestCauses(t *testing.T) {
	for _, tt := range scenes {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t, t.TempDir())
			defer h.Close()
			h.write("data.txt", "1\n2\n")
			h.write("e3.yaml", "e3: 1\nname: p\ninputs: {file: {file: data.txt}}\ntasks:\n"+strings.ReplaceAll(strings.TrimLeft(tt.yaml, "\n"), "DIR", h.dir))
			h.deploy("w")
			if !tt.bare {
				h.start("w")
			}
			if tt.do != nil {
				tt.do(h)
			}
			target := tt.target
			if tt.which != nil {
				target += "@" + tt.which(h)
			}
			at := h
			if tt.there != nil {
				at = tt.there(h)
				defer at.Close()
			}
			w := at.why(target)
			of := tt.of
			if of == "" {
				_, of, _ = strings.Cut(tt.target, ".")
			}
			if w.State != tt.state || w.Root.Kind != tt.kind || w.Root.Task != of || tt.subject != "" && w.Root.Subject != tt.subject {
				t.Errorf("got %s, root %s of %s (%q)\nwant %s, %s of %s\nsentence %q\nreason %+v", w.State, w.Root.Kind, w.Root.Task, w.Root.Subject, tt.state, tt.kind, of, w.Sentence, w.Reason)
			}
			for _, says := range tt.says {
				if !strings.Contains(w.Sentence, says) {
					t.Errorf("got %q, want %q in it", w.Sentence, says)
				}
			}
			if tt.also != nil {
				tt.also(at, w)
			}
		})
	}
}

func TestUnknown(t *testing.T) {
	h := newHouse(t, t.TempDir())
	defer h.Close()
	h.furnish()
	h.deploy("w")
	h.start("w")
	x := h.explainer()
	for _, tt := range []struct {
		ws, task, id string
		want         error
	}{
		{"w", "rwa", "", workspace.ErrNotFound},
		{"none", "raw", "", workspace.ErrNotFound},
		{"w", "raw", "ffff", workspace.ErrNotFound},
		{"w", "rwa", "ffff", workspace.ErrNotFound},
	} {
		w, err := x.Why(t.Context(), tt.ws, tt.task, tt.id)
		var unknown *workspace.UnknownError
		if !errors.Is(err, tt.want) || !errors.As(err, &unknown) {
			t.Errorf("%v: got %+v, %v, want an UnknownError", tt, w, err)
		}
	}
	h.start("w", forced("raw"))
	if _, err := x.Why(t.Context(), "w", "raw", "0"); !errors.Is(err, executions.ErrAmbiguous) {
		if _, err := h.explainer().Why(t.Context(), "w", "raw", "0"); !errors.Is(err, executions.ErrAmbiguous) {
			t.Errorf("a prefix of two: got %v", err)
		}
	}
}
