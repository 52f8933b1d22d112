package dataflow_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/objectstoretest"
	"e3/objectstore/tree"
)

// asked runs a graph whose tasks leave what outputs say, and returns what was asked for each.
func asked(t *testing.T, pkg *record.Package, inputs record.Node, objects *objectstoretest.Mem, outputs map[string]executions.Result) (map[string]*executions.Request, error) {
	t.Helper()
	var mu sync.Mutex
	requests := map[string]*executions.Request{}
	x := doFunc(func(ctx context.Context, req *executions.Request) (executions.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		requests[req.Name] = req
		res := outputs[req.Name]
		res.State, res.ExecutionID = record.Success, "id of "+req.Name
		return res, nil
	})
	_, err := dataflow.Run(t.Context(), graphOf(t, pkg), objects, x, dataflow.Options{RunID: "r7", Workspace: "prod", Inputs: inputs, Concurrency: 2})
	return requests, err
}

func put(t *testing.T, objects *objectstoretest.Mem, b []byte) objectstore.Hash {
	t.Helper()
	h, err := objectstore.PutBytes(t.Context(), objects, b)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func putTree(t *testing.T, objects *objectstoretest.Mem, entries tree.Entries) objectstore.Hash {
	t.Helper()
	data, err := tree.Encode(entries)
	if err != nil {
		t.Fatal(err)
	}
	return put(t, objects, data)
}

// What a task reads, by each kind of wire.
func TestWhatIsRead(t *testing.T) {
	objects := &objectstoretest.Mem{}
	model, metrics := objectstore.Sum([]byte("model")), objectstore.Sum([]byte("metrics"))
	several := putTree(t, objects, tree.Entries{
		{Name: "metrics", Kind: tree.KindFile, Hash: metrics, Size: 7},
		{Name: "model", Kind: tree.KindFile, Hash: model, Size: 100, Executable: true},
	})
	file, tool := objectstore.Sum([]byte("file")), objectstore.Sum([]byte("tool"))
	outputs := map[string]executions.Result{
		"file": {Output: file, Size: 4}, "tool": {Output: tool, Size: 5}, "several": {Output: several, Size: 300},
	}
	pkg := flow("file", "tool", "several", "reader", "gatherer")
	pkg.Tasks[1].Output, pkg.Tasks[2].Output = record.KindExecutable, record.KindDir
	pkg.Tasks[3].Wiring = []record.Wire{
		{Kind: record.WireOutput, Name: "several", Entry: "model"}, {Kind: record.WireOutput, Name: "file"},
		{Kind: record.WireOutput, Name: "several"}, {Kind: record.WireInput, Name: "x"}, {Kind: record.WireOutput, Name: "file"},
	}
	pkg.Tasks[3].Policy = record.Policy{Priority: 3}
	pkg.Tasks[4].Wiring = []record.Wire{{Kind: record.WireFanIn, Items: []record.FanItem{
		{Label: "z", Task: "file"}, {Label: "tool", Task: "tool"}, {Label: "4", Task: "several", Entry: "metrics"},
		{Label: "8", Task: "several", Entry: "model"}, {Label: "all", Task: "several"},
	}}, {Kind: record.WireFanIn}}
	requests, err := asked(t, pkg, oneInput, objects, outputs)
	if err != nil {
		t.Fatal(err)
	}
	reader := requests["reader"]
	if want := []objectstore.Hash{model, file, several, mustHash(t, oneInput[0].Hash), file}; !slices.Equal(reader.Inputs, want) {
		t.Errorf("reader reads %v, want %v", reader.Inputs, want)
	}
	if want := int64(100 + 4 + 300 + 0 + 4); reader.InputBytes != want {
		t.Errorf("they have %d bytes, want %d", reader.InputBytes, want)
	}
	if reader.Task.String() != pkg.Tasks[3].Task || reader.RunID != "r7" || reader.Workspace != "prod" || reader.Attempt != 1 || reader.Force ||
		reader.Policy == nil || reader.Policy.Priority != 3 {
		t.Errorf("the request is %+v", reader)
	}
	want := tree.Entries{
		{Name: "4", Kind: tree.KindFile, Hash: metrics, Size: 7},
		{Name: "8", Kind: tree.KindFile, Hash: model, Size: 100, Executable: true},
		{Name: "all", Kind: tree.KindDir, Hash: several},
		{Name: "tool", Kind: tree.KindFile, Hash: tool, Size: 5, Executable: true},
		{Name: "z", Kind: tree.KindFile, Hash: file, Size: 4},
	}
	if absent, err := objects.Missing(t.Context(), requests["gatherer"].Inputs); err != nil || len(absent) != 2 {
		t.Errorf("before it is known that the gatherer runs, %v of its inputs are absent, %v; want both", absent, err)
	}
	if _, err := requests["gatherer"].Load(t.Context()); !errors.Is(err, objectstore.ErrNotFound) { // there are no tasks here
		t.Fatal(err)
	}
	gathered, err := tree.Read(t.Context(), objects, requests["gatherer"].Inputs[0])
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(gathered, want) {
		t.Errorf("the fan-in is %+v, want %+v", gathered, want)
	}
	if empty, err := tree.Read(t.Context(), objects, requests["gatherer"].Inputs[1]); err != nil || len(empty) > 0 {
		t.Errorf("a fan-in of nothing is %v, %v", empty, err)
	}
}

// What cannot be read is a fault that says what and where, before anything runs on it.
func TestWhatCannotBeRead(t *testing.T) {
	objects := &objectstoretest.Mem{}
	dir := putTree(t, objects, tree.Entries{{Name: "model", Kind: tree.KindFile}})
	gone := objectstore.Sum([]byte("gone"))
	for _, test := range []struct {
		name   string
		output objectstore.Hash
		wire   record.Wire
		want   string
	}{
		{"entry that is not there", dir, record.Wire{Kind: record.WireOutput, Name: "a", Entry: "metrics"}, `no entry "metrics"`},
		{"entry in a fan-in", dir, record.Wire{Kind: record.WireFanIn, Items: []record.FanItem{{Label: "1", Task: "a", Entry: "metrics"}}}, `no entry "metrics"`},
		{"directory that is gone", gone, record.Wire{Kind: record.WireOutput, Name: "a", Entry: "model"}, "damaged again"},
		{"label twice", dir, record.Wire{Kind: record.WireFanIn, Items: []record.FanItem{{Label: "1", Task: "a"}, {Label: "1", Task: "a"}}}, `"1"`},
		{"label that is no name", dir, record.Wire{Kind: record.WireFanIn, Items: []record.FanItem{{Label: "../x", Task: "a"}}}, `"../x"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			pkg := flow("a", "b: a")
			pkg.Tasks[0].Output = record.KindDir
			put(t, objects, []byte("task b"))
			pkg.Tasks[1].Wiring = []record.Wire{test.wire}
			requests, err := asked(t, pkg, oneInput, objects, map[string]executions.Result{"a": {Output: test.output}})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "task b") {
				t.Errorf("error is %v, want one of task b about %s", err, test.want)
			}
			if requests["b"] != nil {
				t.Error("it was asked for all the same")
			}
		})
	}
}

// The task object is read only when Load is called.
func TestLoad(t *testing.T) {
	objects := &objectstoretest.Mem{}
	task := &record.Task{Shell: "true", Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "o", Kind: record.KindFile}}}}
	h := put(t, objects, task.Encode())
	pkg := flow("good", "gone", "strange")
	pkg.Tasks[0].Task, pkg.Tasks[2].Task = h.String(), put(t, objects, []byte("no task")).String()
	requests, err := asked(t, pkg, oneInput, objects, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := requests["good"].Load(t.Context()); err != nil || got.Shell != "true" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := requests["gone"].Load(t.Context()); !errors.Is(err, objectstore.ErrNotFound) || !strings.Contains(err.Error(), pkg.Tasks[1].Task) {
		t.Errorf("a task object that is gone: %v", err)
	}
	if _, err := requests["strange"].Load(t.Context()); !errors.Is(err, record.ErrType) {
		t.Errorf("an object that is no task: %v", err)
	}
}
