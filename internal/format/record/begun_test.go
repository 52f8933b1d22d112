package record_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/record"
)

// A detail holds the execution under which the command was begun, beside the other suffixes of the version.
func TestDetailBegun(t *testing.T) {
	const id = "0192f0c1-2345-7abc-8def-0123456789ab"
	for _, d := range []record.Detail{
		{Version: "1.2", Begun: id}, {Begun: id, Checked: true},
		{Version: "1.2+begun.x", Begun: id, Checked: true, Logs: record.Logs{Known: true, Stdout: record.LogSum{Size: 3, Sum: 7}}},
		{Version: "1.2+begun.no-id"},
	} {
		got, err := record.DecodeDetail(d.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&d, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
