package ui_test

import (
	"testing"

	"e3/internal/ui"
)

// discard counts the pages of an export.
type discard struct{ pages int }

func (d *discard) Write(string, []byte) error { d.pages++; return nil }

// An export reads the past of its tasks together: what it makes for each of them hardly grows with their number. Memory that is
// allocated stands for the work, whatever else the machine does.
func TestExportGrowsWithItsTasks(t *testing.T) {
	each := map[int]int64{}
	for _, n := range []int{150, 600} {
		b := newBench(t)
		b.large(n)
		b.serve(ui.Options{})
		to := &discard{}
		var err error
		made := allocated(func() { _, err = b.server.Export(t.Context(), "prod", runID, nil, to) })
		if err != nil {
			t.Fatal(err)
		}
		each[n] = made / int64(n)
		t.Logf("%d tasks, %d pages: %d KB for each task", n, to.pages, each[n]>>10)
	}
	if each[600] > 2*each[150] {
		t.Errorf("of 600 tasks, each makes %d KB, of 150 each %d, want less than twice as much", each[600]>>10, each[150]>>10)
	}
}
