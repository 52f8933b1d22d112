package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/explain"
	"e3/internal/insight/history"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
	"e3/objectstore"
)

// taskBody is the content of a task's page.
type taskBody struct {
	Task      string
	Row       *row // in the run; nil: it is not part of it
	Run       *runview.Report
	Execution *executions.Execution // the shown execution; nil: nothing was executed
	State     string
	Note      string
	Facts     []report.Fact
	View      string
	Shell     string
	Words     []string // the command's words, if it is no script
	Env       []record.EnvVar
	Log       *logView
	Why       *explain.Explanation
	Inputs    []item
	Outputs   []item
	Shown     *preview          // the content that the address asks for
	History   []history.Attempt // the latest first
	More      bool              // there are earlier ones
	Together  *together         // nil: its command served no other item
	Missing   string            // why there is nothing to show
}

// Views of a task.
const (
	taskLog     = "log"
	taskWhy     = "why"
	taskData    = "data"
	taskHistory = "history"
)

const mostAttempts = 60

func (s *Server) taskPage(ctx context.Context, f *frame) (body, error) {
	p := f.Place
	task := p.get("t")
	if task == "" || f.Workspace == "" {
		return nil, errAsked
	}
	f.ofWorkspace("")
	b := &taskBody{Task: task, View: cmp.Or(p.get("view"), taskLog)}
	f.Title = human.Line(f.Workspace + "." + task)
	if p.get("r") != "" {
		f.Crumbs = append(f.Crumbs, crumb{"run " + short(p.get("r")), f.runURL(p.get("r"))})
	}
	f.Crumbs = append(f.Crumbs, crumb{human.Line(task), ""})
	if err := s.inRun(ctx, f, b); err != nil {
		return nil, err
	}
	if err := s.attempts(ctx, f, b); err != nil {
		return nil, err
	}
	if b.Row == nil && b.Run != nil && b.Run.Live && b.Execution != nil && p.get("x") == "" {
		b.Note = "It has not begun in the run that is at work. This is its latest execution of an earlier run."
	}
	name := human.Quoted(f.Workspace + "." + task)
	id := p.get("x")
	if e := b.Execution; e != nil {
		id = e.ExecutionID
		if err := s.described(ctx, b); err != nil {
			return nil, err
		}
		var err error
		if b.Together, err = s.together(ctx, f, b); err != nil {
			return nil, err
		}
	}
	var err error
	switch b.View {
	case taskLog:
		f.command("logs", name, flag("--execution", short(id)))
		if b.Execution != nil {
			b.Log = s.readLog(ctx, f, b.Execution)
			if b.Log.Stream == "stderr" {
				f.Command += " --stderr"
			}
		}
	case taskWhy:
		asked := p.get("x")
		if asked == "" && b.Row != nil && b.Row.State == runview.TaskSuccess && b.Execution != nil { // why it ran in this run
			asked = b.Execution.ExecutionID
		}
		at := ""
		if asked != "" {
			at = "@" + short(asked)
		}
		f.command("why", human.Quoted(f.Workspace+"."+task+at))
		b.Why, err = s.explainer().Why(ctx, f.Workspace, task, asked)
		if err == nil && tellsHidden(b.Why, f.hidden) {
			b.Why, b.Missing = nil, "An input with export: false is part of the answer, so these files do not hold it."
		}
	case taskData:
		shows := p.get("x") == "" && p.get("r") == "" && (b.Run == nil || len(b.Run.Set) == 0)
		if shows { // otherwise the workspace need not show this
			id = ""
		}
		f.command("get", name, flag("--execution", short(id)))
		err = s.data(ctx, f, b)
	case taskHistory:
		f.command("history", name, "--last", fmt.Sprint(mostAttempts))
	default:
		err = errAsked
	}
	if e := b.Execution; b.Run != nil && b.Run.Live && p.get("x") == "" || e != nil && e.State == record.Running {
		if e != nil && e.State == record.Running && b.View == taskLog {
			s.live(f, "k", e.Key.String(), "x", e.ExecutionID)
		} else {
			s.live(f)
		}
	}
	return b, err
}

// flag is an argument with its value, "" without one.
func flag(name, value string) string {
	if value == "" {
		return ""
	}
	return name + " " + value
}

// inRun finds the task in the run that the address names.
func (s *Server) inRun(ctx context.Context, f *frame, b *taskBody) error {
	m, err := s.models.run(ctx, f.Workspace, f.Place.get("r"))
	if errors.Is(err, runview.ErrNoRun) {
		return nil
	}
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	head := *m.report
	head.Tasks = nil
	b.Run = &head
	t := m.find(b.Task)
	if t == nil {
		return nil
	}
	part := []runview.TaskReport{*t}
	if err := m.complete(ctx, s.stores, part); err != nil {
		return err
	}
	b.Row = &rowsOf(f, part)[0]
	return nil
}

// attempts reads the latest attempts, and chooses the attempt that the page shows.
func (s *Server) attempts(ctx context.Context, f *frame, b *taskBody) error {
	found, err := s.pastOf(ctx, f.Workspace, b.Task)
	if err != nil {
		return err
	}
	var list []history.Attempt
	for _, t := range found.Tasks {
		if t.Name == b.Task {
			list = t.Attempts
		}
	}
	b.More = found.Partial || len(list) > mostAttempts
	list = list[:min(len(list), mostAttempts)]
	want := strings.ToLower(f.Place.get("x"))
	if want == "" && b.Row != nil {
		want = b.Row.ExecutionID
	}
	if err := s.chosen(ctx, f, b, list, want); err != nil {
		return err
	}
	b.History = list
	if b.Row == nil && len(list) == 0 && b.Execution == nil {
		packaged, err := s.stores.Runs.AllTaskHashes(ctx, f.Workspace)
		if err != nil {
			return err
		}
		if _, ok := packaged[b.Task]; !ok {
			return &human.UnknownError{What: "task", Name: b.Task}
		}
		b.Missing = "It has not run yet."
	}
	return nil
}

// chosen sets the execution that the page shows.
func (s *Server) chosen(ctx context.Context, f *frame, b *taskBody, list []history.Attempt, want string) error {
	if b.Row != nil {
		b.State, b.Note = b.Row.StateText(), b.Row.Note
	}
	if want == "" && (b.Row != nil || len(list) == 0) {
		if b.Row != nil {
			b.Missing = "It has no execution in this run."
		}
		return nil
	}
	i := slices.IndexFunc(list, func(a history.Attempt) bool {
		return a.ExecutionID != "" && strings.HasPrefix(a.ExecutionID, want)
	})
	var e *executions.Execution
	switch {
	case i >= 0:
		e = list[i].Execution
		if want != "" && f.Place.get("x") != "" || b.Row == nil {
			b.State, b.Note = string(list[i].Status), attemptNote(&list[i])
		}
		if e == nil && list[i].Err != nil {
			b.Missing = list[i].Err.Error()
		}
	case b.Row != nil && strings.HasPrefix(b.Row.ExecutionID, want):
		key, ok := executions.ParseKey(b.Row.Key)
		if !ok {
			b.Missing = "Its execution is not in the repository."
			return nil
		}
		found, err := s.stores.Executions.Get(ctx, key, b.Row.ExecutionID)
		if err != nil && !errors.Is(err, executions.ErrNotFound) && !errors.Is(err, executions.ErrMalformed) {
			return err
		}
		if e = found; err != nil {
			b.Missing = err.Error()
		}
	default:
		found, err := s.stores.Executions.Locate(ctx, want)
		if err != nil {
			return err
		}
		e = found
		b.State = string(runview.StateOf(e.State))
	}
	b.Execution = e
	return nil
}

// attemptNote is a note about an attempt that goes beyond its status.
func attemptNote(x *history.Attempt) string {
	notes := x.Notes()
	if e := x.Execution; e != nil && e.Rejected() {
		notes = append(notes, "rejected by "+e.Rejection.By)
	}
	if gone := x.Pruned(); gone != nil {
		notes = append(notes, "pruned by "+gone.By)
	}
	return human.Line(strings.Join(notes, ", "))
}

// described adds the command and the facts of the execution.
func (s *Server) described(ctx context.Context, b *taskBody) error {
	e := b.Execution
	add := func(name, value string) {
		if value != "" {
			b.Facts = append(b.Facts, report.Fact{Name: name, Value: human.Line(value)})
		}
	}
	add("Execution", e.ExecutionID)
	add("Started", stamp(e.StartedAt))
	if !e.CompletedAt.IsZero() {
		add("Took", human.Duration(e.CompletedAt.Sub(e.StartedAt)))
	}
	if d := e.Detail; d != nil {
		add("Worker", d.Worker)
		if d.PeakRSS > 0 {
			add("Memory", human.Bytes(d.PeakRSS))
		}
		if cpu := d.UserCPU + d.SystemCPU; cpu > 0 {
			add("CPU", human.Duration(cpu))
		}
		if d.Attempt > 1 {
			add("Attempt", fmt.Sprint(d.Attempt))
		}
		if d.BytesOut > 0 {
			add("Output", human.Bytes(d.BytesOut))
		}
	}
	if e.Provenance != nil {
		add("Imported", report.Whence(e.Provenance))
	}
	if b.View == taskData { // it is long, and says what the inputs are
		add("Key", e.Key.String())
	}
	task, err := executions.LoadTask(ctx, s.stores.Objects, e.Key.Task)
	switch {
	case errors.Is(err, objectstore.ErrNotFound), errors.Is(err, record.ErrType):
		return nil
	case err != nil:
		return err
	}
	b.Shell, b.Words, b.Env = strings.TrimSuffix(task.Shell, "\n"), task.Argv, task.Env
	return nil
}

// data lists the inputs and outputs of the execution.
func (s *Server) data(ctx context.Context, f *frame, b *taskBody) error {
	e := b.Execution
	if e == nil {
		return nil
	}
	task, err := executions.LoadTask(ctx, s.stores.Objects, e.Key.Task)
	if errors.Is(err, objectstore.ErrNotFound) {
		b.Missing = "The declaration of this task is not in the repository any more."
		return nil
	}
	if err != nil {
		return err
	}
	declared := s.declaration(ctx, f, b)
	for i := range task.Inputs {
		in := &task.Inputs[i]
		it := item{Name: in.Name, Kind: in.Kind.String(), Path: in.Path, Size: -1, URL: f.With("io", "in", "n", in.Name, "path", "")}
		if i < len(e.InputHashes) {
			it.Hash = e.InputHashes[i]
		}
		if declared != nil && i < len(declared.Wiring) {
			fedBy(f, &it, &declared.Wiring[i])
		}
		b.Inputs = append(b.Inputs, it)
	}
	opened := 0
	for i := range task.Output.Entries {
		out := &task.Output.Entries[i]
		it := item{Name: out.Name, Kind: out.Kind.String(), Path: out.Path, Size: -1, URL: f.With("io", "out", "n", out.Name, "path", "")}
		if declared != nil {
			for _, v := range declared.Policy.Views {
				if v.Entry == out.Name || v.Entry == "" {
					it.Views = append(it.Views, v)
				}
			}
		}
		if e.OutputHash != "" && f.Place.get("n") == "" && opened < maxOpened {
			opened++
			it.Preview = s.preview(ctx, f, e, task, &it, "out", "")
			for _, rel := range s.viewed(ctx, e, task, &it) {
				it.Seen = append(it.Seen, s.preview(ctx, f, e, task, &it, "out", rel))
			}
		}
		b.Outputs = append(b.Outputs, it)
	}
	if n := f.Place.get("n"); n != "" {
		io := f.Place.get("io")
		list := b.Outputs
		if io == "in" {
			list = b.Inputs
		}
		i := slices.IndexFunc(list, func(it item) bool { return it.Name == n })
		if i < 0 {
			return errAsked
		}
		b.Shown = s.preview(ctx, f, e, task, &list[i], io, f.Place.get("path"))
	}
	return nil
}

// declaration is the task as the package of the run declares it, nil if that is not known.
func (s *Server) declaration(ctx context.Context, f *frame, b *taskBody) *record.PackageTask {
	if b.Run == nil {
		return nil
	}
	m, err := s.models.run(ctx, f.Workspace, b.Run.RunID)
	if err != nil {
		return nil
	}
	defer m.mu.Unlock()
	pkg, err := m.pkg(ctx, s.stores)
	if err != nil || pkg == nil {
		return nil
	}
	for i := range pkg.Tasks {
		if t := &pkg.Tasks[i]; t.Name == b.Task && t.Task == b.Execution.Key.Task.String() {
			return t
		}
	}
	return nil
}

// fedBy says what feeds an input.
func fedBy(f *frame, it *item, w *record.Wire) {
	switch w.Kind {
	case record.WireInput:
		it.From = "input " + w.Name
	case record.WireOutput:
		it.From, it.FromURL = w.Name, taskURL(f, w.Name)
	case record.WireFanIn:
		it.From = human.Count(len(w.Items), "task")
	case record.WireManifest:
		it.From = "the manifest of these"
	}
}
