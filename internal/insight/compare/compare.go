// Package compare finds the differences between two sides of a repository's history: runs, workspaces in their present
// state, or the inputs and results of the next start of a workspace. It writes nothing.
//
// It compares inputs, tasks, outputs and metrics. Durations are listed separately, because two runs never take the
// same time. A result that one side executed and the other found in the cache is no difference. If a side names an
// object that is not stored any more, the result says so; this is no error.
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
	// Head returns the commit that git has checked out where the workspace's package file is.
	Head(ctx context.Context, ws string) (string, error)
	// Next returns the package and inputs that the next start of a workspace would use.
	Next(ctx context.Context, ws string) (*plan.Next, error)
}

// Bounds of the lists in a result; further elements are only counted.
const (
	MaxFiles   = 1000 // changes of files within a directory
	MaxMetrics = 1000 // keys of a metrics file, or of a mapping, that differ
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
	Differs bool  `json:"differs"` // also if something cannot be compared; times do not count

	Inputs    Datasets  `json:"inputs"`
	Tasks     Tasks     `json:"tasks"`
	Outputs   Datasets  `json:"outputs"`
	Metrics   []Metrics `json:"metrics"` // differing metrics, of outputs on both sides
	Durations Durations `json:"durations"`
}

// Datasets are the inputs or the outputs of both sides.
type Datasets struct {
	Changes []DatasetChange `json:"changes"` // by name
	Same    int             `json:"same"`
	Unknown string          `json:"unknown,omitempty"` // why some cannot be compared
}

func (d *Datasets) empty() bool { return len(d.Changes) == 0 && d.Unknown == "" }

// A DatasetChange is a dataset that differs between the sides.
type DatasetChange struct {
	Name   string   `json:"name"`
	Change Change   `json:"change"`
	Was    *Dataset `json:"was,omitempty"`
	Is     *Dataset `json:"is,omitempty"`
	Files  *Files   `json:"files,omitempty"`
	Values *Values  `json:"values,omitempty"` // of two mappings
}

// Values are the values in a mapping that differ, such as those of a file of parameters.
type Values struct {
	Changes []Metric `json:"changes"` // by key
	Same    int      `json:"same"`
	More    int      `json:"more,omitempty"`
}

// A Dataset describes a side's dataset. Values and sizes are nil if they cannot be read in reasonable time.
type Dataset struct {
	Kind       string          `json:"kind"` // directory, file or value
	Hash       string          `json:"hash,omitempty"`
	Size       *int64          `json:"size,omitempty"` // of the content
	Files      *int64          `json:"files,omitempty"`
	Executable bool            `json:"executable,omitempty"`
	Value      json.RawMessage `json:"value,omitempty"` // if it is short
	Open       bool            `json:"open,omitempty"`  // unknown until its task has run
}

// Files are the changes within a directory.
type Files struct {
	Added   int          `json:"added"`
	Removed int          `json:"removed"`
	Changed int          `json:"changed"`
	Bytes   int64        `json:"bytes"` // growth of the content
	Changes []FileChange `json:"changes"`
	More    int          `json:"more,omitempty"`
	Unknown string       `json:"unknown,omitempty"` // why more may have changed
}

// A FileChange is a file or a link that differs between two directories.
type FileChange struct {
	Path   string `json:"path"` // relative, with slashes
	Change Change `json:"change"`
	Was    *File  `json:"was,omitempty"`
	Is     *File  `json:"is,omitempty"`
}

// A File is an entry of a directory.
type File struct {
	Kind       string `json:"kind"` // file, link, or an empty or unreadable directory
	Size       int64  `json:"size,omitempty"`
	Executable bool   `json:"executable,omitempty"`
	Target     string `json:"target,omitempty"`
}

// Tasks are the tasks of both sides.
type Tasks struct {
	Changes []TaskChange `json:"changes"` // by name
	Same    int          `json:"same"`
	Unknown string       `json:"unknown,omitempty"` // why some cannot be compared
}

func (t *Tasks) empty() bool { return len(t.Changes) == 0 && t.Unknown == "" }

// A TaskChange is a task whose declaration or outcome differs.
type TaskChange struct {
	Name   string `json:"name"`
	Change Change `json:"change"`
	Parts  []Part `json:"parts,omitempty"` // of the declaration
	Was    string `json:"was,omitempty"`   // state in the run, if it differs
	Is     string `json:"is,omitempty"`
	Why    string `json:"why,omitempty"` // it ended without success: why, in the second run, or else in the first
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
	Entry   string   `json:"entry,omitempty"` // of several outputs
	File    string   `json:"file,omitempty"`  // in an output that is a directory
	Changes []Metric `json:"changes"`         // by key
	Same    int      `json:"same"`
	More    int      `json:"more,omitempty"`
	Unknown string   `json:"unknown,omitempty"`
}

// A Metric is one value of a metrics file or of a mapping. Nested keys are joined by dots, elements of lists have their index in
// brackets.
type Metric struct {
	Key     string          `json:"key"`
	Change  Change          `json:"change"`
	Was     json.RawMessage `json:"was,omitempty"` // a number that JSON lacks is the text NaN, Infinity or -Infinity
	Is      json.RawMessage `json:"is,omitempty"`
	Delta   *float64        `json:"delta,omitempty"`   // of two numbers
	Percent *float64        `json:"percent,omitempty"` // of the first value, if not 0
}

// Durations compares the durations of executions, and of the runs.
type Durations struct {
	Tasks    []Duration `json:"tasks"` // tasks with other executions, by name
	WasMs    int64      `json:"wasMs"` // of all these tasks
	IsMs     int64      `json:"isMs"`
	RunWasMs int64      `json:"runWasMs,omitempty"` // of a run that has ended
	RunIsMs  int64      `json:"runIsMs,omitempty"`
}

// A Duration compares the durations of a task's executions.
type Duration struct {
	Task    string  `json:"task"`
	WasMs   int64   `json:"wasMs"`
	IsMs    int64   `json:"isMs"`
	Ratio   float64 `json:"ratio,omitempty"` // isMs / wasMs
	Notable bool    `json:"notable"`         // they differ by at least 500 ms and a fifth
}

// Compare returns the differences of b relative to a. It looks up the executions in which the sides differ, and no others.
func Compare(ctx context.Context, s Stores, a, b Side) (*Difference, error) {
	s.Runs = s.Runs.Remembering() // both sides may have the same package
	s.Packages = s.Runs.Packages
	was, err := s.read(ctx, a)
	if err != nil {
		return nil, err
	}
	is, err := s.read(ctx, b)
	if err != nil {
		return nil, err
	}
	differs := func(task string) bool {
		a, had := was.tasks[task]
		b, has := is.tasks[task]
		return had && has && !shared(a, b)
	}
	for _, d := range []*side{was, is} {
		if err := s.lookUp(ctx, d, differs); err != nil {
			return nil, err
		}
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
	objects executions.Objects // the objects of both sides
}

// truncate bounds the length of an untrusted text.
func truncate(text string) string {
	return human.Truncate(text, maxText)
}
