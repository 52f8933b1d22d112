package main

import (
	"context"
	"regexp"
	"strings"
	"sync"

	"e3/executions"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/explain"
	"e3/internal/repo"
)

// A shownFailure is a failure with the end of its log, and the tasks of its family that failed in the same way.
type shownFailure struct {
	failure
	lines  []string
	stream executions.Stream
	also   []string
}

// explainFailures prints the first failures with the ends of their logs. Of those whose logs it reads, items of a matrix
// that failed alike are told together. Each log costs requests of a shared store, so it reads few.
func explainFailures(ctx context.Context, a *app, r *repo.Repo, location, ws string, failures []failure) {
	const most, mostRead = 3, 10
	var shown []*shownFailure
	alike := map[string]*shownFailure{}
	told := 0
	for _, f := range failures[:min(len(failures), mostRead)] {
		s := &shownFailure{failure: f}
		if key, ok := executions.ParseKey(f.key); ok && f.execution != "" {
			s.lines, s.stream = failureLines(ctx, r.Executions, key, f.execution)
		}
		family, _, _ := strings.Cut(f.task, "[")
		kind := strings.Join(append([]string{family, f.message}, s.lines...), "\n")
		switch first := alike[kind]; {
		case first != nil:
			first.also = append(first.also, f.task)
		case len(shown) == most:
			continue
		default:
			alike[kind] = s
			shown = append(shown, s)
		}
		told++
	}
	said := map[string]bool{}
	for _, s := range shown {
		explainFailure(ctx, a, r, location, ws, s, said)
	}
	if n := len(failures) - told; n > 0 {
		a.Notef("\n… and %s more; see: e3 run %s %s", human.Count(n, "failure"), human.Quoted(location), ws)
	}
}

// explainFailure shows the end of a failed task's log and where the rest is.
func explainFailure(
	ctx context.Context, a *app, r *repo.Repo, location, ws string, f *shownFailure, said map[string]bool,
) {
	a.Notef("\n%s: %s", human.Line(f.task), human.Line(a.addressed(f.message)))
	if note := explain.Note(f.message); note != "" {
		a.Notef("  %s", note)
	}
	for _, line := range f.lines {
		a.Notef("  | %s", human.Line(line))
	}
	if len(f.also) > 0 {
		a.Notef("  the same in %s", human.Line(human.Few(f.also)))
	}
	sayUnbound(ctx, a, r, f)
	sayUndeclared(ctx, a, r, ws, f.failure, f.lines, said)
	if f.key == "" { // nothing was to run
		return
	}
	flag := ""
	if f.stream == executions.Stderr {
		flag = " --stderr"
	}
	a.Notef("  all of it: e3 logs %s %s%s", human.Quoted(location), human.Quoted(ws+"."+f.task), flag)
	if f.left {
		sayFolder(ctx, a, r, location, ws, f.failure)
	}
}

var unbound = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`: line [0-9]+: (\w+): unbound variable$`) })

// sayUnbound names the variables of a task whose script has used another one.
func sayUnbound(ctx context.Context, a *app, r *repo.Repo, f *shownFailure) {
	var name string
	for _, line := range f.lines {
		if m := unbound().FindStringSubmatch(line); m != nil {
			name = m[1]
		}
	}
	key, ok := executions.ParseKey(f.key)
	if name == "" || !ok {
		return
	}
	task, err := executions.LoadTask(ctx, r.Objects, key.Task)
	if err != nil {
		return // the failure itself is told
	}
	var names []string
	for _, in := range task.Inputs {
		if manifest.ValidInputName(in.Name) && in.Kind != record.KindTool {
			names = append(names, "$"+in.Name)
		}
	}
	for _, out := range task.Output.Entries {
		names = append(names, "$"+out.Name)
	}
	for _, v := range task.Env {
		names = append(names, "$"+v.Name)
	}
	a.Notef("  $%s is no variable of %s, which has %s", name, human.Line(f.task), human.Line(human.Few(names)))
}
