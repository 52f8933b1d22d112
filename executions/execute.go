package executions

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/host/bash"
	"e3/internal/host/modes"
	"e3/internal/host/remains"
	"e3/internal/host/runner"
	"e3/internal/host/tools"
	"e3/internal/host/trace"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/refstore"
)

// LocalObjects is an object store that takes files from this machine, where tasks run, and writes files there.
type LocalObjects interface {
	Objects
	// Adopt stores a file of an open folder, and takes it away from there if that is safe.
	Adopt(ctx context.Context, in objectstore.Folder, name string) (objectstore.Info, error)
	// Materialize writes a copy of an object. A writer to the copy cannot reach the store.
	Materialize(ctx context.Context, h objectstore.Hash, in objectstore.Folder, name string, perm FileMode) error
	// Shares reports whether such a copy of a large object can share its blocks. It is known after the first one.
	Shares() bool
	// Refresh protects an object from running collections, as a put would, and reports whether it exists.
	Refresh(ctx context.Context, h objectstore.Hash) (bool, error)
}

// Runner runs one process to its end.
type Runner interface {
	Run(ctx context.Context, spec runner.Spec) (runner.Result, error)
}

// Options configure an Executor.
type Options struct {
	Worker  string                      // user@host, for the record
	Host    string                      // of this process; Job.Host is the run's
	Version string                      // of e3, for the record
	Key     *signature.Key              // signs what is made here; nil: it is not signed
	Path    string                      // PATH of the commands
	Getenv  func(string) (string, bool) // source of pass_env and secrets
	Tools   *tools.Finder               // finds programs on Path; nil: no task may name any
	// Hidden returns the folders of projects that a closed room would show with the system; nil: none.
	Hidden  func() ([]string, error)
	Scratch func() (string, error) // a directory of this process on the object store's filesystem
	// Checkouts is a folder of this user on the file system of Scratch, for checkouts that stay when this process ends;
	// nil: none stay.
	Checkouts     func() (string, error)
	CheckoutBound func() (tree.Usage, error) // what all of them may take of the disk; nil: DefaultCheckouts
	// Images is a folder of this user, for unpacked images; nil: no task can have an image.
	Images       func() (string, error)
	Environments EnvironmentOptions
	// Kept takes the folders of failed commands; nil: none are kept.
	Kept     *remains.Folders
	Modes    modes.Modes   // of the logs, which move into the repository
	Grace    time.Duration // between TERM and KILL
	Announce time.Duration // a command that lives longer is recorded as running; default 200 ms
	LogEvery time.Duration // interval of copying a growing log that cannot be adopted as a file; default 1 s
	Now      func() time.Time
	// Sync makes everything written so far durable; nil if the run does that. It is called before the record of an
	// execution for a run on another host, because that run cannot sync this host's writes.
	Sync func(context.Context) error
	// Storable returns why no output could be kept, nil if it could. It is asked before each command, lest a command
	// run for hours in vain. nil: outputs can be kept.
	Storable func(context.Context) error
	// Remote makes executions elsewhere. nil: commands run here.
	Remote Remote
	// Trace returns what to look for among the files that a command opens; Work, Inputs, Outputs and Report are
	// filled in. A command without a Look is not traced. If Trace is nil, no command is.
	Trace func(context.Context, *Request) (*trace.Look, error)
	// Unlimited is called once, with the reason, if this machine cannot enforce all limits that a task asks for. May
	// be nil.
	Unlimited func(error)
	// Waiting is called beside a request that waits for an execution that another process makes. It may last until its
	// context is done, which is when the wait is over.
	Waiting func(context.Context, *Request, Wait)
}

// An Executor answers requests: from a record if possible, else by running the command. It is safe for concurrent use,
// by any number of processes on one repository.
type Executor struct {
	*Curator
	objects      LocalObjects
	runner       Runner
	sandboxes    sandboxes
	checkouts    checkouts
	images       images
	environments environments
	untold       untold
	copies       copies
	bash         *bash.Checker // nil: all scripts run in bash
	programs     runner.Finder
	opts         Options
	unlimited    sync.Once     // for Options.Unlimited
	unfenced     sync.Map      // *keyClaim by claim id: kept because fencing failed (claimKey)
	releasing    chan struct{} // a token for each release that its request does not wait for
}

// NewExecutor returns an executor over the same records and objects as store.
func NewExecutor(store *Store, objects LocalObjects, claims refstore.Locker, run Runner, opts Options) *Executor {
	opts.Announce = cmp.Or(opts.Announce, 200*time.Millisecond)
	opts.LogEvery = cmp.Or(opts.LogEvery, time.Second)
	x := &Executor{
		Curator: NewCurator(store, claims, opts.Now), objects: objects, runner: run, opts: opts,
		sandboxes:    sandboxes{scratch: opts.Scratch, modes: opts.Modes},
		checkouts:    checkouts{objects: objects, scratch: opts.Scratch, folder: opts.Checkouts, limit: opts.CheckoutBound},
		environments: environments{EnvironmentOptions: opts.Environments, objects: objects, runner: run, path: opts.Path, grace: opts.Grace},
		images:       images{objects: objects, folder: opts.Images},
		releasing:    make(chan struct{}, mostReleasing),
	}
	x.sandboxes.checkouts = &x.checkouts
	if r, ok := run.(bash.Runner); ok {
		x.bash = bash.NewChecker(r, opts.Path)
	}
	return x
}

// Request asks for the result of a task on given inputs.
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
	Step       string  // E3_STEP of the command: "", or "resume:<block>" once a person has approved
	Mild       bool    // its failure does not fail the run
	Kept       bool    // a deployed package or a job names the task's object until the record is made, so no collection removes it
	Force      bool    // run even if the answer is known, without waiting for other processes
	Looked     *Answer // an earlier miss of the key, to save a lookup; it must follow the caller's attempts. nil: none
	Without    string  // an execution whose output is lost: it and earlier ones are no answers. "": none
	// Admit, if set, is called before the command starts, and the returned release when the command has ended.
	// Staging and recording need no admission. Its error ends the attempt without a record.
	Admit func(context.Context) (release func(failed bool), err error)
	// Started receives the execution's id and start time: before the command starts here, or once its start elsewhere
	// is known.
	Started func(executionID string, at time.Time)

	// InBatch receives the batch, before Started, if the command serves other requests too.
	InBatch func(record.Batched)

	Job   Job    // the job of a queue that the request serves
	Place *Place // in a batch; nil: the command serves this request alone

	// The functions below report what workers do, if Remote submits the request as a job.

	// Claimed reports that a worker has claimed the job and makes this execution.
	Claimed func(executionID, worker string, at time.Time)
	// Released reports that the worker gave the job back at this time, before the command began; zero: time not
	// known.
	Released func(executionID string, at time.Time)
	// Lost reports that a worker's execution was given up, or that its worker was stopped. The next attempt begins at
	// the time again or later.
	Lost func(executionID string, reason Reason, message string, at, again time.Time)
	// Orphaned reports that the lease of an execution's worker has expired.
	Orphaned func(executionID string, at time.Time)
	// Adopted reports that another worker continues an execution.
	Adopted func(executionID, worker string, at time.Time)
	// Shared is called with true before the request waits for a job of another run, and with false if that gave no result.
	Shared func(bool)

	After string // the greatest known id under the key; a worker's execution gets a greater one

	against *Hit // set by Rerun: a success with another output is recorded as rejected
}

// A Job identifies the job of a queue that a request serves. The zero value is no job.
type Job struct {
	Ref      string // "<queue>/<job>", kept with the record of a command that lives long
	Identity string // of this attempt at the job; names the command to the supervisor, also after the worker's death
	Host     string // of the run's process; "" if that is this one
	// Resumes, for Adopt: the command was begun under an earlier execution, which was given up. The command's end is
	// recorded under the new execution, which names the earlier one.
	Resumes bool
	// Held returns why this worker may not finish the attempt: another worker may have adopted the command. It
	// returns nil once that is ruled out. If Held is nil, no other worker can adopt the command.
	Held func() error
	// FailureGrace delays judging a failed command, since a scheduler's SIGTERM may reach it before ctx ends.
	FailureGrace time.Duration
}

// Result is the execution that answers a request.
type Result struct {
	ExecutionID string
	State       record.State // Success, Failed or Error
	Cached      bool         // nothing ran here: an earlier execution, or another process's execution, answers
	Output      objectstore.Hash
	Size        int64  // of the output object, in bytes
	Message     string // of an Error
	ExitCode    int64  // of a Failed
	Reason      Reason
	Duration    time.Duration  // of the execution, also of a cached one
	EndedAt     time.Time      // by the clock of the machine that made the execution; zero: unknown
	Batch       record.Batched // the batch in which it was made here
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
	ReasonSuspended Reason = "suspended" // a failure, not an error: the command asks for approval (record.Policy.Suspend)
	ReasonBatch     Reason = "batch"     // the command of its batch failed: the item is tried alone
	ReasonInput     Reason = "input"     // an input's object is gone or damaged: the command did not start
)

// Do answers the request. A command that fails is a result, not an error. An error means that the stores or this
// machine are at fault, and that nothing was recorded.
//
// If several callers, in any process, ask for one key, one of them executes. The others wait: a success is a hit, and a
// failure counts as their own attempt. Do also waits for an execution that already runs for a job of a queue, even if
// its run is gone.
//
// If claims are leases and this process has lost its own, the error wraps refstore.ErrLost. Another process may then
// execute the key. It has fenced the execution that was begun here, which therefore cannot become an answer.
//
// Requests to the stores: a hit needs one list of the key's executions. A command that ends at once needs a list, the
// claim, a list, the record, a list of keys, and the end of the claim. A command that lives longer than
// Options.Announce also needs the claim of its execution and its end, unless it serves a job, the running record, the appends of
// its logs (for each log at most one per Options.LogEvery, or per 4 MiB), and a seal for each log that is not empty.
func (x *Executor) Do(ctx context.Context, req *Request) (res Result, err error) {
	defer req.Place.Leave()
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
		return x.makeNew(ctx, key, req, id, greatest)
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
	claim, waited, err := x.claimKey(ctx, key, req, before.greatest)
	if err != nil {
		return Result{}, err
	}
	defer func() { x.release(claim, err == nil && res.State == record.Success) }()
	for {
		// Another process may have answered between the lookup and the claim.
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
		ended, err := x.unfinished(ctx, key, req, now.Running)
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
		if now.greatest >= claim.id { // a newer execution, by a clock that is ahead: claim a greater id
			claim.lock.Unlock()
			var again bool
			if claim, again, err = x.claimKey(ctx, key, req, now.greatest); err != nil {
				return Result{}, err
			}
			waited = waited || again
			continue
		}
		return x.makeNew(ctx, key, req, claim.id, now.greatest)
	}
}

// failedElsewhere is a failure of another process that counts as an attempt of the request.
func (req *Request) failedElsewhere(s *record.Status) Result {
	return Result{
		ExecutionID: s.ExecutionID, State: record.Failed, Cached: true, ExitCode: s.ExitCode, Reason: req.failure(s.ExitCode),
		Duration: s.CompletedAt.Sub(s.StartedAt),
	}
}

// failure returns the reason of a failed command: one exit code suspends the task.
func (req *Request) failure(code int64) Reason {
	if req.Policy != nil && req.Policy.Suspend != 0 && code == req.Policy.Suspend {
		return ReasonSuspended
	}
	return ReasonNone
}

// keeps tells whether the command continues after its process has lost its lease.
func (req *Request) keeps() bool { return req.Policy == nil || req.Policy.KeepsOnLost() }

// Rerun executes a request although its answer is known, without waiting for other processes. A success with another
// output is recorded as rejected, so that the known answer stays valid. A success with the same output is an ordinary
// record. The caller compares Result.Output.
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

// lone is a store of records that can tell without a list that a record is the only one of its key.
type lone interface{ OnlyExecution(key refstore.Key) bool }

// noteSecondSuccess changes the generation if a success has been recorded beside another one of its key: a forced
// execution takes no claim on the key and may have been faster. It comes after the record, so that every proof made
// on the other success is void.
func (c *Curator) noteSecondSuccess(ctx context.Context, key Key, id string) error {
	if r, ok := c.records.(lone); ok && r.OnlyExecution(recordKey(key, id)) {
		return nil
	}
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

// Prepare begins what the first command would otherwise wait for, if commands run here, and returns at once.
func (x *Executor) Prepare() {
	if x == nil {
		return
	}
	if r, ok := x.runner.(interface{ Prepare() }); ok && x.opts.Remote == nil {
		r.Prepare()
	}
}

// Clear begins to remove the sandboxes that wait for a command: when a run starts no more commands, they are removed
// while its results are written. wait returns when they are removed. A sandbox that cannot be removed goes with this
// process's folder.
func (x *Executor) Clear() (wait func()) {
	if x == nil {
		return func() {}
	}
	p := &x.sandboxes
	p.mu.Lock()
	boxes := append(p.free, p.used...)
	p.free, p.used = nil, nil
	p.mu.Unlock()
	var all sync.WaitGroup
	var next atomic.Int64
	for range min(runtime.NumCPU(), len(boxes), 4) {
		all.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(boxes); i = next.Add(1) - 1 {
				boxes[i].drop()
				_ = boxes[i].remove()
			}
		})
	}
	return all.Wait
}
