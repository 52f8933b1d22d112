package exportimport_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/executions"
	"e3/exportimport"
	"e3/internal/format/record"
	"e3/workspace"
)

// chain is three tasks, each of which reads the one before, and an independent task.
const chain = `e3: 1
name: chain
inputs:
  text: {file: text.txt}
tasks:
  first:  {in: {t: text}, out: one, run: "cat $out. $t."}
  second: {in: {f: first}, out: two, run: "cat $out. $f."}
  third:  {in: {s: second}, out: three, run: "cat $out. $s."}
`

func (s *site) chain(ws string) {
	s.t.Helper()
	s.write("text.txt", "some text")
	s.deploy(ws, chain)
}

// answering returns the executions that a start of a workspace would use, by task.
func (s *site) answering(ws string) map[string]string {
	s.t.Helper()
	var mu sync.Mutex
	found := map[string]string{}
	s.must(s.repo.Workspaces.Planner.Hits(s.ctx, ws, func(task string, _ executions.Key, id string) error {
		mu.Lock()
		defer mu.Unlock()
		found[task] = id
		return nil
	}))
	return found
}

// sent returns the executions in a zip, by id.
func sent(t failer, path string) map[string]*record.Status {
	t.Helper()
	_, content := entries(t, path)
	all := map[string]*record.Status{}
	for name, data := range content {
		if parts := strings.Split(name, "/"); parts[0] == "executions" && parts[4] == "status.beast2" {
			status, err := record.DecodeStatus([]byte(data))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all[parts[3]] = status
		}
	}
	return all
}

func filtered(pattern string) func(*workspace.StartOptions) {
	return func(o *workspace.StartOptions) { o.Filter = pattern }
}

// Whichever run has made an output, its execution is in the zip.
func TestExportIsWhole(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(s *site)
		runs int64    // commands that a start elsewhere runs
		want int      // executions in the zip
		note []string // parts of the notes, in order
	}{
		"after a filtered start": {do: func(s *site) { s.start("w"); s.start("w", filtered("first")) }, want: 3},
		"never but filtered": {do: func(s *site) { s.start("w", filtered("second")); s.start("w", filtered("first")) }, runs: 1, want: 2,
			note: []string{"no result of task third is exported: it has not run on what the workspace holds"}},
		"after a cancelled run": {do: func(s *site) {
			s.start("w")
			ctx, cancel := context.WithCancel(s.ctx)
			s.during = cancel
			was := s.ctx
			s.ctx = ctx
			s.start("w", func(o *workspace.StartOptions) { o.Force, o.Concurrency = true, 1 })
			s.ctx, s.during = was, nil
		}, want: 3},
		"inputs were set since": {do: func(s *site) { s.start("w"); s.set("w", "text", "other"); s.start("w", filtered("first")) }, runs: 2, want: 3},
		"another workspace answers": {do: func(s *site) {
			s.deploy("other", chain)
			s.start("other")
		}, want: 3, note: []string{"the workspace has not been run"}},
		"nothing has run": {do: func(*site) {}, runs: 3, note: []string{
			"the workspace has not been run",
			"no result of task first is exported: it has not run on what the workspace holds",
			"no result of task second is exported: it reads what task first makes, which has none either",
			"no result of task third is exported: it reads what task second makes, which has none either"}},
		"another task made it": {do: func(s *site) {
			s.start("w")
			s.deploy("w", strings.Replace(chain, "cat $out. $s.", "say so\\ncat $out. $s.", 1))
			s.start("w", filtered("first"))
		}, runs: 1, want: 3},
		"rejected": {do: func(s *site) {
			s.start("w")
			for _, e := range s.all() {
				if e.Detail.Task == "third" {
					_, err := s.results.Curator.Reject(s.ctx, e.Key, e.ExecutionID, &record.Rejection{Rejected: true, By: "ann", At: time.Now()})
					s.must(err)
				}
			}
			s.start("w", filtered("second"))
		}, runs: 1, want: 3, note: []string{"was rejected by ann and is no answer, neither here nor there"}},
		"pruned": {do: func(s *site) {
			s.start("w")
			s.start("w", filtered("second"))
			for _, e := range s.all() {
				if e.Detail.Task == "third" {
					_, err := s.results.Curator.Prune(s.ctx, e.Key.Task, []executions.Victim{e.Victim()}, "ann", "old")
					s.must(err)
				}
			}
		}, runs: 1, want: 2, note: []string{"no result of task third is exported: nothing on record has made its output b94f6f12; execution "}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newSite(t, "ann@alpha"), newSite(t, "bob@beta")
			a.chain("w")
			c.do(a)
			zip, exported := a.export("w", exportimport.ExportOptions{})
			if len(sent(t, zip)) != c.want {
				t.Errorf("%d executions were exported, want %d: %+v", len(sent(t, zip)), c.want, exported)
			}
			for i, n := range c.note {
				if i >= len(exported.Notes) || !strings.Contains(exported.Notes[i], n) {
					t.Errorf("notes are %q, want %q", exported.Notes, c.note)
					break
				}
			}
			if len(exported.Notes) != len(c.note) {
				t.Errorf("notes are %q, want %q", exported.Notes, c.note)
			}
			b.importZip(zip, exportimport.ImportOptions{NewWorkspace: true})
			if b.start("w"); b.ran.Load() != c.runs {
				t.Errorf("elsewhere a start runs %d commands, want %d", b.ran.Load(), c.runs)
			}
		})
	}
}

// Each attempt of the run travels, with its log.
func TestFailedAttemptsTravel(t *testing.T) {
	a, b := newSite(t, "ann@alpha"), newSite(t, "bob@beta")
	a.deploy("w", "e3: 1\nname: f\ntasks:\n  flaky: {out: a, retries: {max: 3, backoff: 1ms}, run: \"say oh no\\nfail\"}\n")
	a.start("w")
	zip, exported := a.export("w", exportimport.ExportOptions{})
	if exported.Executions != 4 || len(a.all()) != 4 {
		t.Errorf("exported %+v of %d executions", exported, len(a.all()))
	}
	b.importZip(zip, exportimport.ImportOptions{NewWorkspace: true})
	for _, e := range b.all() {
		if e.State != record.Failed || b.log(e, executions.Stdout) != "oh no\n" {
			t.Errorf("execution %s is %+v with log %q", e.ExecutionID, e, b.log(e, executions.Stdout))
		}
	}
}

// After any history, the executions that a start here would use are hits there too, and every output of the workspace
// has its execution or a note.
func TestWholeModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := histories.Draw(t, "history")
		type act struct {
			told string
			do   func(*site)
		}
		var acts []act
		for range rapid.IntRange(1, 4).Draw(t, "acts") {
			task := fmt.Sprintf("t%d", rapid.IntRange(0, 4).Draw(t, "task"))
			switch rapid.IntRange(0, 3).Draw(t, "act") {
			case 0, 1:
				force := rapid.Bool().Draw(t, "force")
				acts = append(acts, act{"start " + task, func(s *site) {
					if strings.Contains(h.pkg, " "+task+":") {
						s.start("w", filtered(task), func(o *workspace.StartOptions) { o.Force = force })
					}
				}})
			case 2:
				acts = append(acts, act{"prune " + task, func(s *site) { s.pruneTask(task) }})
			default:
				text := rapid.SampledFrom([]string{"u", "v"}).Draw(t, "text")
				acts = append(acts, act{"set i0 " + text, func(s *site) { s.set("w", "i0", text) }})
			}
		}
		for _, x := range acts {
			h.steps, h.told = append(h.steps, x.do), append(h.told, x.told)
		}
		dir := quickDir(t)
		defer os.RemoveAll(dir)
		a, b := openSite(t, dir+"/a", "ann@alpha"), openSite(t, dir+"/b", "bob@beta")
		defer a.close()
		defer b.close()
		h.play(a)
		zip, exported := a.export("w", h.options)
		b.importZip(zip, exportimport.ImportOptions{NewWorkspace: true})
		if here, there := a.answering("w"), b.answering("w"); !maps.Equal(here, there) {
			t.Errorf("%v\nhere a start is answered by %v, there by %v", h, here, there)
		}
		there := map[string]bool{} // outputs
		for _, status := range sent(t, zip) {
			there[status.OutputHash] = true
		}
		rows, err := a.repo.Workspaces.Datasets.Names(a.ctx, "w")
		a.must(err)
		for _, d := range rows {
			if d.Kind == record.LeafUnassigned || there[d.Hash] || !d.Output {
				continue
			}
			if !slices.ContainsFunc(exported.Notes, func(n string) bool { return strings.Contains(n, d.Name) }) {
				t.Errorf("%v\ndataset %s has no execution in the zip and no note: %q", h, d.Name, exported.Notes)
			}
		}
	})
}

// pruneTask removes all executions of a task.
func (s *site) pruneTask(name string) {
	for _, e := range s.all() {
		if e.Detail.Task == name {
			_, err := s.results.Curator.Prune(s.ctx, e.Key.Task, []executions.Victim{e.Victim()}, "ann", "tired of it on "+time.Now().Format(time.DateOnly))
			s.must(err)
		}
	}
}
