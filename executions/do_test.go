package executions_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
)

func TestMissThenHit(t *testing.T) {
	l := newLab(t)
	req := l.request(script("printf hello > out; echo said"))
	var started []string
	req.Started = func(id string, _ time.Time) { started = append(started, id) }
	first := l.do(t, req)
	if first.State != record.Success || first.Cached {
		t.Fatalf("the first time: %+v", first)
	}
	if got := l.content(t, first.Output); got != "hello" || first.Size != 5 {
		t.Errorf("output is %q of %d bytes", got, first.Size)
	}
	if len(started) != 1 || started[0] != first.ExecutionID {
		t.Errorf("Started was told %v, want %s", started, first.ExecutionID)
	}
	second := l.do(t, req)
	if !second.Cached || second.ExecutionID != first.ExecutionID || second.Output != first.Output || second.Size != first.Size || (second.Duration-first.Duration).Abs() > 2*time.Millisecond {
		t.Errorf("the second time %+v, want the hit of %+v", second, first)
	}
	if len(started) != 1 {
		t.Error("a hit was started")
	}
	if n := len(l.all(t, keyOf(req))); n != 1 {
		t.Errorf("%d executions are on record, want 1", n)
	}
}

func TestRecorded(t *testing.T) {
	l := newLab(t)
	in := l.put(t, "data")
	task := script("cat in > out; echo said; echo cried >&2")
	task.Inputs = []record.Input{{Name: "in", Path: "in", Kind: record.KindFile}}
	req := l.request(task, in)
	req.InputBytes, req.Attempt, req.RunID, req.Workspace, req.Name = 4, 2, "r1", "prod", "train[4]"
	before := time.Now().Add(-time.Millisecond)
	res := l.do(t, req)
	e, err := l.Get(t.Context(), keyOf(req), res.ExecutionID)
	if err != nil {
		t.Fatal(err)
	}
	if e.State != record.Success || len(e.InputHashes) != 1 || e.InputHashes[0] != in.String() || e.OutputHash != res.Output.String() {
		t.Errorf("status is %+v", e.Status)
	}
	if e.StartedAt.Before(before) || e.CompletedAt.Before(e.StartedAt.Truncate(time.Millisecond)) || e.CompletedAt.After(time.Now()) {
		t.Errorf("it ran from %v to %v", e.StartedAt, e.CompletedAt)
	}
	d := e.Detail
	if d == nil || d.Attempt != 2 || d.RunID != "r1" || d.Workspace != "prod" || d.Task != "train[4]" || d.BytesIn != 4 || d.BytesOut != 4 ||
		d.Worker != "ann@lab" || d.Version != "test" || d.Signal != "" || d.Reason != "" || d.PeakRSS <= 0 {
		t.Errorf("detail is %+v", d)
	}
	if e.Metadata != nil {
		t.Errorf("metadata is %+v, want none: it was made here", e.Metadata)
	}
	if out, errs := l.log(t, req, res.ExecutionID, executions.Stdout), l.log(t, req, res.ExecutionID, executions.Stderr); out != "said\n" || errs != "cried\n" {
		t.Errorf("logs are %q and %q", out, errs)
	}
	r, err := l.records.Get(t.Context(), refstore.Key{Partition: "EXECUTION/" + keyOf(req).String(), Sort: res.ExecutionID}, "output")
	if text, _ := r.Field("output"); err != nil || string(text) != res.Output.String()+"\n" {
		t.Errorf("the field output says %q, %v", text, err)
	}
	for h, err := range l.Tasks(t.Context()) {
		if err != nil || h != req.Task {
			t.Errorf("Tasks yields %v, %v, want %v", h, err, req.Task)
		}
	}
	n := 0
	for h, err := range l.Inputs(t.Context(), req.Task) {
		if n++; err != nil || h != keyOf(req).Inputs {
			t.Errorf("Inputs yields %v, %v, want %v", h, err, keyOf(req).Inputs)
		}
	}
	if n != 1 {
		t.Errorf("Inputs yields %d hashes, want 1", n)
	}
}

func TestFailureIsTriedAgain(t *testing.T) {
	l := newLab(t)
	flag := filepath.Join(t.TempDir(), "flag")
	req := l.request(script("test -e " + flag + " || exit 3; echo x > out"))
	first := l.do(t, req)
	if first.State != record.Failed || first.ExitCode != 3 || first.Cached {
		t.Fatalf("got %+v, want exit code 3", first)
	}
	touch(t, flag)
	second := l.do(t, req)
	if second.State != record.Success || second.Cached || second.ExecutionID <= first.ExecutionID {
		t.Fatalf("got %+v, want a new success after %s", second, first.ExecutionID)
	}
	all := l.all(t, keyOf(req))
	if len(all) != 2 || all[0].State != record.Success || all[1].State != record.Failed || all[1].ExitCode != 3 {
		t.Errorf("on record: %v", all)
	}
}

func TestForceAppends(t *testing.T) {
	l := newLab(t)
	count := filepath.Join(t.TempDir(), "count")
	req := l.request(script("echo x >> " + count + "; wc -l < " + count + " > out"))
	first := l.do(t, req)
	req.Force = true
	second := l.do(t, req)
	if second.Cached || second.State != record.Success || second.ExecutionID == first.ExecutionID || second.Output == first.Output {
		t.Fatalf("forced: %+v after %+v", second, first)
	}
	if n := len(l.all(t, keyOf(req))); n != 2 {
		t.Errorf("%d executions are on record, want 2", n)
	}
	req.Force = false
	if third := l.do(t, req); third.ExecutionID != second.ExecutionID {
		t.Errorf("the hit is %s, want the latest, %s", third.ExecutionID, second.ExecutionID)
	}
}

func TestOutputGoneRunsAgain(t *testing.T) {
	l := newLab(t)
	req := l.request(script("echo x > out"))
	first := l.do(t, req)
	if err := l.objects.Delete(t.Context(), first.Output); err != nil {
		t.Fatal(err)
	}
	second := l.do(t, req)
	if second.Cached || second.Output != first.Output || second.ExecutionID == first.ExecutionID {
		t.Errorf("got %+v, want a new execution with the same output", second)
	}
	if got := l.content(t, first.Output); got != "x\n" {
		t.Errorf("the output is %q again", got)
	}
}

// Tasks that differ in inputs, command, environment, version or paths have different keys.
func TestKeyCoversTheTask(t *testing.T) {
	l := newLab(t)
	in := []record.Input{{Name: "in", Path: "in", Kind: record.KindFile}}
	out := func(name, path string, k record.Kind) record.Output {
		return record.Output{Entries: []record.OutputEntry{{Name: name, Path: path, Kind: k}}}
	}
	base := func() *record.Task {
		return &record.Task{Shell: "true", Inputs: in, Output: out("out", "out", record.KindFile)}
	}
	seen := map[objectstore.Hash]string{}
	for name, change := range map[string]func(*record.Task){
		"base":        func(*record.Task) {},
		"command":     func(t *record.Task) { t.Shell = "true " },
		"argv":        func(t *record.Task) { t.Argv, t.Shell = []string{"true"}, "" },
		"env":         func(t *record.Task) { t.Env = []record.EnvVar{{Name: "A", Value: ""}} },
		"version":     func(t *record.Task) { t.Version = "2" },
		"input name":  func(t *record.Task) { t.Inputs = []record.Input{{Name: "b", Path: "in", Kind: record.KindFile}} },
		"input path":  func(t *record.Task) { t.Inputs = []record.Input{{Name: "in", Path: "b", Kind: record.KindFile}} },
		"input kind":  func(t *record.Task) { t.Inputs = []record.Input{{Name: "in", Path: "in", Kind: record.KindExecutable}} },
		"output name": func(t *record.Task) { t.Output = out("b", "out", record.KindFile) },
		"output path": func(t *record.Task) { t.Output = out("out", "b", record.KindFile) },
		"output kind": func(t *record.Task) { t.Output = out("out", "out", record.KindDir) },
		"output alone": func(t *record.Task) {
			t.Output = out("out", "out", record.KindFile)
			t.Output.Multi = true
		},
	} {
		task := base()
		change(task)
		h := l.request(task).Task
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have the same task hash", name, other)
		}
		seen[h] = name
	}
}

func TestStartFaultsAreErrors(t *testing.T) {
	l := newLab(t)
	absent := objectstore.Sum([]byte("never stored"))
	file := []record.Input{{Name: "in", Path: "in", Kind: record.KindFile}}
	with := func(in ...record.Input) *record.Task {
		task := script("true")
		task.Inputs = in
		return task
	}
	output := func(path string) *record.Task {
		return &record.Task{Shell: "true", Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: path, Kind: record.KindFile}}}}
	}
	there := l.put(t, "x")
	noTask := l.request(script("true"))
	noTask.Load = func(context.Context) (*record.Task, error) { return nil, objectstore.ErrNotFound }
	for _, test := range []struct {
		name string
		req  *executions.Request
		want string
	}{
		{"task object gone", noTask, "not found"},
		{"input gone", l.request(with(file...), absent), "input in"},
		{"fewer inputs than declared", l.request(with(file...)), "1 inputs"},
		{"more inputs than declared", l.request(with(), there), "0 inputs"},
		{"input that leaves", l.request(with(record.Input{Name: "in", Path: "../in", Kind: record.KindFile}), there), "leaves"},
		{"input at an absolute path", l.request(with(record.Input{Name: "in", Path: "/tmp/in", Kind: record.KindFile}), there), "leaves"},
		{"input that is no value", l.request(with(record.Input{Name: "in", Kind: record.KindValue}), there), "input in"},
		{"input that is no directory", l.request(with(record.Input{Name: "in", Path: "d", Kind: record.KindDir}), there), "input in"},
		{"output that leaves", l.request(output("a/../../out")), "leaves"},
		{"output at an absolute path", l.request(output("/etc/passwd")), "leaves"},
	} {
		t.Run(test.name, func(t *testing.T) {
			res, err := l.Do(t.Context(), test.req)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %+v, %v, want an error about %q", res, err, test.want)
			}
			if n := len(l.all(t, keyOf(test.req))); n != 0 {
				t.Errorf("%d executions are on record, want none", n)
			}
		})
	}
	if got := l.run(t, script("ls -A; echo x > out")); got != "" {
		t.Errorf("the next task finds %q", got)
	}
}

// If Admit refuses, nothing runs and nothing is recorded.
func TestNotAdmitted(t *testing.T) {
	l := newLab(t)
	refused := errors.New("refused")
	marker := filepath.Join(t.TempDir(), "ran")
	req := l.request(script("echo x > " + marker + "; echo x > out"))
	req.Admit = func(context.Context) (func(bool), error) { return nil, refused }
	if res, err := l.Do(t.Context(), req); !errors.Is(err, refused) {
		t.Errorf("got %+v, %v, want the refusal", res, err)
	}
	if exists(marker) || len(l.all(t, keyOf(req))) > 0 {
		t.Error("the command ran")
	}
	var turns, well, failed int
	admit := func(context.Context) (func(bool), error) {
		turns++
		return func(f bool) {
			if f {
				failed++
			} else {
				well++
			}
		}, nil
	}
	req.Admit = admit
	l.do(t, req)
	l.do(t, req) // a hit needs no admission
	for _, text := range []string{"exit 3", "kill -KILL $$"} {
		bad := l.request(script(text))
		bad.Admit = admit
		l.do(t, bad)
	}
	if turns != 3 || well != 1 || failed != 2 {
		t.Errorf("%d admissions, %d successes and %d failures; want 3, 1 and 2", turns, well, failed)
	}
}

// With Options.Sync a result is durable when it is returned.
func TestSync(t *testing.T) {
	syncs := 0
	var fault error
	l := newLab(t, func(o *executions.Options) {
		o.Sync = func(context.Context) error {
			syncs++
			return fault
		}
	})
	req := l.request(script("echo x > out"))
	l.do(t, req)
	if syncs != 1 {
		t.Errorf("%d syncs after an execution, want 1", syncs)
	}
	l.do(t, req)
	if syncs != 1 {
		t.Errorf("a hit was synced")
	}
	l.do(t, l.request(script("exit 1")))
	if syncs != 2 {
		t.Errorf("%d syncs after a failure, want 2", syncs)
	}
	fault = errors.New("disk gone")
	if res, err := l.Do(t.Context(), l.request(script("echo y > out"))); !errors.Is(err, fault) {
		t.Errorf("got %+v, %v, want the fault", res, err)
	}
}
