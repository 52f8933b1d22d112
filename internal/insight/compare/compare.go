// Package compare finds the differences between two sides of a repository's history: runs, workspaces in their present
// state, or the inputs and results of the next start of a workspace. It writes nothing.
//
// Differences are those of inputs, tasks, outputs and metrics. Durations are listed separately, because two runs never
// take the same time. A result that one side executed and the other found in the cache is no difference. Where a side
// names something that is not stored any more, the result says so; this is no error.
package compare

import (
	"context"
	"encoding/json"

	"e3/dataflow/plan"
	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/packages"
)

// Stores holds the sources of comparisons.
type Stores struct {
	Records    executions.Records
	Objects    executions.Objects
	Executions *executions.Store
	Workspaces Workspaces
	Runs       *runview.Runs
	Packages   *packages.Registry
}

// Workspaces is the part of a repository's workspaces that comparisons use; workspace.View implements it.
type Workspaces interface {
	// State returns the state of a workspace, or human.ErrNotFound.
	State(ctx context.Context, ws string) (*record.WorkspaceState, error)
	// Leaves returns the inputs and outputs of a workspace that have a value, by name.
	Leaves(ctx context.Context, ws string) (inputs, outputs map[string]record.Leaf, err error)
	// Next returns the package and inputs that the next start of a workspace would use.
	Next(ctx context.Context, ws string) (*plan.Next, error)
}

// Bounds of the lists in a result; further elements are only counted.
const (
	MaxFiles   = 1000 // changes of files within a directory
	MaxMetrics = 1000 // keys of a metrics file that differ
	maxText    = 4 << 10
)

// A Change is the kind of a difference between two sides.
type Change string

// The kinds of changes.
const (
	Added   Change = "added"   // only the second side has it
	Removed Change = "removed" // only the first side has it
	Changed Change = "changed"
)

// Difference holds the differences between two sides. Its fields are also its JSON.
type Difference struct {
	A       *Seen `json:"a"`
	B       *Seen `json:"b"`
	Differs bool  `json:"differs"` // also if something can no longer be compared; times do not count

	Inputs    Datasets  `json:"inputs"`
	Tasks     Tasks     `json:"tasks"`
	Outputs   Datasets  `json:"outputs"` // by the task that makes them
	Metrics   []Metrics `json:"metrics"` // of outputs that both sides have and that differ
	Durations Durations `json:"durations"`
}

// Datasets are the inputs or the outputs of both sides.
type Datasets struct {
	Changes []DatasetChange `json:"changes"` // in the order of the names
	Same    int             `json:"same"`
	Unknown string          `json:"unknown,omitempty"` // why they cannot be compared, or not all of them
}

func (d *Datasets) empty() bool { return len(d.Changes) == 0 && d.Unknown == "" }

// A DatasetChange is a dataset that differs between the sides.
type DatasetChange struct {
	Name   string   `json:"name"`
	Change Change   `json:"change"`
	Was    *Dataset `json:"was,omitempty"` // absent where the first side has none
	Is     *Dataset `json:"is,omitempty"`  // absent where the second side has none
	Files  *Files   `json:"files,omitempty"`
}

// A Dataset describes a side's dataset. Values and sizes are nil where they cannot be read, or not in reasonable time.
type Dataset struct {
	Kind       string          `json:"kind"` // directory, file or value
	Hash       string          `json:"hash,omitempty"`
	Size       *int64          `json:"size,omitempty"` // of the content in bytes
	Files      *int64          `json:"files,omitempty"`
	Executable bool            `json:"executable,omitempty"`
	Value      json.RawMessage `json:"value,omitempty"` // of a short value
	// its content is not known before its task has run.
	Open bool `json:"open,omitempty"`
}

// Files are the changes within a directory.
type Files struct {
	Added   int          `json:"added"`
	Removed int          `json:"removed"`
	Changed int          `json:"changed"`
	Bytes   int64        `json:"bytes"` // growth of the content, as far as it could be read
	Changes []FileChange `json:"changes"`
	More    int          `json:"more,omitempty"`    // changes that are only counted
	Unknown string       `json:"unknown,omitempty"` // why there may be further changes
}

// A FileChange is a file or a link that differs between two directories.
type FileChange struct {
	Path   string `json:"path"` // slash-separated, relative to the compared directories
	Change Change `json:"change"`
	Was    *File  `json:"was,omitempty"`
	Is     *File  `json:"is,omitempty"`
}

// A File is an entry of a directory.
type File struct {
	Kind       string `json:"kind"` // file, link, or a directory that is empty or unreadable
	Size       int64  `json:"size,omitempty"`
	Executable bool   `json:"executable,omitempty"`
	Target     string `json:"target,omitempty"`
}

// Tasks are the tasks of both sides.
type Tasks struct {
	Changes []TaskChange `json:"changes"` // in the order of the names
	Same    int          `json:"same"`
	Unknown string       `json:"unknown,omitempty"` // why their declarations cannot be compared, or not all of them
}

func (t *Tasks) empty() bool { return len(t.Changes) == 0 && t.Unknown == "" }

// A TaskChange is a task whose declaration or outcome differs.
type TaskChange struct {
	Name   string `json:"name"`
	Change Change `json:"change"`
	Parts  []Part `json:"parts,omitempty"` // of the declaration
	// the states in the runs, absent where they do not differ
	Was string `json:"was,omitempty"`
	Is  string `json:"is,omitempty"`
}

// A Part is a differing part of a task's declaration: command, env, inputs, wiring, output or version, which decide
// what the task computes, or policy, which does not. Name is the entry that differs, "" for the part as a whole.
type Part struct {
	Part   string `json:"part"`
	Name   string `json:"name,omitempty"`
	Change Change `json:"change"`
	Was    string `json:"was,omitempty"`
	Is     string `json:"is,omitempty"`
}

// Metrics are the values of one metrics file that differ.
type Metrics struct {
	Task    string   `json:"task"`
	Entry   string   `json:"entry,omitempty"` // of the task's output, "" where it has one
	Changes []Metric `json:"changes"`         // in the order of the keys
	Same    int      `json:"same"`
	More    int      `json:"more,omitempty"` // changes that are only counted
	Unknown string   `json:"unknown,omitempty"`
}

// A Metric is one value of a metrics file. Nested keys are joined by dots, elements of lists have their index in
// brackets.
type Metric struct {
	Key     string          `json:"key"`
	Change  Change          `json:"change"`
	Was     json.RawMessage `json:"was,omitempty"`
	Is      json.RawMessage `json:"is,omitempty"`
	Delta   *float64        `json:"delta,omitempty"`   // of two numbers
	Percent *float64        `json:"percent,omitempty"` // relative to the first value, where that is not 0
}

// Durations compares the durations of executions, and of the runs.
type Durations struct {
	Tasks []Duration `json:"tasks"` // whose executions differ between the sides, by name
	// the executions of all tasks together, 0 where none is known. The execution of a cached task counts,
	// even if an earlier run made it.
	WasMs int64 `json:"wasMs"`
	IsMs  int64 `json:"isMs"`
	// the durations of the runs, absent where a side is no run or has not ended.
	RunWasMs int64 `json:"runWasMs,omitempty"`
	RunIsMs  int64 `json:"runIsMs,omitempty"`
}

// A Duration compares the durations of a task's executions.
type Duration struct {
	Task  string `json:"task"`
	WasMs int64  `json:"wasMs"`
	IsMs  int64  `json:"isMs"`
	// the second duration divided by the first, absent where the first is 0.
	Ratio float64 `json:"ratio,omitempty"`
	// the durations differ by at least half a second and at least a fifth.
	Notable bool `json:"notable"`
}

// Compare returns the differences of b relative to a.
func Compare(ctx context.Context, s Stores, a, b Side) (*Difference, error) {
	was, err := s.read(ctx, a)
	if err != nil {
		return nil, err
	}
	is, err := s.read(ctx, b)
	if err != nil {
		return nil, err
	}
	c := &comparison{ctx: ctx, was: was, is: is, objects: both(was.objects, is.objects)}
	d := &Difference{A: &was.Seen, B: &is.Seen, Metrics: []Metrics{}}
	if d.Tasks, err = c.tasks(); err != nil {
		return nil, err
	}
	if d.Inputs, err = c.datasets(&was.inputs, &is.inputs); err != nil {
		return nil, err
	}
	if d.Outputs, err = c.datasets(&was.outputs, &is.outputs); err != nil {
		return nil, err
	}
	if err := c.metrics(d); err != nil {
		return nil, err
	}
	d.Durations = c.durations()
	d.Differs = !d.Inputs.empty() || !d.Tasks.empty() || !d.Outputs.empty() || len(d.Metrics) > 0
	return d, ctx.Err()
}

// comparison is the state of one Compare.
type comparison struct {
	ctx     context.Context
	was, is *side
	objects executions.Objects // those of both sides
}

// truncate bounds the length of an untrusted text.
func truncate(text string) string {
	return human.Truncate(text, maxText)
}
