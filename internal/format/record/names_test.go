package record_test

import (
	"fmt"
	"testing"

	"e3/internal/format/record"
)

func TestNames(t *testing.T) {
	for _, test := range []struct {
		value fmt.Stringer
		want  string
	}{
		{record.Error, "error"}, {record.Failed, "failed"}, {record.Running, "running"}, {record.Success, "success"},
		{record.State(9), "record.State(9)"},
		{record.RunCancelled, "cancelled"}, {record.RunCompleted, "completed"}, {record.RunFailed, "failed"},
		{record.RunRunning, "running"}, {record.RunState(9), "record.RunState(9)"},
		{record.KindDir, "directory"}, {record.KindExecutable, "executable file"}, {record.KindFile, "file"}, {record.KindValue, "value"},
		{record.Dataflow, "running"}, {record.DatasetWrite, "writing a dataset"}, {record.Deployment, "deploying"},
		{record.Removal, "being removed"}, {record.Operation(9), "operation(9)"},
	} {
		if got := test.value.String(); got != test.want {
			t.Errorf("%T(%d) is called %q, want %q", test.value, test.value, got, test.want)
		}
	}
}
