// Package compare tells what is different between two sides of a repository's history: runs, workspaces as they are now, and what
// the next start of a workspace would see. It writes nothing.
//
// Inputs, tasks, outputs and metrics that differ are differences; durations are told beside them, because two runs never take
// the same time. That one side took an answer from the cache which the other executed is no difference either. What one side
// names and is not stored any more is said in its place; it is no error.
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

// Stores are what is compared from.
type Stores struct {
	Records    executions.Records
	Objects    executions.Objects
	Executions *executions.Store
	Workspaces Workspaces
	Runs       *runview.Runs
	Packages   *packages.Registry
}

// Workspaces are what a comparison asks of the workspaces of a repository; workspace.View has it.
type Workspaces interface {
	// State returns the state of a workspace, or human.ErrNotFound.
	State(ctx context.Context, ws string) (*record.WorkspaceState, error)
	// Leaves returns the inputs and outputs of a workspace that have a value, by name.
	Leaves(ctx context.Context, ws string) (inputs, outputs map[string]record.Leaf, err error)
	// Next tells what the next start of a workspace would run on.
	Next(ctx context.Context, ws string) (*plan.Next, error)
}

// Bounds on what is told of one place; what is beyond is counted.
const (
	MaxFiles   = 1000 // changes of files within a directory
	MaxMetrics = 1000 // keys of a metrics file that differ
	maxText    = 4 << 10
)

// A Change says how two sides differ in something.
type Change string

// The changes.
const (
	Added   Change = "added"   // only the second side has it
	Removed Change = "removed" // only the first side has it
	Changed Change = "changed"
)

// Difference is what is different between two sides. Its fields are also its JSON.
type Difference struct {
	A, B *Seen `json:"-"`

	Inputs    Datasets  `json:"inputs"`
	Tasks     Tasks     `json:"tasks"`
	Outputs   Datasets  `json:"outputs"` // by the task that makes them
	Metrics   []Metrics `json:"metrics"` // of outputs that are there on both sides and differ
	Durations Durations `json:"durations"`
}

// Empty reports whether nothing differs, apart from times. It is false if something can no longer be compared.
func (d *Difference) Empty() bool {
	return d.Inputs.empty() && d.Tasks.empty() && d.Outputs.empty() && len(d.Metrics) == 0
}

// Datasets are the inputs or the outputs of both sides.
type Datasets struct {
	Changes []DatasetChange `json:"changes"` // in the order of the names
	Same    int             `json:"same"`
	Unknown string          `json:"unknown,omitempty"` // why they cannot be compared, or not all of them
}

func (d *Datasets) empty() bool { return len(d.Changes) == 0 && d.Unknown == "" }

// A DatasetChange is a dataset that is not the same on both sides.
type DatasetChange struct {
	Name   string   `json:"name"`
	Change Change   `json:"change"`
	Was    *Dataset `json:"was,omitempty"` // nil where the first side has none
	Is     *Dataset `json:"is,omitempty"`  // nil where the second side has none
	Files  *Files   `json:"files,omitempty"`
}

// A Dataset is what a side has under a name. Values and sizes are nil where they cannot be told, or not in reasonable time.
type Dataset struct {
	Kind       string          `json:"kind"` // directory, file or value
	Hash       string          `json:"hash,omitempty"`
	Size       *int64          `json:"size,omitempty"` // of the content in bytes
	Files      *int64          `json:"files,omitempty"`
	Executable bool            `json:"executable,omitempty"`
	Value      json.RawMessage `json:"value,omitempty"` // of a value that is not long
	// Open says that it is not known before its task has run.
	Open bool `json:"open,omitempty"`
}

// Files are the changes within a directory.
type Files struct {
	Added   int          `json:"added"`
	Removed int          `json:"removed"`
	Changed int          `json:"changed"`
	Bytes   int64        `json:"bytes"` // by how much it has grown, as far as it could be read
	Changes []FileChange `json:"changes"`
	More    int          `json:"more,omitempty"`    // changes that are only counted
	Unknown string       `json:"unknown,omitempty"` // why there may be further changes
}

// A FileChange is a file, or a link, that is not the same in two directories.
type FileChange struct {
	Path   string `json:"path"` // slash-separated, from the top of the directories
	Change Change `json:"change"`
	Was    *File  `json:"was,omitempty"`
	Is     *File  `json:"is,omitempty"`
}

// A File is an entry of a directory.
type File struct {
	Kind       string `json:"kind"` // file, link, or a directory that is empty or cannot be looked into
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

// A TaskChange is a task that is declared otherwise, or came to another end.
type TaskChange struct {
	Name   string `json:"name"`
	Change Change `json:"change"`
	Parts  []Part `json:"parts,omitempty"` // of the declaration
	// Was and Is are the states in the runs, "" where they do not differ.
	Was string `json:"was,omitempty"`
	Is  string `json:"is,omitempty"`
}

// A Part is a part of a task's declaration that differs: command, env, inputs, wiring, output, version, which decide what it
// computes, or policy, which does not. Name says which entry of it, "" for the part as a whole.
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

// A Metric is one value of a metrics file. Nested keys are joined by dots, elements of lists are counted in brackets.
type Metric struct {
	Key     string          `json:"key"`
	Change  Change          `json:"change"`
	Was     json.RawMessage `json:"was,omitempty"`
	Is      json.RawMessage `json:"is,omitempty"`
	Delta   *float64        `json:"delta,omitempty"`   // of two numbers
	Percent *float64        `json:"percent,omitempty"` // of the first, where that is not 0
}

// Durations compares how long executions took, and the runs.
type Durations struct {
	Tasks []Duration `json:"tasks"` // that have another execution on each side, by name
	// WasMs and IsMs add up the executions of all tasks, 0 where none is known; those of a cached task count, whenever they were.
	WasMs int64 `json:"wasMs"`
	IsMs  int64 `json:"isMs"`
	// RunWasMs and RunIsMs are how long the runs took, 0 where a side is none or has not ended.
	RunWasMs int64 `json:"runWasMs,omitempty"`
	RunIsMs  int64 `json:"runIsMs,omitempty"`
}

// A Duration is how long the executions of a task took.
type Duration struct {
	Task  string `json:"task"`
	WasMs int64  `json:"wasMs"`
	IsMs  int64  `json:"isMs"`
	// Ratio is the second to the first, 0 where the first took no time.
	Ratio float64 `json:"ratio,omitempty"`
	// Notable says that the times differ by half a second and by a fifth at least.
	Notable bool `json:"notable"`
}

// Compare tells what is different in b against a.
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
	return d, ctx.Err()
}

// comparison is one Compare.
type comparison struct {
	ctx     context.Context
	was, is *side
	objects executions.Objects // those of both sides
}

// truncate bounds a text that comes from elsewhere.
func truncate(text string) string {
	return human.Truncate(text, maxText)
}
