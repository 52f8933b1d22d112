// Package events is the append-only history of runs: one JSON object a line, gap-free sequence numbers within a run
// (seed 000).
//
// Every transition of a run or a task is emitted once, by the code that makes it. Lines are gathered briefly before
// they are appended. After a crash, the process that closes the run appends the missing events from the execution
// records.
package events

import (
	"cmp"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
)

// Type is the kind of an event.
type Type string

// The types of events.
const (
	RunStarted   Type = "run.started"
	RunCompleted Type = "run.completed"
	RunFailed    Type = "run.failed"
	RunCancelled Type = "run.cancelled"
	RunStalled   Type = "run.stalled" // the store does not answer, and the run waits for it; Data.Duration: time since the last renewal of its lease
	RunResumed   Type = "run.resumed" // the store answers again, and the run continues; Data.Duration: time since that renewal

	GraphGrown Type = "graph.grown" // a task has made a list of items, and the tasks of the run follow from it

	TaskCreated        Type = "task.created"         // the task is part of this run; bulk: Data.Tasks tasks
	TaskMarkedReady    Type = "task.marked_ready"    // its inputs are known
	TaskClaimed        Type = "task.claimed"         // a worker has taken it
	TaskReleased       Type = "task.released"        // given back before its command began; it waits for another worker
	TaskStarted        Type = "task.started"         // its command runs
	TaskOrphaned       Type = "task.orphaned"        // the lease of its worker has expired; its command may go on
	TaskAdopted        Type = "task.adopted"         // another worker continues its command
	TaskCompleted      Type = "task.completed"       // success
	TaskFailed         Type = "task.failed"          // this attempt ended without success
	TaskRetryScheduled Type = "task.retry_scheduled" // another attempt follows after Data.DelayMs
	TaskDeferred       Type = "task.deferred"        // it waits for approval: before it runs, or because its command has suspended itself
	TaskResumed        Type = "task.resumed"         // it was approved
	TaskReopened       Type = "task.reopened"        // its result is void, because a part of its output or inputs was lost or remade; Execution: the execution that had answered it, if any
	TaskSkipped        Type = "task.skipped"         // something upstream failed
	TaskLeftOut        Type = "task.left_out"        // the end of a run: the failure does not fail it, since Data.Because does without the task
	TaskAbandoned      Type = "task.abandoned"       // the run ended before it was started; bulk
	TaskCached         Type = "task.cached"          // answered by an earlier execution; bulk: as in run Data.As

	// In the journal. Before a run, made here or imported, has events, run.recorded names it in Data.Run: so the
	// journal has the order in which runs were recorded.
	RunRecorded   Type = "run.recorded"
	JournalMended Type = "journal.mended" // damaged parts of it are repaired

	// In the journal: decisions about a task that waits for approval, with or without a run at work. Data has the block,
	// its type, its step, the key of the task, and the run that asked last.
	BlockApproved  Type = "block.approved"  // Data.By, Data.At, Data.Message: the note
	BlockRejected  Type = "block.rejected"  // like block.approved
	BlockWithdrawn Type = "block.withdrawn" // the decision was taken back: the task waits again
	BlockClosed    Type = "block.closed"    // no run waits for a decision any more; Data.Message says why

	// In the journal: what a person does to a task in a queue, with or without a run at work. Data has who, the run that
	// has queued the task, its key, and the attempt.
	JobRetried       Type = "job.retried"       // a failed task was queued again; Data.At: when
	JobCancelled     Type = "job.cancelled"     // a queued task was cancelled, or a running one is to end; Data.Message: why
	JobReprioritised Type = "job.reprioritised" // Data.Priority

	EventLost Type = "event.lost" // replaces a damaged line, by "e3 verify --repair"
)

// Event is one fact about a run or a task in it.
type Event struct {
	Seq       int64     `json:"seq"`
	Time      time.Time `json:"time"`
	Run       string    `json:"run"`
	Workspace string    `json:"workspace"`
	Type      Type      `json:"type"`
	Task      string    `json:"task,omitempty"`
	Execution string    `json:"execution,omitempty"`
	Worker    string    `json:"worker,omitempty"`
	Data      *Data     `json:"data,omitempty"`

	// Cursor is the text of the place after the event, if the reader knows it. It is printed but not logged.
	Cursor string `json:"-"`
}

// Facts is the event's data, empty if it has none.
func (e *Event) Facts() *Data {
	if e.Data == nil {
		return &Data{}
	}
	return e.Data
}

// Reasons that change the meaning of an event.
const (
	ReasonCrashed  = "crashed"  // emitted by the process that closed the run after its own had died
	ReasonImported = "imported" // the run was recorded elsewhere, and its events were imported as a whole
	ReasonRejected = "rejected" // a person rejected the task
	ReasonWaits    = "waits"    // of a run.cancelled: all remaining tasks waited for approval
)

// Data has fields that only some types of events use. Durations are milliseconds.
type Data struct {
	Package     string    `json:"package,omitempty"`     // run.started: name@version
	PackageHash string    `json:"packageHash,omitempty"` // run.started: of the package object; graph.grown: of the package with the new list; the end of a run: of the last package, if the graph has grown
	Grows       bool      `json:"grows,omitempty"`       // run.started: lists of items may change the package during the run
	Source      string    `json:"source,omitempty"`      // graph.grown: the task, or family, that has made the list
	Items       int       `json:"items,omitempty"`       // graph.grown: of the list; with Batch: of its command
	Process     *Process  `json:"process,omitempty"`     // run.started
	Git         *Git      `json:"git,omitempty"`         // run.started: the commit of the project; absent: none. At the end of a run that was edited: the same, with the edits
	Inputs      string    `json:"inputs,omitempty"`      // run.started: root hash of the inputs
	Limits      *Limits   `json:"limits,omitempty"`      // run.started: of its commands
	Filter      string    `json:"filter,omitempty"`      // run.started: only tasks that match this pattern, and upstream ones
	Force       bool      `json:"force,omitempty"`       // run.started: tasks that match the filter ran even if cached
	Set         Settings  `json:"set,omitempty"`         // run.started: inputs with values for this run alone; with From, values that stay
	From        string    `json:"from,omitempty"`        // run.started: the workspace from which start --as has made this one for the run
	Warnings    []string  `json:"warnings,omitempty"`    // run.started: about the package file and its inputs
	After       string    `json:"after,omitempty"`       // run.started: the workspace's previous run, whose events exist as long as events are kept
	AfterSeq    int64     `json:"afterSeq,omitempty"`    // run.started: the number of that run's last event
	AfterSum    string    `json:"afterSum,omitempty"`    // run.started: the sum of its line
	Outputs     string    `json:"outputs,omitempty"`     // the end of a run: root hash of the workspace's datasets
	Run         string    `json:"run,omitempty"`         // in the journal: the run that the event is about
	By          string    `json:"by,omitempty"`          // run.cancelled, job.…: user@host of the request; task.resumed, task.failed: user@host of the decision about the block
	Tasks       int       `json:"tasks,omitempty"`       // bulk events: how many tasks
	As          string    `json:"as,omitempty"`          // bulk task.cached: the run whose executions answer them
	Key         string    `json:"key,omitempty"`         // taskHash/inputsHash
	Block       string    `json:"block,omitempty"`       // task.deferred, task.resumed, task.failed by rejection: the block's id
	BlockType   string    `json:"blockType,omitempty"`   // task.deferred: review or suspend
	Step        string    `json:"step,omitempty"`        // task.deferred: the suspended step, "" for the first; task.resumed: the next one, resume:<block>
	At          string    `json:"at,omitempty"`          // time of the decision about the block, RFC 3339
	Batch       string    `json:"batch,omitempty"`       // task.started and the end of an attempt: the execution of the first of the items that one command serves
	Attempt     int64     `json:"attempt,omitempty"`     // from 1
	Duration    int64     `json:"ms,omitempty"`          // of the execution or the run
	ExitCode    int64     `json:"exitCode,omitempty"`    // task.failed
	Reason      string    `json:"reason,omitempty"`      // timeout, cancelled, signal, …
	Message     string    `json:"message,omitempty"`     // of a failure or an end; task.resumed: the note
	Output      string    `json:"output,omitempty"`      // task.completed, task.cached: hash of the output
	DelayMs     int64     `json:"delayMs,omitempty"`     // task.retry_scheduled
	Priority    *int64    `json:"priority,omitempty"`    // job.reprioritised: the new one
	Memory      int64     `json:"memory,omitempty"`      // task.retry_scheduled: bytes that the attempt asks for, if more than before
	Because     string    `json:"because,omitempty"`     // task.skipped: the task that failed; task.reopened: the task that needs it; task.left_out: the task that does without it
	MayFail     bool      `json:"mayFail,omitempty"`     // task.failed: the failure does not fail the run
	Tolerable   bool      `json:"tolerable,omitempty"`   // task.failed: all readers of the task may do without it
	Gathered    *Gathered `json:"gathered,omitempty"`    // task.marked_ready, task.skipped: what the task's fan-ins lack
	NoRecord    bool      `json:"noRecord,omitempty"`    // task.failed: the execution left no record, so the run names none
	Shared      bool      `json:"shared,omitempty"`      // another run's execution, which this run waited for
	Late        int       `json:"late,omitempty"`        // the end of a run: executions of this or earlier runs that went on; the journal reports their ends
	Journal     int64     `json:"journal,omitempty"`     // the end of a run: Place.Stream of its run.recorded
	Summary     *Summary  `json:"summary,omitempty"`     // the end of a run
	Bytes       int64     `json:"bytes,omitempty"`       // task.completed: size of the output
	Requests    *Traffic  `json:"requests,omitempty"`    // the end of a run: requests that its process had sent by then, if they are counted
}

// Milliseconds is a duration of an event. Since the text may be hostile, it is clamped: not negative, and at most the
// largest time.Duration.
func Milliseconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}

// maxTasks bounds the number of tasks in an event.
const maxTasks = 1 << 40

// TaskCount is the number of tasks of a bulk event, clamped so that sums do not overflow.
func (d *Data) TaskCount() int64 { return min(max(int64(d.Tasks), 0), maxTasks) }

// Process is the process of a run.
type Process struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime,omitempty"`
	BootID    string `json:"bootId,omitempty"`
	Host      string `json:"host,omitempty"`
	User      string `json:"user,omitempty"`
}

// Limits bound the commands of a run that are at work together.
type Limits struct {
	Cores     int                `json:"cores,omitempty"`     // absent: they run at workers, which have limits of their own
	Memory    int64              `json:"memory,omitempty"`    // bytes, of what they declare; absent: no limit
	Resources map[string]float64 `json:"resources,omitempty"` // named ones; any other has the greatest single demand
}

// Who names the user and the machine of a process in the form of records; "" if they are unknown.
func (p *Process) Who() string {
	if p == nil {
		return ""
	}
	host, _, _ := strings.Cut(p.Host, "/") // the rest distinguishes containers of one machine
	if p.User == "" || host == "" {
		return cmp.Or(p.User, host)
	}
	return p.User + "@" + host
}

// Traffic counts the requests of a process to a shared repository, including retries.
type Traffic struct {
	Reads  int64 `json:"reads"`  // of DynamoDB
	Writes int64 `json:"writes"` // of DynamoDB
	Gets   int64 `json:"gets"`   // GET, HEAD of S3
	Puts   int64 `json:"puts"`   // PUT, POST, LIST of S3
}

// Add adds the counts of another process.
func (t *Traffic) Add(o *Traffic) {
	t.Reads, t.Writes, t.Gets, t.Puts = t.Reads+max(o.Reads, 0), t.Writes+max(o.Writes, 0), t.Gets+max(o.Gets, 0), t.Puts+max(o.Puts, 0)
}

// Summary counts the tasks of a run. Completed includes the cached ones.
type Summary struct {
	Total     int64 `json:"total"`
	Completed int64 `json:"completed"`
	Cached    int64 `json:"cached"`
	Failed    int64 `json:"failed"`
	Skipped   int64 `json:"skipped"`
}

// Bulk is how many proven tasks get an event each. More tasks share one event that has their number, and the run whose
// executions answer them.
const Bulk = 100

// timeLayout is RFC 3339 with exactly three decimals, so that lines sort by time as text.
const timeLayout = "2006-01-02T15:04:05.000Z07:00"

// Append appends the event's line to b.
func Append(b []byte, e *Event) ([]byte, error) {
	b = strconv.AppendInt(append(b, `{"seq":`...), e.Seq, 10)
	b = e.Time.UTC().AppendFormat(append(b, `,"time":"`...), timeLayout)
	b = appendText(append(b, `","run":`...), e.Run)
	b = appendText(append(b, `,"workspace":`...), e.Workspace)
	b = appendText(append(b, `,"type":`...), string(e.Type))
	if e.Task != "" {
		b = appendText(append(b, `,"task":`...), e.Task)
	}
	if e.Execution != "" {
		b = appendText(append(b, `,"execution":`...), e.Execution)
	}
	if e.Worker != "" {
		b = appendText(append(b, `,"worker":`...), e.Worker)
	}
	if e.Data != nil {
		data, err := json.Marshal(e.Data)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"data":`...), data...)
	}
	if e.Cursor != "" {
		b = appendText(append(b, `,"cursor":`...), e.Cursor)
	}
	return append(b, "}\n"...), nil
}

// appendText appends s as a JSON string. Most names need no escapes, and then no allocation.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, _ := json.Marshal(s) // a string always encodes
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
