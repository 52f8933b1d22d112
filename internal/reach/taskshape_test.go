package reach_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/internal/reach"
	"e3/objectstore"
	"e3/objectstore/objectstoretest"
)

func TestTaskShapeOf(t *testing.T) {
	var s objectstoretest.Mem
	task := func(out record.Output, inputs ...record.Kind) objectstore.Hash {
		spec := &record.Task{Shell: "true", Output: out}
		for i, k := range inputs {
			spec.Inputs = append(spec.Inputs, record.Input{Name: fmt.Sprintf("i%d", i), Path: fmt.Sprintf("i%d", i), Kind: k})
		}
		return put(t, &s, spec.Encode())
	}
	one := func(k record.Kind) record.Output {
		return record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "o", Kind: k}}}
	}
	two := record.Output{Multi: true, Entries: []record.OutputEntry{{Name: "a", Path: "a", Kind: record.KindFile}, {Name: "b", Path: "b", Kind: record.KindFile}}}
	large := make([]byte, 17<<20)
	for _, tt := range []struct {
		name   string
		task   objectstore.Hash
		output reach.Kind
		dirs   []int
		made   []int
	}{
		{"file", task(one(record.KindFile)), reach.File, nil, nil},
		{"executable", task(one(record.KindExecutable), record.KindFile, record.KindValue), reach.File, nil, []int{1}},
		{"directory", task(one(record.KindDir), record.KindDir, record.KindFile, record.KindDir), reach.Dir, []int{0, 2}, nil},
		{"several outputs", task(two, record.KindFile, record.KindDir), reach.Dir, []int{1}, nil},
		{"no task", put(t, &s, []byte("text")), reach.FileOrDir, nil, nil},
		{"cut off", put(t, &s, (&record.Task{Shell: "true", Output: two}).Encode()[:40]), reach.FileOrDir, nil, nil},
		{"too large", put(t, &s, large), reach.FileOrDir, nil, nil},
		{"gone", hash(9), reach.FileOrDir, nil, nil},
	} {
		got, err := reach.TaskShapeOf(t.Context(), &s, tt.task)
		if err != nil || got.Output != tt.output || fmt.Sprint(got.Dirs, got.Made) != fmt.Sprint(tt.dirs, tt.made) {
			t.Errorf("%s: got %v %v %v, %v, want %v %v %v", tt.name, got.Output, got.Dirs, got.Made, err, tt.output, tt.dirs, tt.made)
		}
	}
	faulty := &objectstoretest.Faulty{Store: &s, Nth: 1}
	if _, err := reach.TaskShapeOf(t.Context(), faulty, task(two)); !errors.Is(err, objectstoretest.ErrInjected) || strings.Contains(err.Error(), "not found") {
		t.Errorf("a store that fails: got %v, want %v", err, objectstoretest.ErrInjected)
	}
}
