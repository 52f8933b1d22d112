package dataflow_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/objectstoretest"
	"e3/objectstore/tree"
)

// The keys are those that a run asks for, and finding them stores nothing.
func TestKeys(t *testing.T) {
	objects := &objectstoretest.Mem{}
	several := putTree(t, objects, tree.Entries{
		{Name: "metrics", Kind: tree.KindFile, Hash: objectstore.Sum([]byte("metrics")), Size: 7},
		{Name: "model", Kind: tree.KindFile, Hash: objectstore.Sum([]byte("model")), Size: 100, Executable: true},
	})
	outputs := map[string]executions.Result{
		"file": {Output: objectstore.Sum([]byte("file")), Size: 4}, "several": {Output: several, Size: 300},
		"reader": {Output: objectstore.Sum([]byte("reader")), Size: 1}, "gatherer": {}, "last": {},
	}
	pkg := flow("last", "gatherer", "reader", "file", "several")
	pkg.Tasks[4].Output = record.KindDir
	pkg.Tasks[2].Wiring = []record.Wire{{Kind: record.WireOutput, Name: "several", Entry: "model"}, {Kind: record.WireInput, Name: "x"}}
	pkg.Tasks[1].Wiring = []record.Wire{{Kind: record.WireFanIn, Items: []record.FanItem{
		{Label: "a", Task: "file"}, {Label: "b", Task: "several", Entry: "metrics"}, {Label: "c", Task: "several"},
	}}}
	pkg.Tasks[0].Wiring = []record.Wire{{Kind: record.WireOutput, Name: "reader"}}
	requests, err := asked(t, pkg, oneInput, objects, outputs)
	if err != nil {
		t.Fatal(err)
	}
	g := graphOf(t, pkg)
	find := func(unknown string, inputs record.Node) map[string]*executions.Key {
		t.Helper()
		var mu sync.Mutex
		keys := map[string]*executions.Key{}
		err := dataflow.Keys(t.Context(), g, readOnly{Mem: objects, t: t}, inputs, 0, func(i int32, key *executions.Key) (*dataflow.Produced, error) {
			mu.Lock()
			defer mu.Unlock()
			keys[g.Name(i)] = key
			if g.Name(i) == unknown {
				return nil, nil
			}
			return &dataflow.Produced{Output: outputs[g.Name(i)].Output, Size: outputs[g.Name(i)].Size}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	keys := find("", oneInput)
	for name, req := range requests {
		if want := executions.NewKey(req.Task, req.Inputs); keys[name] == nil || *keys[name] != want {
			t.Errorf("the key of %s is %v, want %v", name, keys[name], want)
		}
	}
	// What is not known leaves those downstream unknown, and no others.
	for name, want := range map[string]map[string]bool{
		"several": {"file": true, "several": true, "reader": false, "gatherer": false},
		"reader":  {"file": true, "several": true, "reader": true, "gatherer": true, "last": false},
	} {
		keys := find(name, oneInput)
		for task, known := range want {
			if (keys[task] != nil) != known {
				t.Errorf("without what %s made, the key of %s is %v, want it known: %v", name, task, keys[task], known)
			}
		}
	}
	if keys := find("", nil); keys["file"] != nil || keys["gatherer"] == nil {
		t.Errorf("without the input the keys are %v", keys)
	}
	stop := errors.New("stop")
	if err := dataflow.Keys(t.Context(), g, objects, oneInput, 0, func(int32, *executions.Key) (*dataflow.Produced, error) { return nil, stop }); !errors.Is(err, stop) {
		t.Errorf("an error of the visit becomes %v", err)
	}
}

// readOnly is a store that must not be written.
type readOnly struct {
	*objectstoretest.Mem
	t *testing.T
}

func (s readOnly) Put(context.Context, io.Reader) (objectstore.Info, error) {
	s.t.Error("something was stored")
	return objectstore.Info{}, errors.New("read-only")
}
