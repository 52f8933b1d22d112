package queue

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"e3/internal/format/record"
	"e3/internal/human"
)

// Status is the state of a job.
type Status string

// The states of a job. A running job without a lock is an orphan: its worker was lost.
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	TimedOut  Status = "timed_out"
	Cancelled Status = "cancelled"
)

// Terminal tells whether a job with this status is finished.
func (s Status) Terminal() bool {
	return s == Succeeded || s == Failed || s == TimedOut || s == Cancelled
}

// Job is one execution that a run requests, and its record: the tags name its fields there. Slices in it are shared between
// copies: they are replaced, never modified.
type Job struct {
	// ID is [Identity] of the job. Enqueue sets it.
	ID string `json:"id"`
	// Queue is the name of the queue, "" for [DefaultQueue].
	Queue string `json:"queue"`

	// The request. All fields but Object, Host, After, Shard, Policy, Labels, Priority, Force, Mild and InputBytes are the
	// job's identity.
	Workspace string `json:"workspace"`
	Run       string `json:"run"`
	Task      string `json:"task"`
	Step      string `json:"step,omitempty"` // "", or "resume:<block>"
	Attempt   int64  `json:"attempt"`        // of the command in its run, from 1
	TaskHash  string `json:"taskHash"`
	// Object is the body of the task object, which saves the worker a read where that is a request. A claim takes it out of
	// the record. Enqueue leaves it out if the record would be larger than a unit of the store.
	Object     []byte        `json:"object,omitempty"`
	Inputs     []string      `json:"inputs,omitempty"` // hashes of the inputs, in declared order
	InputBytes int64         `json:"inputBytes,omitempty"`
	Policy     record.Policy `json:"policy,omitzero"`
	Labels     []string      `json:"labels,omitempty"`   // labels that its worker must have
	Priority   int64         `json:"priority,omitempty"` // greater runs first
	Force      bool          `json:"force,omitempty"`    // the run does not look up an answer for it
	Mild       bool          `json:"mild,omitempty"`     // its failure does not fail the run
	Host       string        `json:"host,omitempty"`     // of the run's process
	After      string        `json:"after,omitempty"`    // lower bound of the execution's id; "": none
	// Shard has the entry of a job that was enqueued in quick succession with others, in a queue with shards. It is 0
	// once the job was claimed. Enqueue sets it.
	Shard int64 `json:"shard,omitempty"`

	// The job's state, kept by the queue. Enqueue takes MaxAttempts, 1 if it is 0.
	Status      Status        `json:"status"`
	Attempts    int64         `json:"attempts,omitempty"`    // executions that were begun for it
	MaxAttempts int64         `json:"maxAttempts"`           // a job whose execution was lost fails after this many
	AvailableAt Time          `json:"availableAt,omitempty"` // earliest claim of a queued job; zero: now
	LockedBy    string        `json:"lockedBy,omitempty"`    // session of the worker that holds it; "": none
	Worker      string        `json:"worker,omitempty"`      // its present or last worker, for display
	Token       uint64        `json:"token,omitempty"`       // raised by each claim
	Execution   string        `json:"execution,omitempty"`   // of the present or last attempt
	Maker       string        `json:"maker,omitempty"`       // the worker that began Execution, for display
	MakerHost   string        `json:"makerHost,omitempty"`   // where its command can be taken over ([Want])
	Lost        []LostAttempt `json:"lost,omitempty"`
	LastError   string        `json:"lastError,omitempty"`
	Outcome     *Outcome      `json:"outcome,omitempty"` // nil until it is finished
	Retried     int64         `json:"retried,omitempty"` // number of retries by a person

	Created  Time `json:"created"`
	Updated  Time `json:"updated"`
	Made     Time `json:"made,omitempty"`    // the claim by which Maker began Execution
	Claimed  Time `json:"claimed,omitempty"` // last claim: later than Made if Worker adopted it
	Started  Time `json:"started,omitempty"` // when the run of its command was recorded; zero for a short command
	Finished Time `json:"finished,omitempty"`
}

// Orphaned tells whether the job's worker was lost. The next holder adopts its execution.
func (j *Job) Orphaned() bool { return j.Status == Running && j.LockedBy == "" }

// Declined tells whether the job waits because its last worker could not execute it, for the reason LastError ([Lease.Decline]).
func (j *Job) Declined() bool {
	retried := j.Claimed.IsZero()
	return j.Status == Queued && !retried && j.LastError != "" && (len(j.Lost) == 0 || j.Lost[len(j.Lost)-1].Message != j.LastError)
}

// ReasonSuspended is the reason of a job whose command has suspended itself. Its job has failed; its run waits for
// approval.
const ReasonSuspended = "suspended"

// isDead tells whether the job is a candidate for a retry by a person.
func (j *Job) isDead() bool {
	return j.Status == Failed && !j.isSuspended() || j.Status == TimedOut
}

func (j *Job) isSuspended() bool {
	return j.Status == Failed && j.Outcome != nil && j.Outcome.Reason == ReasonSuspended
}

// WaitingSince is when a claimable job became claimable, including after it was given back or lost.
func (j *Job) WaitingSince() time.Time {
	since := j.Created
	if !j.Claimed.IsZero() {
		since = j.Updated
	}
	return max(since, j.AvailableAt).Time()
}

// Ref names the job in its repository: "<queue>/<id>".
func (j *Job) Ref() string { return j.Queue + "/" + j.ID }

// ParseRef is the inverse of [Job.Ref].
func ParseRef(ref string) (queue, id string, err error) {
	queue, id, _ = strings.Cut(ref, "/")
	if err := errors.Join(ValidName(queue), validID(id)); err != nil {
		return "", "", fmt.Errorf("job %.100q: %w", ref, err)
	}
	return queue, id, nil
}

// LostAttempt is an execution of a job that is, or would be, followed by another execution: its worker was lost or
// stopped, or it failed and a person has queued the job again.
type LostAttempt struct {
	Execution string `json:"execution"`
	Worker    string `json:"worker,omitempty"`  // the worker that began it, for display
	Adopter   string `json:"adopter,omitempty"` // the worker that adopted it last; "": none
	Message   string `json:"message,omitempty"`
	Claimed   Time   `json:"claimed,omitempty"`
	Started   Time   `json:"started,omitempty"` // zero if that is not known
	Adopted   Time   `json:"adopted,omitempty"`
	At        Time   `json:"at"` // when it was given up
}

// given is the job's present execution as a LostAttempt.
func (j *Job) given(message string, at Time) LostAttempt {
	a := j.present()
	return LostAttempt{
		Execution: a.Execution, Worker: a.Worker, Adopter: a.Adopter, Message: message,
		Claimed: TimeOf(a.Claimed), Started: TimeOf(a.Started), Adopted: TimeOf(a.Adopted), At: at,
	}
}

// Outcome is the result of a job.
type Outcome struct {
	State       Status        `json:"state"`               // a terminal one
	ExecutionID string        `json:"execution,omitempty"` // its execution; "" if there was none
	Output      string        `json:"output,omitempty"`    // hash of a successful output
	Size        int64         `json:"size,omitempty"`      // of the output, in bytes
	ExitCode    int64         `json:"exitCode,omitempty"`
	Reason      string        `json:"reason,omitempty"` // unless it succeeded, as in the execution's record
	Message     string        `json:"message,omitempty"`
	Duration    time.Duration `json:"duration,omitempty"`
	EndedAt     time.Time     `json:"-"` // of the execution: the job's Finished. Zero in Finish: now
	// Left is the lost worker of a cancelled job whose command may run on: it could not be asked here.
	Left string `json:"left,omitempty"`
}

// DefaultQueue is the queue of jobs that name none.
const DefaultQueue = "default"

// Bounds of a job's fields, in bytes unless noted.
const (
	maxName      = 64
	maxWorkspace = 255
	maxText      = 4 << 10
	maxInputs    = 1 << 16 // inputs
	maxLost      = 1 << 10 // attempts
	maxPriority  = 1 << 40
	maxList      = 1 << 12 // labels, secrets, and so on
)

// Identity returns the id of a job: its run, and a hash of all fields that distinguish the job from other jobs of the
// run. The same execution for the same attempt of the same run always has the same id, so Enqueue is idempotent.
func Identity(j *Job) string {
	h := sha256.New()
	var b []byte
	put := func(s string) { // length first, so that different lists of fields have different bytes
		b = append(strconv.AppendInt(b, int64(len(s)), 10), ':')
		b = append(b, s...)
	}
	put("e3 job 1")
	for _, s := range []string{j.Workspace, j.Run, j.Task, j.Step, strconv.FormatInt(j.Attempt, 10), j.TaskHash, strconv.Itoa(len(j.Inputs))} {
		put(s)
	}
	for _, s := range j.Inputs {
		put(s)
	}
	h.Write(b)
	return j.Run + "." + hex.EncodeToString(h.Sum(nil)[:16])
}

// runOf returns the run that a job's id names.
func runOf(id string) string {
	run, _, _ := strings.Cut(id, ".")
	return run
}

func validID(id string) error {
	run, hash, ok := strings.Cut(id, ".")
	if !ok || validRun(run) != nil || len(hash) != 32 || strings.Trim(hash, "0123456789abcdef") != "" {
		return fmt.Errorf("%.120q is no job's id", id)
	}
	return nil
}

func validRun(run string) error {
	if !isName(run) {
		return fmt.Errorf("run %.100q: want 1 to %d letters, digits, - or _", run, maxName)
	}
	return nil
}

// ValidName returns an error if a queue cannot have this name.
func ValidName(queue string) error {
	if !isName(queue) {
		return fmt.Errorf("queue %.100q: a name has 1 to %d letters, digits, - or _", queue, maxName)
	}
	return nil
}

func isName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// validate returns an error for a job that must not be written, or was read malformed.
func (j *Job) validate() error {
	if err := errors.Join(validRun(j.Run), ValidName(j.Queue)); err != nil {
		return err
	}
	for _, s := range []string{j.Workspace, j.Task, j.Step, j.TaskHash, j.Host, j.After, j.LockedBy, j.Worker, j.Execution, j.Maker, j.MakerHost, j.LastError} {
		if err := validText(s); err != nil {
			return err
		}
	}
	for _, list := range [][]string{j.Labels, j.Policy.RetryOn, j.Policy.Labels} {
		if len(list) > maxList {
			return fmt.Errorf("a list of %d", len(list))
		}
	}
	for _, s := range slices.Concat(j.Inputs, j.Labels) {
		if err := validText(s); err != nil {
			return err
		}
	}
	switch {
	case j.Task == "" || j.TaskHash == "" || j.Workspace == "":
		return errors.New("it has no workspace, task or task hash")
	case len(j.Workspace) > maxWorkspace || len(j.LockedBy) > maxName: // longer names are not valid in other records
		return fmt.Errorf("the name of a workspace has %d bytes, that of a session %d; at most %d and %d are allowed",
			len(j.Workspace), len(j.LockedBy), maxWorkspace, maxName)
	case j.Attempt < 1:
		return fmt.Errorf("attempt %d", j.Attempt)
	case len(j.Inputs) > maxInputs:
		return fmt.Errorf("%d inputs, at most %d are allowed", len(j.Inputs), maxInputs)
	case j.Shard < 0 || j.Shard >= int64(len(shards)):
		return fmt.Errorf("shard %d", j.Shard)
	case j.InputBytes < 0:
		return fmt.Errorf("inputs of %d bytes", j.InputBytes)
	case j.Priority < -maxPriority || j.Priority > maxPriority:
		return fmt.Errorf("priority %d", j.Priority)
	case j.MaxAttempts < 1 || j.Attempts < 0:
		return fmt.Errorf("%d of %d attempts", j.Attempts, j.MaxAttempts)
	case len(j.Lost) > maxLost:
		return fmt.Errorf("%d lost attempts", len(j.Lost))
	case min(j.AvailableAt, j.Created, j.Updated, j.Made, j.Claimed, j.Started, j.Finished) < 0:
		return errors.New("a time before 1970")
	case j.ID != Identity(j):
		return fmt.Errorf("its id is %.120q, want %q", j.ID, Identity(j))
	}
	return j.validState()
}

func (j *Job) validState() error {
	if j.LockedBy != "" && j.Status != Running {
		return fmt.Errorf("a job that is %s is locked", j.Status)
	}
	if (j.Outcome != nil) != j.Status.Terminal() {
		return fmt.Errorf("an outcome, or none, of a job that is %s", j.Status)
	}
	switch {
	case j.Status == Queued:
	case j.Status == Running:
		if j.Execution == "" || j.Token == 0 || j.Attempts == 0 {
			return errors.New("it runs, but no worker has claimed it")
		}
	case j.Status.Terminal():
		if err := j.Outcome.validate(); err != nil {
			return err
		}
		if j.Outcome.State != j.Status {
			return fmt.Errorf("a job that is %s has ended as %.40q", j.Status, j.Outcome.State)
		}
	default:
		return fmt.Errorf("status %.40q", j.Status)
	}
	return nil
}

func (o *Outcome) validate() error {
	if !o.State.Terminal() {
		return fmt.Errorf("an outcome of status %.40q", o.State)
	}
	if o.Size < 0 || o.Duration < 0 {
		return fmt.Errorf("an outcome of %d bytes after %v", o.Size, o.Duration)
	}
	for _, s := range []string{o.ExecutionID, o.Output, o.Reason, o.Message, o.Left} {
		if err := validText(s); err != nil {
			return err
		}
	}
	return nil
}

func validText(s string) error {
	if len(s) > maxText || !utf8.ValidString(s) {
		return fmt.Errorf("%.40q…: not UTF-8, or %d bytes where at most %d are allowed", s, len(s), maxText)
	}
	return nil
}

// Truncate bounds and repairs text from elsewhere. A job's record keeps only this part; the execution's record keeps
// the whole text.
func Truncate(s string) string { return strings.ToValidUTF8(human.Truncate(s, 2<<10), "�") }
