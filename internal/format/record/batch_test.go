package record_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/record"
)

// A task that runs in batches is another task, in the open room and in a closed one.
func TestTaskBatch(t *testing.T) {
	plain := record.Task{
		Argv: []string{"run"}, Env: []record.EnvVar{{Name: "MODE", Value: "x"}, {Name: "n", Value: "1"}},
		Inputs: []record.Input{{Name: "raw", Path: "raw", Kind: record.KindFile}, {Name: "%sh", Kind: record.KindTool}},
		Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "o", Kind: record.KindFile}}},
	}
	seen := map[string]bool{string(plain.Encode()): true}
	for _, room := range []record.Room{{}, {Closed: true}, {Closed: true, Network: true}} {
		for _, own := range [][]string{nil, {"n"}, {"n", "raw"}} {
			task := plain
			task.Room, task.Batch = room, &record.Batch{Own: own}
			data := task.Encode()
			if seen[string(data)] {
				t.Errorf("%+v %v: the object is that of another task", room, own)
			}
			seen[string(data)] = true
			got, err := record.DecodeTask(data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&task, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		}
	}
	if b := (&record.Batch{Own: []string{"n", "raw"}}); !b.Owns("raw") || b.Owns("MODE") {
		t.Error("Owns does not tell what belongs to the item")
	}
	for _, own := range []string{"other", "%sh"} {
		task := plain
		task.Batch = &record.Batch{Own: []string{own}}
		if _, err := record.DecodeTask(task.Encode()); err == nil || !strings.Contains(err.Error(), "neither a constant nor an input") {
			t.Errorf("an item that owns %q: %v, want that it is refused", own, err)
		}
	}
}
