package ui_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/ui"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/refstore"
	"e3/refstore/mem"
	"e3/workspace"
)

// An archive is a repository with one run, written by hand: no package file could name its tasks as the tests do.
type archive struct {
	t       testing.TB
	objects *objectstore.Dir
	records memory
	pkg     record.Package
	run     runview.Report
	log     []events.Event
	n       int
}

func newArchive(t testing.TB) *archive {
	t.Helper()
	a := &archive{t: t, objects: newObjects(t), records: memory{mem.New()}, pkg: record.Package{Name: "demo", Version: "1.0.0"}}
	a.run.Run = &record.Run{
		RunID: "0194fdc2-fa2f-7cc0-81d3-ff12045b73c8", WorkspaceName: "prod", PackageRef: "demo@1.0.0", StartedAt: now.Add(-time.Hour),
		CompletedAt: now.Add(-time.Minute), State: record.RunCompleted, InputSnapshot: strings.Repeat("ab", 32),
	}
	a.run.Process = &events.Process{User: "ann", Host: "mill"}
	return a
}

// A part describes a task of the run for a test.
type part struct {
	name           string
	state          runview.TaskState
	reads          []string // tasks
	stdout, stderr string
	outputs        []output // more than one, or one with a name: entries
	dir            bool     // the single output is a directory of outputs
	kind           string   // of the single output
	message        string
	took           time.Duration
	gone           bool // the execution is not on record
}

type output struct{ name, file, kind, content string }

func (a *archive) object(data []byte) objectstore.Hash {
	a.t.Helper()
	h, err := objectstore.PutBytes(a.t.Context(), a.objects, data)
	if err != nil {
		a.t.Fatal(err)
	}
	return h
}

func (a *archive) tree(list []output) objectstore.Hash {
	a.t.Helper()
	var t tree.Entries
	for _, o := range list {
		t = append(t, tree.Entry{Name: o.name, Kind: tree.KindFile, Hash: a.object([]byte(o.content)), Size: int64(len(o.content))})
	}
	t.Sort()
	data, err := tree.Encode(t)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.object(data)
}

// add adds a task to the package and to the run.
func (a *archive) add(m part) {
	a.t.Helper()
	task := record.Task{Argv: []string{"run"}} // tasks that compute the same share their key
	if len(m.outputs) > 0 {
		task.Argv = append(task.Argv, fmt.Sprint(a.n))
	}
	declared := record.PackageTask{Name: m.name, Output: record.KindFile}
	var out objectstore.Hash
	switch {
	case m.dir:
		task.Output.Entries = []record.OutputEntry{{Name: "out", Path: "out/dir", Kind: record.KindDir}}
		declared.Policy.Views = []record.View{view("", "", m.kind)}
		out = a.tree(m.outputs)
	case len(m.outputs) == 1 && m.outputs[0].name == "":
		o := m.outputs[0]
		task.Output.Entries = []record.OutputEntry{{Name: "out", Path: o.file, Kind: record.KindFile}}
		declared.Policy.Views = []record.View{view("", o.file, o.kind)}
		out = a.object([]byte(o.content))
	case len(m.outputs) > 0:
		task.Output.Multi = true
		for _, o := range m.outputs {
			task.Output.Entries = append(task.Output.Entries, record.OutputEntry{Name: o.name, Path: o.file, Kind: record.KindFile})
			declared.Policy.Views = append(declared.Policy.Views, view(o.name, o.file, o.kind))
		}
		out = a.tree(m.outputs)
	default:
		task.Output.Entries = []record.OutputEntry{{Name: "out", Path: "out", Kind: record.KindFile}}
	}
	for i, from := range m.reads {
		task.Inputs = append(task.Inputs, record.Input{Name: fmt.Sprintf("in%d", i), Path: fmt.Sprintf("in%d", i), Kind: record.KindFile})
		declared.Wiring = append(declared.Wiring, record.Wire{Kind: record.WireOutput, Name: from})
	}
	hash := a.object(task.Encode())
	declared.Task = hash.String()
	a.pkg.Tasks = append(a.pkg.Tasks, declared)
	t := runview.TaskReport{Task: m.name, State: m.state, Message: m.message, Duration: moment.Millis(m.took), Attempt: 1}
	began := now.Add(-time.Hour + time.Duration(a.n)*time.Second)
	if m.state != runview.TaskSkipped {
		key := executions.Key{Task: hash, Inputs: executions.InputsHash(nil)}
		id, err := executions.NewID()
		if err != nil {
			a.t.Fatal(err)
		}
		t.ExecutionID, t.Key, t.StartedAt = id, key.String(), moment.At(began)
		if !m.gone {
			a.execution(m, key, id, began, out)
		}
	}
	if m.state == runview.TaskFailed {
		t.ExitCode = 3
	}
	a.run.Tasks = append(a.run.Tasks, t)
	ended := map[runview.TaskState]events.Type{runview.TaskSuccess: events.TaskCompleted, runview.TaskFailed: events.TaskFailed, runview.TaskError: events.TaskFailed}
	if m.state != runview.TaskSkipped && m.state != runview.TaskCached {
		a.log = append(a.log, events.Event{Time: began, Type: events.TaskStarted, Task: m.name, Execution: t.ExecutionID, Worker: fmt.Sprintf("ann@mill%d", a.n%2)})
	}
	if end := ended[m.state]; end != "" {
		a.log = append(a.log, events.Event{Time: began.Add(m.took), Type: end, Task: m.name, Execution: t.ExecutionID, Data: &events.Data{Message: m.message}})
	}
	a.n++
}

func (a *archive) execution(m part, key executions.Key, id string, began time.Time, out objectstore.Hash) {
	a.t.Helper()
	s := record.Status{State: record.Success, ExecutionID: id, StartedAt: began, CompletedAt: began.Add(m.took), OutputHash: out.String()}
	switch m.state {
	case runview.TaskFailed:
		s.State, s.OutputHash, s.ExitCode = record.Failed, "", 3
	case runview.TaskError:
		s.State, s.OutputHash, s.Message = record.Error, "", m.message
	}
	detail := record.Detail{Attempt: 1, RunID: a.run.RunID, Version: "1.2.3"}
	rec := refstore.Record{Key: refstore.Key{Partition: "EXECUTION/" + key.String(), Sort: id}, Value: s.Encode(), Fields: []refstore.Field{
		{Name: "detail.beast2", Value: detail.Encode()},
		{Name: string(executions.Stderr), Value: []byte(m.stderr)}, {Name: string(executions.Stdout), Value: []byte(m.stdout)},
	}}
	if _, err := a.records.Put(a.t.Context(), rec); err != nil {
		a.t.Fatal(err)
	}
}

// store writes the package and the events; the run itself is what the report is given.
func (a *archive) store() {
	a.t.Helper()
	pkg := a.object(a.pkg.Encode())
	a.run.PackageHash = pkg.String()
	all := append([]events.Event{{Time: a.run.StartedAt, Type: events.RunStarted, Data: &events.Data{PackageHash: pkg.String()}}}, a.log...)
	var lines []byte
	for i := range all {
		all[i].Seq, all[i].Run, all[i].Workspace = int64(i+1), a.run.RunID, a.run.WorkspaceName
		var err error
		if lines, err = events.AppendLine(lines, &all[i]); err != nil {
			a.t.Fatal(err)
		}
	}
	key := refstore.Key{Partition: "EVENTS/" + a.run.WorkspaceName, Sort: a.run.RunID}
	if err := a.records.Append(a.t.Context(), key, 0, lines); err != nil {
		a.t.Fatal(err)
	}
	a.run.Total = int64(len(a.run.Tasks))
	a.run.Summary.Total = a.run.Total
}

// page returns the page of the run.
func (a *archive) page() string {
	a.t.Helper()
	var b bytes.Buffer
	s := ui.Stores{
		Records: a.records, Objects: a.objects,
		Executions: executions.NewStore(a.records, a.objects),
		Runs:       workspace.New(workspace.Stores{Records: a.records, Locks: a.records, Objects: a.objects, Local: a.records, Now: func() time.Time { return now }}).Runs,
	}
	if err := ui.WriteRun(a.t.Context(), &b, s, &a.run, ui.Options{Now: func() time.Time { return now }, Version: "9.9", Repository: "/srv/e3"}); err != nil {
		a.t.Fatal(err)
	}
	return b.String()
}
