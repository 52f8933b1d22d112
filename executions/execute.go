package executions

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/host/modes"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
)

// LocalObjects is an object store with a side on this machine, where tasks run.
type LocalObjects interface {
	Objects
	// Adopt stores the file at path, and takes it away from there if that is safe.
	Adopt(ctx context.Context, path string) (objectstore.Info, error)
	// Materialize writes a copy of an object. A writer to the copy cannot reach the store.
	Materialize(ctx context.Context, h objectstore.Hash, dst string, perm FileMode) error
	// Refresh protects an object from collections under way, as a put of it would, and reports whether it is there.
	Refresh(ctx context.Context, h objectstore.Hash) (bool, error)
}

// Runner runs one process to its end.
type Runner interface {
	Run(ctx context.Context, spec runner.Spec) (runner.Result, error)
}

// Options configure an Executor.
type Options struct {
	Worker   string                      // user@host, for the record
	Host     string                      // of this process, as Request.Host names that of the run
	Version  string                      // of e3, for the record
	Key      *signature.Key              // signs what is made here; nil: it is not signed
	Path     string                      // PATH of the tasks
	Getenv   func(string) (string, bool) // source of pass_env and secrets
	Scratch  func() (string, error)      // a directory of this process on the object store's filesystem
	Modes    modes.Modes                 // of the logs, which move into the repository
	Grace    time.Duration               // between TERM and KILL
	Announce time.Duration               // a command that lives longer is recorded as running; default 200 ms
	LogEvery time.Duration               // interval of copying a growing log that cannot be adopted as a file; default 1 s
	Now      func() time.Time
	// Sync makes everything written so far durable; nil if the run does that. An execution for a job of a run on
	// another host is made durable before it is on record, because that run cannot do it. One for this host is made
	// durable by its run.
	Sync func(context.Context) error
	// Remote makes executions elsewhere. nil: commands run here.
	Remote Remote
	// Working, if set, replaces the store's (Store.WithJobs).
	Working Working
}

// An Executor answers keys: from the record if it can, else by running the command. It is safe for concurrent use, by
// any number of processes on one repository.
type Executor struct {
	*Curator
	objects   LocalObjects
	runner    Runner
	sandboxes sandboxes
	shell     func() string
	opts      Options
	unfenced  sync.Map // of *keyClaim by claim, see claimKey
}

// NewExecutor returns an executor over the same records and objects as store.
func NewExecutor(store *Store, objects LocalObjects, claims refstore.Locker, run Runner, opts Options) *Executor {
	if opts.Announce == 0 {
		opts.Announce = 200 * time.Millisecond
	}
	if opts.LogEvery == 0 {
		opts.LogEvery = time.Second
	}
	if opts.Working != nil {
		store = store.WithJobs(opts.Working)
	}
	return &Executor{
		Curator: NewCurator(store, claims, opts.Now), objects: objects, runner: run, opts: opts,
		sandboxes: sandboxes{scratch: opts.Scratch, modes: opts.Modes},
		shell:     sync.OnceValue(func() string { return findShell(opts.Path) }),
	}
}

// findShell returns the full path of the bash of a search path: with a bare name, bash itself would search the path
// at each start. Without a bash it returns the bare name, whose error says so.
func findShell(path string) string {
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, "bash")
		if info, err := os.Stat(file); err == nil && filepath.IsAbs(file) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return "bash"
}

// Request asks for the result of a task on given inputs. Fields: what is asked, and what the caller
// wants to be told on the way.
type Request struct {
	Task       objectstore.Hash
	Load       func(context.Context) (*record.Task, error) // reads the task object; only called if the command must run
	Inputs     []objectstore.Hash
	InputBytes int64 // size of the file inputs, for the record
	Policy     *record.Policy
	Attempt    int64  // 1 for the first
	RunID      string // for the record, as are the next two
	Workspace  string
	Name       string
	Step       string  // of the task: "", or "resume:<block>" once a person has approved it; its command finds it in E3_STEP
	Force      bool    // run even if the answer is known, without waiting for other processes
	Looked     *Answer // an earlier lookup of the key without a hit, to save one; it must not precede an attempt of the caller's. nil: none
	Without    string  // an execution of the key whose output is lost: neither it nor an earlier one is an answer. "": none
	// Admit, if set, is called before the command starts, and its release when the command has ended. Staging and
	// recording need no admission. Its error ends the attempt without a record.
	Admit func(context.Context) (release func(failed bool), err error)
	// Started receives the execution's id and its beginning when the command is about to start, or, where it is made
	// elsewhere, once that is known.
	Started func(executionID string, at time.Time)

	Job Job // of a queue, that this is made for

	// The two below tell the caller what workers do, where Remote makes a job of the request.

	// Claimed is called when it is known that a worker has taken the job, with the execution that it makes.
	Claimed func(executionID, worker string, at time.Time)
	// Lost is called when it is known that a worker's execution is given up, with the earliest time of another attempt.
	Lost func(executionID, message string, at, again time.Time)
	// Orphaned is called when it is known that the lease of the worker on an execution has expired.
	Orphaned func(executionID string, at time.Time)
	// Adopted is called when it is known that another worker goes on with an execution.
	Adopted func(executionID, worker string, at time.Time)

	After string // the greatest known id under the key; a worker's execution gets a greater one

	against *Hit // a success with another output than this hit's is rejected as it is recorded
}

// A Job is what a request that is made for a job of a queue says of it. The zero value is no job.
type Job struct {
	Ref      string // "<queue>/<job>", kept with the record of a command that lives long
	Identity string // of this attempt at the job; the supervisor of a dead worker knows the command by it
	Host     string // of the run's process; "" if that is this one
	// Resumes says, for Adopt, that the command was begun under an earlier execution, which was given up since: its end
	// is recorded under this one, which names that one.
	Resumes bool
	// FailureGrace delays judging a failed command: a scheduler that stops this process signals all processes of a
	// job, and the signal may reach the command before ctx ends.
	FailureGrace time.Duration
}

// Result is the execution that answers a request.
type Result struct {
	ExecutionID string
	State       record.State // Success, Failed or Error
	Cached      bool         // nothing ran here: an earlier execution, or one of another process, answers
	Output      objectstore.Hash
	Size        int64  // of the output object, in bytes
	Message     string // of an Error
	ExitCode    int64  // of a Failed
	Reason      Reason
	Duration    time.Duration // of the execution, whenever it was
	EndedAt     time.Time     // of the execution, by the clock of the machine that made it; zero: not known
}

// Reason tells errors apart for callers that branch on them.
type Reason string

// The reasons of errors.
const (
	ReasonNone      Reason = ""
	ReasonTimeout   Reason = "timeout"
	ReasonCancelled Reason = "cancelled"
	ReasonSignal    Reason = "signal"
	ReasonStart     Reason = "cannot start"
	ReasonOutput    Reason = "output"
	ReasonOOM       Reason = "oom"       // ended by the kernel because memory was used up
	ReasonLost      Reason = "lost"      // with the worker that ran it
	ReasonSuspended Reason = "suspended" // not an error but a failure: the command asks a person (record.Policy.Suspend)
	ReasonInput     Reason = "input"     // an object that it reads is gone or damaged: the command did not start
)

// Do answers the request. A command that fails is a result, not an error. An error means that the stores or this
// machine are at fault, and that nothing was recorded.
//
// Of several callers with one key, in any process, one executes. The others wait for it: a success is a hit, and a
// failure counts as their own attempt. An execution that already runs for a job of a queue is waited for too, even if
// its run is gone.
//
// If claims are leases and this process has lost its own, the error wraps refstore.ErrLost. Another process may then
// be executing the key, and has fenced what was begun here, so that it cannot become an answer.
//
// Requests to the stores: a hit needs one list of the key's executions. A command that ends at once needs a list, the
// claim, a list, the record, a list of keys, and the end of the claim. One that lives longer than Options.Announce
// also needs the claim of its execution and its end, the running record, the appends of its logs (for each log at
// most one per Options.LogEvery, or per 4 MiB), and a seal for each log that is not empty.
func (x *Executor) Do(ctx context.Context, req *Request) (Result, error) {
	key := NewKey(req.Task, req.Inputs)
	if req.Force {
		end, err := x.beginForced(ctx, req)
		if err != nil {
			return Result{}, err
		}
		defer end()
		greatest, err := x.greatest(ctx, key)
		if err != nil {
			return Result{}, err
		}
		id, err := NewIDAfter(greatest)
		if err != nil {
			return Result{}, err
		}
		return x.begin(ctx, key, req, id, greatest)
	}

	before := req.Looked
	if before == nil {
		a, err := x.Lookup(ctx, key)
		if err != nil {
			return Result{}, err
		}
		a = a.Without(req.Without)
		before = &a
	}
	if before.Hit != nil {
		return hit(before.Hit), nil
	}
	claim, waited, err := x.claimKey(ctx, key, req.Inputs, before.greatest)
	if err != nil {
		return Result{}, err
	}
	defer func() { claim.lock.Unlock() }()
	for {
		// Another process may have answered between the look and the claim.
		now, err := x.Lookup(ctx, key)
		if err != nil {
			return Result{}, err
		}
		now = now.Without(req.Without)
		if now.Hit != nil {
			return hit(now.Hit), nil
		}
		if waited && now.failed && newer(before.Latest, now.Latest) {
			return req.failedElsewhere(now.Latest), nil
		}
		ended, err := x.unfinished(ctx, key, now.Running)
		if err != nil {
			return Result{}, err
		}
		if ended {
			waited = true
			continue
		}
		if now.passedSuccess { // a success whose output is gone: the new success replaces it in proofs
			end, err := x.generation.Begin(ctx)
			if err != nil {
				return Result{}, err
			}
			defer end()
		}
		if now.greatest >= claim.id { // made since, by a clock that is ahead: claim a greater id
			claim.lock.Unlock()
			next, again, err := x.claimKey(ctx, key, req.Inputs, now.greatest)
			if err != nil {
				claim.lock = released{}
				return Result{}, err
			}
			claim, waited = next, waited || again
			continue
		}
		return x.begin(ctx, key, req, claim.id, now.greatest)
	}
}

// failedElsewhere is a failure of another process that counts as an attempt of the request.
func (req *Request) failedElsewhere(s *record.Status) Result {
	return Result{
		ExecutionID: s.ExecutionID, State: record.Failed, Cached: true, ExitCode: s.ExitCode, Reason: req.failure(s.ExitCode),
		Duration: s.CompletedAt.Sub(s.StartedAt),
	}
}

// failure returns the reason of a failure: an exit code can ask to be resumed later.
func (req *Request) failure(code int64) Reason {
	if req.Policy != nil && req.Policy.Suspend != 0 && code == req.Policy.Suspend {
		return ReasonSuspended
	}
	return ReasonNone
}

// keeps tells whether the command goes on when the lease of its process is over.
func (req *Request) keeps() bool { return req.Policy == nil || req.Policy.KeepsOnLost() }

// Rerun executes a request whose answer is known again, beside that answer, without waiting for other processes. A
// success with another output is recorded as rejected from the start, so that the answer stays valid. One with the
// same output is a success like any other. The caller compares Result.Output.
func (x *Executor) Rerun(ctx context.Context, req *Request, against *Hit) (Result, error) {
	again := *req
	again.Force, again.against = true, against
	return x.Do(ctx, &again)
}

func hit(h *Hit) Result {
	return Result{
		ExecutionID: h.ExecutionID, State: record.Success, Cached: true, Output: h.Output, Size: h.Size,
		Duration: h.Status.CompletedAt.Sub(h.Status.StartedAt),
	}
}

// newer tells whether the latest execution ended during the wait.
func newer(before, after *record.Status) bool {
	return before == nil || before.ExecutionID != after.ExecutionID || before.State == record.Running
}

// noteSecondSuccess changes the generation if a success has been recorded beside another one of its key: a forced
// execution takes no claim on the key and may have been faster. It comes after the record, so that every proof made
// on the other success is void.
func (c *Curator) noteSecondSuccess(ctx context.Context, key Key, id string) error {
	others := 0
	for rec, err := range c.records.List(ctx, refstore.Query{Partition: partition(key), KeysOnly: true}) {
		if err != nil {
			return fmt.Errorf("look up %s: %w", key, err)
		}
		if rec.Key.Sort != id {
			others++
		}
	}
	if others == 0 {
		return nil
	}
	for e, err := range c.List(ctx, key) {
		if err == nil && (e.ExecutionID == id || e.State != record.Success) {
			continue
		}
		end, err := c.generation.Begin(ctx)
		if err != nil {
			return err
		}
		end()
		return nil
	}
	return nil
}
