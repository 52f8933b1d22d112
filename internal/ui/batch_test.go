package ui_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/ui"
)

// The page of a task says with which others one command served it.
func TestTaskSaysItsBatch(t *testing.T) {
	b := newBench(t)
	batch := record.Batched{ID: "0194fdc2-fa2f-7cc0-81d3-ff12045b73c9", Items: 20}
	list := []made{{name: "other", state: runview.TaskSuccess, took: time.Second, file: "o", output: "x"}}
	for i := range batch.Items {
		list = append(list, made{name: fmt.Sprintf("t[%02d]", i), state: runview.TaskSuccess, took: time.Second, file: "o", output: "x", batch: batch})
	}
	b.run(false, list...)
	b.serve(ui.Options{})
	page := b.page("/task?w=prod&t=t%5B03%5D")
	_, told, _ := strings.Cut(page, `id="together"`)
	told, _, _ = strings.Cut(told, "</p>")
	for _, want := range []string{"One of the 20 items of a command", ">t[00]</a>", ">t[12]</a>", "t=t%5B04%5D", "and 7 more"} {
		if !strings.Contains(told, want) {
			t.Errorf("the page lacks %q: %s", want, told)
		}
	}
	if strings.Contains(told, ">t[03]<") || strings.Contains(told, ">t[13]<") || strings.Contains(told, "other") {
		t.Errorf("the page names other tasks than the first others of the batch: %s", told)
	}
	if page := b.page("/task?w=prod&t=other"); strings.Contains(page, "together") {
		t.Error("the page of a task without a batch speaks of one")
	}
}
