package record

import (
	"iter"
	"time"

	"e3/internal/format/beast2"
	"e3/internal/format/codec"
)

// RunState is the state of a run. The values are the case tags on disk.
type RunState int

// The states of a run.
const (
	RunCancelled RunState = iota
	RunCompleted
	RunFailed
	RunRunning
)

// Cases are the states' names.
func (s RunState) Cases() []string { return []string{"cancelled", "completed", "failed", "running"} }

func (s RunState) String() string { return caseName(s) }

// Summary counts the tasks of a run. Completed includes cached tasks.
type Summary struct {
	Total, Completed, Cached, Failed, Skipped int64
}

// Run is the DataflowRun record: one pass of the dataflow in a workspace.
type Run struct {
	RunID          string
	WorkspaceName  string
	PackageRef     string // name@version
	StartedAt      time.Time
	CompletedAt    time.Time `beast2:",option"` // zero while running
	State          RunState  `beast2:"status,case"`
	FailedTask     string    `beast2:",in=failed"` // the first task that failed
	Error          string    `beast2:",in=failed"` // its error text, or its exit code as text
	InputSnapshot  string    // root hash at the start, inputs only
	OutputSnapshot string    `beast2:",option"` // root hash at the end, "" before
	Tasks          RunTasks  `beast2:"taskExecutions"`
	Summary        Summary
}

// TaskExecution names the execution of a task in a run.
type TaskExecution struct {
	Task        string
	ExecutionID string
	Cached      bool
}

// RunTasks is the run's map from task to execution, in the order of the graph. It stays encoded: so a run that changes
// little copies most of its predecessor's map, and a map of 100,000 tasks takes no more memory than its bytes. The
// zero value is empty.
type RunTasks struct {
	n       int
	entries string
}

// NewRunTasks builds the map from its entries. Task names must be distinct.
func NewRunTasks(entries iter.Seq[TaskExecution]) RunTasks {
	var b []byte
	n := 0
	for e := range entries {
		b = beast2.AppendString(b, e.Task)
		b = beast2.AppendString(b, e.ExecutionID)
		b = beast2.AppendBoolean(b, e.Cached)
		n++
	}
	return RunTasks{n: n, entries: string(b)}
}

// Len returns the number of tasks.
func (t RunTasks) Len() int { return t.n }

// All yields the entries in their order. Their strings share the map's memory.
func (t RunTasks) All() iter.Seq[TaskExecution] {
	return func(yield func(TaskExecution) bool) {
		for rest := t.entries; rest != ""; {
			var e TaskExecution
			e.Task, rest = cutString(rest)
			e.ExecutionID, rest = cutString(rest)
			e.Cached, rest = rest[0] == 1, rest[1:]
			if !yield(e) {
				return
			}
		}
	}
}

// AllCached returns the map with every task marked as a cache hit, for a run in which no task executed.
func (t RunTasks) AllCached() RunTasks {
	b := []byte(t.entries)
	for off := 0; off < len(b); off++ {
		for range 2 { // texts of an entry: task, execution id
			n, w := uvarint(t.entries[off:])
			off += w + n
		}
		b[off] = 1
	}
	return RunTasks{n: t.n, entries: string(b)}
}

// cutString splits a String off the front of checked bytes.
func cutString(s string) (head, rest string) {
	n, w := uvarint(s)
	return s[w : w+n], s[w+n:]
}

// uvarint reads a length that ReadBeast has checked before.
func uvarint(s string) (v, width int) {
	for shift := 0; ; shift += 7 {
		c := s[width]
		width++
		v |= int(c&0x7f) << shift
		if c < 0x80 {
			return v, width
		}
	}
}

var runCodec = codec.New[Run]("dataflow run")

// Encode returns the bytes of dataflows/<ws>/<runId>.beast2.
func (run *Run) Encode() []byte { return runCodec.Encode(run, 512+len(run.Tasks.entries)) }

// DecodeRun reads a DataflowRun.
func DecodeRun(data []byte) (*Run, error) { return runCodec.Decode(data) }

// BeastType, AppendBeast and ReadBeast make RunTasks a part of a run.
func (t *RunTasks) BeastType() beast2.Type {
	return beast2.Dict(beast2.String, beast2.Struct(beast2.F("executionId", beast2.String), beast2.F("cached", beast2.Boolean)))
}

func (t *RunTasks) AppendBeast(b []byte) []byte {
	return append(beast2.AppendVarint(beast2.AppendInline(b), uint64(t.n)), t.entries...)
}

// ReadBeast checks the map and keeps its bytes. It does not check that names are distinct: a set of 100,000 names
// would cost more than the rest of the read, and a repeated name would only be shown twice.
func (t *RunTasks) ReadBeast(r *codec.Reader) {
	r.Inline()
	n := r.Count(3)
	start := r.Offset()
	for i := 0; i < n && r.Err() == nil; i++ {
		r.SkipString()
		r.SkipString()
		r.Boolean()
	}
	if r.Err() == nil {
		*t = RunTasks{n: n, entries: string(r.Data[start:r.Offset()])}
	}
}
