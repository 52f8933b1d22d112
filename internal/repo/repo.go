// Package repo opens a repository by its location and wires its stores. No other package knows the backends.
package repo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/fetch"
	"e3/internal/host/filelock"
	"e3/internal/host/modes"
	"e3/internal/host/process"
	"e3/internal/host/remains"
	"e3/internal/host/runner"
	"e3/internal/host/tools"
	"e3/internal/host/trace"
	"e3/internal/human"
	"e3/internal/images"
	"e3/internal/jobs/queue"
	"e3/objectstore"
	"e3/objectstore/cached"
	"e3/refstore"
	reffs "e3/refstore/fs"
	"e3/refstore/lease"
	"e3/workspace"
)

// Conditions that callers branch on.
var (
	ErrNoRepository = errors.New("no e3 repository")
	ErrExists       = errors.New("there is a repository already")
	ErrOtherFormat  = errors.New("this program does not know the form of the repository")
)

// Options adjust an open repository.
type Options struct {
	Version string              // of e3, for the records
	Now     func() time.Time    // nil: time.Now
	Getenv  func(string) string // nil: os.Getenv
	// From is the person's current folder; "": there is none.
	From string
	// Warn is called for faults that stop nothing; nil: ignored.
	Warn func(error)
	// Settle is how long requests of a lost process may still arrive; 0: 16 minutes, since S3 accepts no signature
	// older than 15. A location may set it too. A shorter time is for private servers that are known to be faster.
	Settle time.Duration
	// Lease is how long a process with a lease, such as a worker, counts as alive without renewal; 0: as the location
	// says, or 15 s.
	Lease time.Duration
	// Outlast is how long a process that runs commands waits for stores that do not answer, with its lease suspended.
	// 0: as long as is usual for the store, and a lease that cannot be renewed is lost.
	Outlast time.Duration
	// Retake lets a session that another process has found dead go on, if that process has taken nothing over. It is
	// for a process whose session only its own locks and claims name: jobs name a worker's session.
	Retake bool
	// Overlay says whether this machine's overlay is seen, and where writes go.
	Overlay OverlayMode
	// Remember makes this machine remember the records that are read from a shared repository, for Offline.
	Remember bool
	// Offline uses what this machine knows in place of a shared repository, which is not asked. Overlay must not be
	// WithoutOverlay then.
	Offline bool
	// Waiting is called with the time after which the holder of a workspace is known to be alive or dead; nil:
	// ignored.
	Waiting func(*workspace.BusyError, time.Duration)
	// TakeOver makes a worker take over a job whose worker was lost on this machine, and returns once the job's state
	// has changed; nil: no worker can be started.
	TakeOver func(context.Context, *Repo, *queue.Job)
	// Fetching receives the progress of fetching images; nil: nobody does.
	Fetching images.Watch
	// Downloading receives the progress of fetching inputs from servers; nil: nobody does.
	Downloading fetch.Watch
}

// Records is the record store of a repository, whatever the backend.
type Records interface {
	refstore.Durable
	refstore.Streams
	refstore.Locker
	refstore.Sessions
	// Sync makes everything written before durable.
	Sync(ctx context.Context) error
	// Sweep removes the remains of dead processes and returns how many there were.
	Sweep(ctx context.Context) (int, error)
	// RemoveLeftovers removes data that no record names and that is older than a given time.
	RemoveLeftovers(ctx context.Context, before time.Time) (int, error)
}

// Objects is the object store of a repository, wherever it is.
type Objects interface {
	workspace.Objects
	PutBytes(ctx context.Context, b []byte) (objectstore.Hash, error)
	ReadAll(ctx context.Context, h objectstore.Hash, limit int64) ([]byte, error)
	Walk(ctx context.Context) iter.Seq2[objectstore.Entry, error]
	WalkShard(ctx context.Context, first byte) iter.Seq2[objectstore.Entry, error]
	SweepShard(ctx context.Context, first byte, cutoff time.Time, keep func(objectstore.Hash) bool, removed func(objectstore.Entry)) error
	Verify(ctx context.Context, h objectstore.Hash) error
	Delete(ctx context.Context, h objectstore.Hash) error
	DeleteBefore(ctx context.Context, h objectstore.Hash, cutoff time.Time) (bool, error)
}

// A Repo is an open repository.
type Repo struct {
	Root       string // its folder, or a shared location without the parameters that only say how to reach it
	Location   string // as given to Open
	Records    Records
	Objects    Objects
	Executions *executions.Store
	Workspaces *workspace.Workspaces

	opts    Options
	user    func() string
	waiting filelock.Waiter // waits for locks of files and says which process holds them; ends with this process
	signing signing
	traffic traffic
	stores  *stores
	place   *place // nil where the objects are in the folder
	formats []*formatTexts
	queue   *queue.Queue
	runner  atomic.Pointer[runner.Supervisor]
	makes   atomic.Pointer[executions.Executor] // of this process; nil if it makes no executions
	left    atomic.Bool                         // commands of this process may run on in its folder
	overlay string                              // folder of this machine's overlay, perhaps missing; "" if there can be none
	offline *offlineBase                        // nil: the repository is asked
	closers []func() error                      // in the order of opening
}

// stores are the stores of a repository of some kind.
type stores struct {
	records Records
	queue   queue.Store // the records, as queues use them
	objects Objects
	local   workspace.Local // data that never leaves this machine
	derived workspace.Local // derived data, for all users of the repository
	here    here            // this process's files on this machine
	files   *reffs.Store    // the folder store of the records, or of the overlay's; else nil
	leases  *lease.Leases   // leases by which processes hold jobs and, if far is set, everything
	folder  string          // the folder of a repository in a folder, without symbolic links
	modes   modes.Modes     // of this process's files on this machine
	lookups int             // how many tasks are looked up at a time; 0: as many as this machine can
	plain   *members        // set if only jobs are held by leases, which records.Sweep does not know; else nil
	far     bool            // other users may be on other machines
	told    bool            // watches of records cost nothing, though they are far

	overlaid bool          // what is written stays on this machine
	programs *tools.Finder // of this machine
	presets  presets
}

// Open opens the repository that location means. It writes nothing into it.
func Open(ctx context.Context, location string, opts Options) (*Repo, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Getenv == nil {
		opts.Getenv = os.Getenv
	}
	r := &Repo{Location: location, opts: opts, user: sync.OnceValue(UserAtHost)}
	r.signing.key = sync.OnceValues(r.findKey)
	r.waiting = filelock.Until(ctx, func(path, holder string) {
		r.warn(fmt.Errorf("waiting for %s, which %s has locked; Ctrl-C ends that", human.Line(path), holder))
	})
	s, err := r.connect(ctx, location)
	if err == nil {
		s, err = r.overlaid(s)
	}
	if err != nil {
		return nil, errors.Join(err, r.closeStores())
	}
	r.stores, r.Records, r.Objects = s, s.records, s.objects
	var at queue.Members = s.leases
	if s.plain != nil {
		at = s.plain
	}
	q := queue.Options{Now: opts.Now, Polled: s.far && !s.told}
	q.Answered = func(ctx context.Context, j *queue.Job) (bool, error) { return answered(ctx, r, j) }
	if opts.TakeOver != nil {
		q.TakeOver = func(ctx context.Context, j *queue.Job) {
			if r.TakesOver(j) {
				opts.TakeOver(ctx, r, j)
			}
		}
	}
	r.queue = queue.New(s.queue, at, q)
	r.Executions = executions.NewStore(s.records, s.objects).WithJobs(r.queue.Working).Requiring(r.Demand).Telling(r.warn)
	withdraw := func(ctx context.Context, ws, run string, dead func(context.Context) error) (int, error) {
		return r.queue.WithdrawLeft(ctx, ws, run, r.user(), dead)
	}
	if s.overlaid { // jobs of the repository are not for this machine
		withdraw = nil
	}
	s.programs = programs(&opts)
	r.Workspaces = workspace.New(workspace.Stores{
		Records: s.records, Locks: s.records, Objects: gathered(s.objects), Local: s.local, Derived: s.derived, Lookups: s.lookups,
		Sessions: s.records, Now: opts.Now, Holder: func() string { return holder(s.far) }, User: r.user, Waiting: opts.Waiting,
		Sweep: r.Sweep, Warn: opts.Warn, Folder: s.folder, From: opts.From, Tools: s.programs, Rooms: rooms(r), Folders: r.folders, Images: resolver(r), Remote: downloads(r), Demands: r.Demand, Signer: r.Signer,
		Withdraw: withdraw,
		Attempts: r.attempts, Queued: func(ctx context.Context, ws, run string) ([]workspace.Queued, error) { return queued(ctx, r, ws, run) },
	})
	return r, nil
}

// farObjects are objects of which each put is a request.
type farObjects struct{ *cached.Store }

// Gather implements workspace.Gatherer.
func (o farObjects) Gather() workspace.Gathering { return o.Batch() }

// gathered are the objects as workspaces see them.
func gathered(objects Objects) workspace.Objects {
	if far, ok := objects.(*cached.Store); ok {
		return farObjects{far}
	}
	return objects
}

// connect opens the stores of a location.
func (r *Repo) connect(ctx context.Context, location string) (*stores, error) {
	from := "" // the folder of the location, if it was not given
	if !IsURL(location) {
		root, err := Find(location)
		if err != nil {
			return nil, err
		}
		texts := folderFormat(root)
		r.formats = append(r.formats, texts)
		f, err := texts.load(ctx, r.warn)
		switch {
		case err != nil:
			return nil, err
		case f.Location == "" && r.opts.Offline:
			return nil, offlineOnly(root)
		case f.Location == "":
			r.Root = root
			return r.openFolder(ctx, root, f)
		}
		location, from = f.Location, filepath.Join(root, formatFile)+": "
	}
	l, err := parseShared(location)
	if err != nil {
		return nil, fmt.Errorf("%s%w", from, err)
	}
	r.Root = l.String()
	if r.opts.Offline {
		return r.openOffline(l)
	}
	return r.openShared(ctx, l)
}

// warn reports a fault that stops nothing.
func (r *Repo) warn(err error) {
	if r.opts.Warn != nil {
		r.opts.Warn(err)
	}
}

// Scratch returns a folder of this process on the file system of the objects, or of their copies on this machine.
func (r *Repo) Scratch() (string, error) { return r.stores.here.SessionDir() }

// keeping returns a folder of this user beside the folders of processes, for checkouts and unpacked images that later
// processes can use again. It is an error if another user can reach the folder, or if it cannot be made.
func keeping(r *Repo, what string) (string, error) {
	dir, err := r.Scratch()
	if err != nil {
		return "", err
	}
	return modes.PrivateFolder(ofUser(filepath.Dir(dir), what))
}

// Kept are the folders of failed commands of this user on this machine.
func (r *Repo) Kept() *remains.Folders {
	return remains.In(r.stores.here.Temp())
}

// folders are the folders of failed commands that this machine keeps for a workspace.
func (r *Repo) folders(ws string) []workspace.Folder {
	var list []workspace.Folder
	for _, f := range r.Kept().List(ws) {
		folder := workspace.Folder{Task: f.Task, Execution: f.Execution, Host: Host(), Path: f.Work(), Bytes: f.Bytes}
		if f.Visit {
			folder.Execution = ""
		}
		list = append(list, folder)
	}
	return list
}

// Host is the name of this machine in records.
func Host() string { return self().Host }

// Modes are those of this process's files on this machine.
func (r *Repo) Modes() modes.Modes { return r.stores.modes }

// Sweep removes the remains of dead processes.
func (r *Repo) Sweep(ctx context.Context) error {
	_, err := r.stores.records.Sweep(ctx)
	if err == nil && r.stores.plain != nil {
		_, err = r.stores.plain.leases().Sweep(ctx)
	}
	return err
}

// onClose calls f when the repository is closed, before functions added earlier.
func (r *Repo) onClose(f func() error) { r.closers = append(r.closers, f) }

func (r *Repo) closeStores() error {
	var err error
	for i := len(r.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, r.closers[i]())
	}
	r.closers = nil
	return err
}

// closeLeftWithin is how long Close tries to record executions that this process could not record before.
const closeLeftWithin = 2 * time.Second

// Close ends everything that still runs and releases what this process holds.
func (r *Repo) Close() error {
	var err error
	if sup := r.runner.Load(); sup != nil {
		err = sup.Close()
	}
	if x := r.makes.Load(); x != nil {
		if e := x.Rest(); e != nil {
			r.warn(e)
		}
	}
	if sup := r.runner.Load(); r.left.Load() || sup != nil && sup.Left() {
		r.keepSession()
	} else if x := r.makes.Load(); x != nil && x.Unfinished() {
		// A store that does not answer must not block the end of the process: the next start can close the
		// executions, or says why not.
		ctx, stop := context.WithTimeout(context.Background(), closeLeftWithin)
		defer stop()
		dir, err := r.Scratch()
		if err == nil {
			_, err = x.CloseBegun(ctx, dir)
		}
		if err != nil {
			r.keepSession()
		}
	}
	return errors.Join(err, r.closeStores())
}

// keepSession leaves this process's folders to the next sweep.
func (r *Repo) keepSession() {
	r.stores.here.KeepSession()
	if r.stores.files != nil {
		r.stores.files.KeepSession()
	}
}

// ExecutorOptions adjust how commands are run.
type ExecutorOptions struct {
	Grace time.Duration // between TERM and KILL; 0: the runner's default
	Full  bool          // every execution is durable when it is reported
	// Remote makes executions elsewhere; nil: commands run on this machine.
	Remote executions.Remote
	// Waiting is as in [executions.Options].
	Waiting func(context.Context, *executions.Request, executions.Wait)
	// Trace is as in [executions.Options].
	Trace func(context.Context, *executions.Request) (*trace.Look, error)
	// Unlimited is as in [executions.Options].
	Unlimited func(error)
	// Prepared is as Told in [executions.EnvironmentOptions].
	Prepared func(executions.Preparation)
}

// Executor returns the only executor of this process, which must not also have a [Repo.Worker].
func (r *Repo) Executor(o ExecutorOptions) (*executions.Executor, error) {
	sup, err := runner.New(runner.Options{Grace: o.Grace})
	if err != nil {
		return nil, err
	}
	r.runner.Store(sup)
	opts := r.executorOptions(o.Grace)
	if opts.Key, err = r.Signer(); err != nil {
		return nil, err
	}
	opts.Remote, opts.Waiting, opts.Trace, opts.Unlimited = o.Remote, o.Waiting, o.Trace, o.Unlimited
	opts.Environments.Told = o.Prepared
	if o.Full {
		opts.Sync = r.Records.Sync
	}
	if o.Remote != nil {
		syncAll(r) // covers what a worker of this machine has written, whatever its version
	}
	x := executions.NewExecutor(r.Executions, r.Objects, r.Records, sup, opts)
	r.makes.Store(x)
	return x, nil
}

// KillCommands kills the commands of the process's executor at once. Their executions end as cancelled, and no other
// begins.
func (r *Repo) KillCommands() error {
	if sup := r.runner.Load(); sup != nil {
		return sup.Close()
	}
	return nil
}

// syncAll makes each sync a sync of the whole file system.
func syncAll(r *Repo) {
	if r.stores.files != nil {
		reffs.SyncAll(r.stores.files)
	}
}

// closeLeft records executions that a dead process of this machine has begun; dir was its folder.
func (r *Repo) closeLeft(ctx context.Context, dir string) error {
	x := executions.NewExecutor(r.Executions, r.Objects, r.Records, nil, r.executorOptions(0))
	runs, err := x.CloseBegun(ctx, dir)
	for _, of := range runs {
		err = errors.Join(err, r.Workspaces.TellLeft(ctx, of.Workspace, of.Run, x))
	}
	return err
}

func (r *Repo) executorOptions(grace time.Duration) executions.Options {
	return executions.Options{
		Worker: r.user(), Host: self().Host, Version: r.opts.Version, Path: searchPath(), Getenv: os.LookupEnv, Tools: r.stores.programs, Hidden: hidden(r),
		Scratch: r.Scratch, Checkouts: func() (string, error) { return keeping(r, checkoutsName) },
		CheckoutBound: r.checkoutsBound, Images: func() (string, error) { return keeping(r, "images") },
		Environments: environments(r),
		Kept:         r.Kept(), Modes: r.stores.modes, Grace: grace, Now: r.opts.Now,
		Storable: func(ctx context.Context) error { return storable(ctx, r) },
	}
}

// searchPath is PATH, or a login's default.
func searchPath() string {
	if p := os.Getenv("PATH"); p != "" {
		return p
	}
	return "/usr/local/bin:/usr/bin:/bin"
}

// Process describes this process for the history.
func (r *Repo) Process() *events.Process {
	self := self()
	name, _, _ := strings.Cut(r.user(), "@")
	return &events.Process{PID: self.PID, StartTime: self.StartTime, BootID: self.BootID, Host: self.Host, User: name}
}

// self identifies this process, by its pid alone if the system does not tell more.
func self() process.ID {
	p, err := process.Self()
	if err != nil {
		p.PID = os.Getpid()
	}
	return p
}

// UserAtHost names the user of this process and the machine, as in records.
func UserAtHost() string {
	name := os.Getenv("USER")
	if name == "" {
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}

// inWords describes this process for people: "me@host: e3 start". Arguments after the command may be private.
func inWords() string {
	words := UserAtHost() + ": e3"
	if len(os.Args) > 1 {
		words += " " + os.Args[1]
	}
	return words
}

// holder describes this process as the reference does, in East text; for other machines also where it is.
func holder(far bool) string {
	self := self()
	text := fmt.Sprintf(".process (pid=%d, bootId=%q, startTime=%d, command=%q", self.PID, self.BootID, self.StartTime, strings.Join(os.Args, " "))
	if host, err := os.Hostname(); err == nil && far {
		text += fmt.Sprintf(", host=%q", host)
	}
	return text + ")"
}
