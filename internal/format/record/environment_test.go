package record_test

import (
	"errors"
	"strings"
	"testing"

	"e3/internal/format/beast2"
	"e3/internal/format/record"
)

// A task with an environment has its files once, its programs, and folders that do not lead out.
func TestDecodeRefusesEnvironments(t *testing.T) {
	files := record.Input{Name: "@py", Kind: record.KindDir}
	for name, c := range map[string]struct {
		change func(*record.Task)
		says   string
	}{
		"none":              {func(*record.Task) {}, ""},
		"in an image":       {func(t *record.Task) { t.Image, t.Room.Closed = strings.Repeat("0", 64), true }, "and no image"},
		"without files":     {func(t *record.Task) { t.Inputs = nil }, "has its files once"},
		"files twice":       {func(t *record.Task) { t.Inputs = append(t.Inputs, files) }, "has its files once"},
		"files alone":       {func(t *record.Task) { t.Environment = nil }, "has its files once"},
		"a file":            {func(t *record.Task) { t.Inputs[0].Kind = record.KindFile }, "are no directory"},
		"files at a path":   {func(t *record.Task) { t.Inputs[0].Path = "x" }, "have a path"},
		"a folder above":    {func(t *record.Task) { t.Environment.Path = []string{"../bin"} }, "is not in the environment"},
		"an absolute one":   {func(t *record.Task) { t.Environment.Path = []string{"/bin"} }, "is not in the environment"},
		"two in one":        {func(t *record.Task) { t.Environment.Path = []string{"bin:/bin"} }, "is not in the environment"},
		"without a program": {func(t *record.Task) { t.Environment.Tools = []string{"uv"} }, "has no such input"},
	} {
		task := &record.Task{
			Argv: []string{"fit"}, Inputs: []record.Input{files}, Environment: &record.Environment{Shell: "uv sync", Path: []string{"bin"}},
			Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "o", Kind: record.KindFile}}},
		}
		c.change(task)
		_, err := record.DecodeTask(task.Encode())
		var syntax *beast2.SyntaxError
		if c.says == "" && err != nil || c.says != "" && (!errors.As(err, &syntax) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %v, want a *beast2.SyntaxError with %q", name, err, c.says)
		}
	}
}
