package executions

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"e3/internal/record"
	"e3/internal/runner"
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
	Version  string                      // of e3, for the record
	Path     string                      // PATH of the tasks
	Getenv   func(string) (string, bool) // where pass_env and secrets come from
	Scratch  func() (string, error)      // a directory of this process on the object store's filesystem
	Grace    time.Duration               // between TERM and KILL
	Announce time.Duration               // after this long a running execution is put on record; default 200 ms
	Now      func() time.Time
	// Sync makes what was written so far durable. nil: the run does it.
	Sync func(context.Context) error
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
}

// NewExecutor returns an executor over the same records and objects as store.
func NewExecutor(store *Store, objects LocalObjects, claims refstore.Locker, run Runner, opts Options) *Executor {
	if opts.Announce == 0 {
		opts.Announce = 200 * time.Millisecond
	}
	return &Executor{
		Curator: NewCurator(store, claims, opts.Now), objects: objects, runner: run, opts: opts,
		sandboxes: sandboxes{scratch: opts.Scratch},
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
	Force      bool // run even if the answer is known, and wait for nobody
	// Admit, if set, is asked before the command starts and released when it has ended, and
	// told then whether it has failed: staging and recording need no turn. Its error ends the
	// attempt without a record.
	Admit func(context.Context) (release func(failed bool), err error)
	// Started is told the execution's id when the command is about to start.
	Started func(executionID string)

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
)

// Do answers the request. A command that fails is a result, not an error: an error means
// that the stores or this machine are at fault, and that nothing was recorded.
//
// Of several callers with one key, in any process, one executes and the others wait and
// take what it found: a success is a hit, a failure counts as their own attempt.
func (x *Executor) Do(ctx context.Context, req *Request) (Result, error) {
	key := NewKey(req.Task, req.Inputs)
	if req.Force {
		end, err := x.generation.Begin(ctx)
		if err != nil {
			return Result{}, err
		}
		defer end()
		return x.execute(ctx, key, req)
	}

	before, err := x.Lookup(ctx, key)
	if err != nil {
		return Result{}, err
	}
	if before.Hit != nil {
		return hit(before.Hit), nil
	}
	claim, waited, err := x.await(ctx, key.claim())
	if err != nil {
		return Result{}, err
	}
	defer claim.Unlock()
	// Another process may have answered between the look and the claim.
	now, err := x.Lookup(ctx, key)
	if err != nil {
		return Result{}, err
	}
	if now.Hit != nil {
		return hit(now.Hit), nil
	}
	if waited && now.Latest != nil && now.Latest.State == record.Failed && news(before.Latest, now.Latest) {
		return Result{
			ExecutionID: now.Latest.ExecutionID, State: record.Failed, Cached: true, ExitCode: now.Latest.ExitCode,
			Duration: now.Latest.CompletedAt.Sub(now.Latest.StartedAt),
		}, nil
	}
	for _, id := range now.Running {
		if _, err := x.Bury(ctx, key, id); err != nil {
			return Result{}, err
		}
	}
	if now.lost { // a success whose output is gone: the new success takes its place in proofs
		end, err := x.generation.Begin(ctx)
		if err != nil {
			return Result{}, err
		}
		defer end()
	}
	return x.execute(ctx, key, req)
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
func (x *Executor) overtaken(ctx context.Context, key Key, id string) error {
	others := 0
	for rec, err := range x.records.List(ctx, refstore.Query{Partition: partition(key), KeysOnly: true}) {
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
	for e, err := range x.List(ctx, key) {
		if err == nil && (e.ExecutionID == id || e.State != record.Success) {
			continue
		}
		end, err := x.generation.Begin(ctx)
		if err != nil {
			return err
		}
		end()
		return nil
	}
	return nil
}
