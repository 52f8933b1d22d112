package executions

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/modes"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
)

// LocalObjects is an object store with a side on this machine, where tasks run.
type LocalObjects interface {
	Objects
	// Adopt stores the file at path and takes it away from there where that is safe.
	Adopt(ctx context.Context, path string) (objectstore.Info, error)
	// Materialize writes a copy of an object that nobody can reach the store through.
	Materialize(ctx context.Context, h objectstore.Hash, dst string, perm FileMode) error
	// Refresh keeps an object from collections under way, as a put of it would, and reports whether it is there.
	Refresh(ctx context.Context, h objectstore.Hash) (bool, error)
}

// Runner runs one process to its end.
type Runner interface {
	Run(ctx context.Context, spec runner.Spec) (runner.Result, error)
}

// Options configure an Executor.
type Options struct {
	Worker   string                      // user@host, for the record
	Host     string                      // of this process, as Request.Host names the run's
	Version  string                      // of e3, for the record
	Path     string                      // PATH of the tasks
	Getenv   func(string) (string, bool) // where pass_env and secrets come from
	Scratch  func() (string, error)      // a directory of this process on the object store's filesystem
	Modes    modes.Modes                 // of the logs, which become the repository's
	Grace    time.Duration               // between TERM and KILL
	Announce time.Duration               // after this long a running execution is put on record; default 200 ms
	LogEvery time.Duration               // how often the log of a running one is sent where it cannot be taken over as a file; default 1 s
	Now      func() time.Time
	// Sync makes what was written so far durable. nil: the run does it. What is made for a job of a run on another host is
	// made durable before it is on record, as that run cannot do it; what is made for one of this host its run makes durable.
	Sync func(context.Context) error
	// Remote makes executions elsewhere. nil: commands run here.
	Remote Remote
	// Working, if set, is asked instead of the store's (Store.WithJobs).
	Working Working
}

// An Executor answers keys: from the record where it can, else by running the command.
// It is safe for concurrent use, by any number of processes on one repository.
type Executor struct {
	*Curator
	objects   LocalObjects
	runner    Runner
	sandboxes sandboxes
	shell     func() string
	opts      Options
	unfenced  sync.Map // of *flight by claim, see takeOff
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

// findShell returns the bash of a search path by its full name: given a bare one, bash would
// search the path for itself each time it starts. Where there is none, the bare
// name fails with an error that says so.
func findShell(path string) string {
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, "bash")
		if info, err := os.Stat(file); err == nil && filepath.IsAbs(file) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return "bash"
}

// Request asks for the result of a task on given inputs.
type Request struct {
	Task       objectstore.Hash
	Load       func(context.Context) (*record.Task, error) // reads the task object; only asked where it must run
	Inputs     []objectstore.Hash
	InputBytes int64 // size of the file inputs, for the record
	Policy     *record.Policy
	Attempt    int64  // 1 for the first
	RunID      string // for the record, as the next two
	Workspace  string
	Name       string
	Step       string  // of the task: "", or "resume:<block>", which its command finds in E3_STEP: somebody has approved it
	Force      bool    // run even if the answer is known, and wait for nobody
	Looked     *Answer // what a lookup of the key has found, without a hit, since there was any attempt of the caller's; nil: none was made
	Without    string  // an execution of the key whose output is lost: neither it nor any before it is an answer. "": none is lost
	// Admit, if set, is asked before the command starts and released when it has ended, and
	// told then whether it has failed: staging and recording need no turn. Its error ends the
	// attempt without a record.
	Admit func(context.Context) (release func(failed bool), err error)
	// Started is told the execution's id when the command is about to start.
	Started func(executionID string)

	// What follows is for executions that are made for a job of a queue: Remote makes jobs of requests, Make and Adopt work on them.

	Job      string // "<queue>/<job>" that this is made for, kept with the record of a command that lives long
	Identity string // of this attempt at the job, by which the supervisor of a worker that has died names it
	Host     string // of the run's process; "" where that is this one
	// Stopped is for how long the end of a command that has failed is not believed: what stops this process may stop the command as
	// well, a moment before ctx ends (schedulers signal all processes of a job).
	Stopped time.Duration
	// Claimed is told that a worker has taken the job, and which execution it makes.
	Claimed func(executionID, worker string)
	// Lost is told that what a worker had begun is given up, and when another attempt can begin at the earliest.
	Lost func(executionID, message string, again time.Time)

	After string // the greatest id under the key that is known: that of what a worker makes is greater

	against *Hit // a success with another output than this one's is rejected as it is recorded
}

// Result is the execution that answers a request.
type Result struct {
	ExecutionID string
	State       record.State // Success, Failed or Error
	Cached      bool         // nothing ran here: an earlier, or another's, execution answers
	Output      objectstore.Hash
	Size        int64  // of the output object, in bytes
	Message     string // of an Error
	ExitCode    int64  // of a Failed
	Reason      Reason
	Duration    time.Duration // of the execution, whenever it was
}

// Reason tells errors apart for those who branch on them.
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

// Do answers the request. A command that fails is a result, not an error: an error means
// that the stores or this machine are at fault, and that nothing was recorded.
//
// Of several callers with one key, in any process, one executes and the others wait and
// take what it found: a success is a hit, a failure counts as their own attempt. One that runs already for a job of a queue, whose
// run may be gone, is waited for likewise.
//
// Where claims are leases and this process has lost its own, the error wraps refstore.ErrLost: somebody else may be
// executing the key, and has seen to it that what was begun here cannot become an answer.
//
// What it asks of the stores, where each is a request: for a hit a list of the key's executions. For a command that ends at once
// a list, the claim, a list, the record, a list of keys, and the end of the claim. One that lives longer than Options.Announce needs besides
// the claim of its execution and its end, the running record, the appends of its logs (each log at most one in
// Options.LogEvery, or 4 MiB), and a seal for each log that is not empty.
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
	flight, waited, err := x.takeOff(ctx, key, req.Inputs, before.greatest)
	if err != nil {
		return Result{}, err
	}
	defer func() { flight.lock.Unlock() }()
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
		if waited && now.Latest != nil && now.Latest.State == record.Failed && news(before.Latest, now.Latest) {
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
		if now.lost { // a success whose output is gone: the new success takes its place in proofs
			end, err := x.generation.Begin(ctx)
			if err != nil {
				return Result{}, err
			}
			defer end()
		}
		if now.greatest >= flight.id { // of a clock that is ahead, since the claim was taken: it names what is made under it
			flight.lock.Unlock()
			next, again, err := x.takeOff(ctx, key, req.Inputs, now.greatest)
			if err != nil {
				flight.lock = released{}
				return Result{}, err
			}
			flight, waited = next, waited || again
			continue
		}
		return x.begin(ctx, key, req, flight.id, now.greatest)
	}
}

// failedElsewhere is a failure that another has waited for and counts as an attempt of the request.
func (req *Request) failedElsewhere(s *record.Status) Result {
	return Result{
		ExecutionID: s.ExecutionID, State: record.Failed, Cached: true, ExitCode: s.ExitCode, Reason: req.failure(s.ExitCode),
		Duration: s.CompletedAt.Sub(s.StartedAt),
	}
}

// failure is the reason of a failure: a command may ask to be resumed later.
func (req *Request) failure(code int64) Reason {
	if req.Policy != nil && req.Policy.Suspend != 0 && code == req.Policy.Suspend {
		return ReasonSuspended
	}
	return ReasonNone
}

// Rerun executes a request again whose answer is known, beside that answer, and waits for nobody. A success with
// another output is on record as rejected from the first moment, so that the answer stands; one with the same is a success like
// any other. Whoever asks compares Result.Output.
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

// news tells whether the latest execution ended while we waited.
func news(before, after *record.Status) bool {
	return before == nil || before.ExecutionID != after.ExecutionID || before.State == record.Running
}

// overtaken changes the generation if a success has been recorded beside another one of its
// key: a forced execution takes no claim on the key and may have been faster. It comes
// after the record, so that a proof made on the other success is void, whenever it was made.
func (c *Curator) overtaken(ctx context.Context, key Key, id string) error {
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
