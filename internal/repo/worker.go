package repo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"e3/executions"
	"e3/internal/host/runner"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
	"e3/internal/jobs/worker"
	"e3/refstore"
	"e3/workspace"
)

// Queue returns the queues of the repository.
func (r *Repo) Queue() *queue.Queue { return r.queue }

// Dispatcher returns a dispatcher that lets workers make a run's executions. The caller closes it.
func (r *Repo) Dispatcher(o dispatch.Options) *dispatch.Dispatcher {
	o.Host, o.By, o.Now = self().Host, r.user(), r.opts.Now
	if r.stores.plain != nil {
		o.Renew = r.stores.plain.renew
	}
	curator := executions.NewCurator(r.Executions, r.Records, r.opts.Now)
	return dispatch.New(r.queue, curator, o)
}

// WorkerOptions are the options of a worker here.
type WorkerOptions struct {
	worker.Options
	Grace time.Duration // between TERM and KILL; 0: the runner's default
	// Prepared is as Told in [executions.EnvironmentOptions].
	Prepared func(executions.Preparation)
}

// retain is how long after the end of its worker's lease a supervisor keeps the ends of commands for the next worker
// of the host.
const retain = 24 * time.Hour

// Worker returns the only worker of this process, which must not also have an Executor. The supervisor, and with it
// the process's folder, outlives the worker for the time of its lease.
func (r *Repo) Worker(o WorkerOptions) (*worker.Worker, error) {
	lock, err := r.stores.here.SessionLock()
	if err != nil {
		return nil, err
	}
	kept := []*os.File{lock}
	if files := r.stores.files; files != nil { // the session there protects the objects that its commands store
		beside, err := files.SessionLock()
		if err != nil {
			return nil, err
		}
		kept = append(kept, beside)
	}
	dir, err := r.supervisors(lock)
	if err != nil {
		return nil, err
	}
	leases := r.stores.leases
	sup, err := runner.New(runner.Options{
		Grace: o.Grace,
		// This process relies on a renewal for the same time.
		Outlive: &runner.Outlive{Dir: dir, For: leases.Limit(), Retain: retain, Keep: kept},
	})
	if err != nil {
		return nil, err
	}
	r.runner.Store(sup)
	r.onClose(func() error {
		_ = os.Remove(dir) // fails if another worker has a socket there
		return nil
	})
	// A command elsewhere may run this long after its worker's last renewal, if its lease is like this one's.
	o.Patience = leases.Limit() + o.Grace
	o.Name, o.Host, o.Now = fmt.Sprintf("%s (process %d)", r.user(), os.Getpid()), commandsOf(dir), r.opts.Now
	opts := r.executorOptions(o.Grace)
	if opts.Key, err = r.Signer(); err != nil {
		return nil, err
	}
	opts.Sync = r.Records.Sync // for runs on other hosts
	syncAll(r)                 // a command writes its log until the end, which a sync of single files does not cover
	opts.Unlimited = func(err error) {
		o.Report(worker.Event{Type: worker.Fault, Time: r.opts.Now(), Message: err.Error()})
	}
	opts.Environments.Told = o.Prepared
	x := executions.NewExecutor(r.Executions, r.Objects, r.Records, sup, opts)
	r.makes.Store(x)
	curator := executions.NewCurator(r.Executions, r.Records, r.opts.Now)
	return worker.New(worker.Stores{
		Queue: r.queue, Supervisor: leaver{sup, r}, Session: leases, Objects: r.Objects, Executor: x,
		Sweep: func(ctx context.Context) error {
			return errors.Join(r.Sweep(ctx), workspace.TellAllLate(ctx, r.Workspaces.States, curator))
		},
		Told: func(ctx context.Context, j *queue.Job) error {
			if j.Retried > 0 {
				return workspace.TellLateOf(ctx, r.Workspaces.States, j.Workspace, curator)
			}
			return workspace.TellLate(ctx, r.Workspaces.States, j.Workspace, j.Execution, curator)
		},
	}, o.Options), nil
}

// leaver is a supervisor that leaves its commands together with the folder of this process, in which they run.
type leaver struct {
	*runner.Supervisor
	r *Repo
}

// Leave implements worker.Supervisor.
func (l leaver) Leave() error {
	l.r.left.Store(true)
	return l.Supervisor.Leave()
}

// OnSuspension makes tell be called when the lease by which this process holds jobs is suspended, and when it
// resumes.
func (r *Repo) OnSuspension(tell func(refstore.Suspension)) (stop func()) {
	return r.stores.leases.OnSuspension(tell)
}

// supervisors is the folder in which the workers of this host, user and repository find each other's commands, beside
// their own folders.
func (r *Repo) supervisors(lock *os.File) (string, error) {
	self := self()
	sum := sha256.Sum256(fmt.Appendf(nil, "e3 supervisors\x00%s\x00%s\x00%d", self.Host, self.PIDNamespace, os.Getuid()))
	return filepath.Abs(filepath.Join(filepath.Dir(lock.Name()), "workers-"+hex.EncodeToString(sum[:8])))
}

// commandsOf names a folder of supervisors in jobs: only workers with the same folder can take over the commands of a
// lost worker. The folder's name tells host and user; it may lie in another cache folder.
func commandsOf(supervisors string) string {
	return filepath.Base(supervisors) + "-" + folderNumber(filepath.Dir(supervisors))
}

// TakesOver tells whether a worker of this process's host, user and folder has begun a job's execution. Then a
// command that the supervisor does not have does not run.
func (r *Repo) TakesOver(j *queue.Job) bool {
	lock, err := r.stores.here.SessionLock()
	if err != nil {
		return false
	}
	dir, err := r.supervisors(lock)
	return err == nil && j.MakerHost == commandsOf(dir)
}

// renewed is called when the lease of this process was renewed: its commands may go on.
func (r *Repo) renewed(sent time.Duration) {
	if sup := r.runner.Load(); sup != nil {
		_ = sup.ExtendFrom(sent) // fails if it is closed
	}
}

// BeginSession begins the session by which others see this process at work. So a process without the right to write
// gets ErrReadOnly before it takes a job.
func (r *Repo) BeginSession(ctx context.Context) error {
	_, err := r.stores.leases.Session(ctx)
	if errors.Is(err, refstore.ErrReadOnly) {
		return err
	}
	return nil // the first claim reports any other failure
}

// attempts is workspace.Stores.Attempts.
func (r *Repo) attempts(ctx context.Context, ws, run string) ([]workspace.JobAttempt, error) {
	jobs, err := r.queue.OfRun(ctx, ws, run)
	if err != nil {
		return nil, err
	}
	var list []workspace.JobAttempt
	for i := range jobs {
		j := &jobs[i]
		req, err := dispatch.Request(j)
		if err != nil {
			continue // it can never be executed
		}
		key := executions.NewKey(req.Task, req.Inputs).String()
		if j.Status == queue.Queued {
			list = append(list, workspace.JobAttempt{
				Task: j.Task, Key: key, Number: j.Attempt + int64(len(j.Lost)), Open: true, Retried: j.Retried,
			})
		}
		for _, a := range j.History() {
			list = append(list, workspace.JobAttempt{
				Task: j.Task, Key: key, Number: a.Number, Execution: a.Execution,
				Worker: a.Worker, Adopter: a.Adopter, Claimed: a.Claimed, Adopted: a.Adopted, Started: a.Started,
				Lost: a.Lost, Left: a.Left, Open: !j.Status.Terminal(), Retried: j.Retried,
			})
		}
	}
	return list, nil
}
