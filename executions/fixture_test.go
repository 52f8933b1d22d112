package executions_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/refstore"
	reffs "e3/refstore/fs"
)

// If this is set to "<helper> <folder>", the test binary runs as another process of the repository.
const helperEnv = "E3_TEST_EXECUTIONS_HELPER"

func TestMain(m *testing.M) {
	runner.Main()
	name, dir, found := strings.Cut(os.Getenv(helperEnv), " ")
	if !found {
		code := m.Run()
		if sup, err := supervisor(); err == nil {
			sup.Close()
		}
		os.Exit(code)
	}
	if err := helpers[name](dir); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// supervisor runs the commands of all labs: under the race detector each would take a second
// to end.
var supervisor = sync.OnceValues(func() (*runner.Supervisor, error) {
	return runner.New(runner.Options{Grace: time.Second})
})

// A lab is a repository on disk with an executor that runs real commands.
type lab struct {
	*executions.Executor
	dir     string
	records *reffs.Store
	objects *objectstore.Dir
	env     map[string]string // source of pass_env and secrets
	sup     *runner.Supervisor
}

// openLab opens the repository in dir. change may adjust the options.
func openLab(dir string, change func(*executions.Options)) (*lab, error) {
	records, err := reffs.Open(dir, reffs.Options{})
	if err != nil {
		return nil, err
	}
	objects, err := objectstore.OpenDir(filepath.Join(dir, "objects"), objectstore.Options{Session: records.Session})
	if err != nil {
		return nil, err
	}
	sup, err := supervisor()
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir, records: records, objects: objects, env: map[string]string{}, sup: sup}
	opts := executions.Options{
		Worker: "ann@lab", Version: "test", Path: os.Getenv("PATH"), Scratch: records.SessionDir, Now: time.Now,
		Getenv: func(name string) (string, bool) { v, ok := l.env[name]; return v, ok },
	}
	if change != nil {
		change(&opts)
	}
	l.Executor = executions.NewExecutor(executions.NewStore(records, objects), objects, records, sup, opts)
	return l, nil
}

func newLab(t *testing.T, changes ...func(*executions.Options)) *lab {
	t.Helper()
	l, err := openLab(t.TempDir(), func(o *executions.Options) {
		for _, change := range changes {
			change(o)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.records.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// script is a task whose script makes its only output, the file out.
func script(text string) *record.Task {
	return &record.Task{Shell: text, Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "out", Kind: record.KindFile}}}}
}

// request asks for the result of a task on inputs that are stored already.
func (l *lab) request(task *record.Task, inputs ...objectstore.Hash) *executions.Request {
	h, err := objectstore.PutBytes(context.Background(), l.objects, task.Encode())
	return &executions.Request{
		Task: h, Inputs: inputs, Attempt: 1, RunID: "run", Workspace: "ws", Name: "task",
		Load: func(ctx context.Context) (*record.Task, error) {
			if err != nil {
				return nil, err
			}
			data, err := objectstore.ReadAll(ctx, l.objects, h, 1<<20)
			if err != nil {
				return nil, err
			}
			return record.DecodeTask(data)
		},
	}
}

func keyOf(req *executions.Request) executions.Key { return executions.NewKey(req.Task, req.Inputs) }

// do executes a request, which must not fail with an error.
func (l *lab) do(t *testing.T, req *executions.Request) executions.Result {
	t.Helper()
	res, err := l.Do(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// run executes a script that must succeed and returns its standard output.
func (l *lab) run(t *testing.T, task *record.Task, inputs ...objectstore.Hash) string {
	t.Helper()
	req := l.request(task, inputs...)
	res := l.do(t, req)
	out := l.log(t, req, res.ExecutionID, executions.Stdout)
	if res.State != record.Success {
		t.Fatalf("the task ended in %v %s%s\n%s%s", res.State, res.Reason, res.Message, out, l.log(t, req, res.ExecutionID, executions.Stderr))
	}
	return out
}

func (l *lab) log(t *testing.T, req *executions.Request, id string, stream executions.Stream) string {
	t.Helper()
	r, err := l.OpenLog(t.Context(), keyOf(req), id, stream, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (l *lab) put(t *testing.T, content string) objectstore.Hash {
	t.Helper()
	h, err := objectstore.PutBytes(t.Context(), l.objects, []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (l *lab) content(t *testing.T, h objectstore.Hash) string {
	t.Helper()
	data, err := objectstore.ReadAll(t.Context(), l.objects, h, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (l *lab) tree(t *testing.T, h objectstore.Hash) tree.Entries {
	t.Helper()
	entries, err := tree.Read(t.Context(), l.objects, h)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// all returns the executions on record, latest first.
func (l *lab) all(t *testing.T, k executions.Key) []*executions.Execution {
	t.Helper()
	var list []*executions.Execution
	for e, err := range l.List(t.Context(), k) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// record writes an execution by hand, as it is found after a crash or an import.
func (l *lab) record(t *testing.T, k executions.Key, s *record.Status, fields ...refstore.Field) {
	t.Helper()
	_, err := l.records.Put(t.Context(), refstore.Record{
		Key:   refstore.Key{Partition: "EXECUTION/" + k.String(), Sort: s.ExecutionID},
		Value: s.Encode(), Fields: fields,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func newID(t *testing.T) string {
	t.Helper()
	id, err := executions.NewID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// await waits until cond holds.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(suite.Stuck)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}
