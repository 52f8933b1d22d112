package workspace

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/host/git"
	"e3/refstore"
)

// Runner runs the dataflow of workspaces, cancels runs, and closes the runs of dead processes.
type Runner struct {
	states    *States
	proofs    *proofs
	deployer  *Deployer
	approvals *Approvals
	cleaner   *Cleaner
	repairer  *Repairer
}

// Publishing says when results are written to the workspace's tree.
type Publishing int

// The settings of --publish.
const (
	Always Publishing = iota // as they arrive, in batches
	Final                    // at the end of the run
	Never                    // never: only executions keep them
)

// StartOptions say how to run a workspace.
type StartOptions struct {
	Executor    *executions.Executor
	Concurrency int
	Memory      int64 // bytes; 0: no limit
	Capacities  map[string]float64
	Outstanding int // executions at a time that Executor hands to others; 0: they run in this process
	Force       bool
	Filter      string
	FailFast    bool
	Strict      bool            // tasks that may fail fail the run as others do
	NoWait      bool            // end when all remaining tasks wait for a person
	Set         []Override      // values of inputs for this run alone
	From        string          // the workspace from which this one was made for the run, for the history
	Given       events.Settings // what it was given then, for the history
	Publish     Publishing
	Durability  Durability
	FileNamed   bool               // the followed package file was named, so the current folder does not matter
	Process     *events.Process    // the running process, for the history
	Warnings    []manifest.Warning // told when the package file was deployed just before, for the history
	OnEvent     func(events.Event) // receives every logged event, in order, from one goroutine at a time
	OnStart     func(*RunInfo)     // receives the run before its first event
	// Traffic returns what this process has sent to the repository, for the history; nil: unknown. Traffic may be
	// nil.
	Traffic func() *events.Traffic
	// OnWork is called when the run is not proven current at once: from then on, time and memory depend on the size of
	// the graph.
	OnWork func()
	// OnRest is called when the last command has ended, before results are written. May be nil.
	OnRest func()
}

// RunInfo is what is known of a run when it begins.
type RunInfo struct {
	RunID    string
	Package  *record.Package // nil if the run is proven current without reading it
	Warnings []manifest.Warning
	// Elsewhere is the origin of the package if its package file was not read; else nil.
	Elsewhere *Elsewhere
	Renamed   string // as of Built; File is then the package file
	File      string
	// Expected returns how long a task took when it last ran; 0: unknown. It is nil if Package is nil.
	Expected func(task string) time.Duration
	Graph    *dataflow.Graph // of the run, with its gates, before it grows; nil if Package is nil. It must not be changed
}

// RunResult is a run that has ended.
type RunResult struct {
	Run      *record.Run
	TimedOut bool // the first failure was a timeout
	Waiting  int  // tasks that wait for approval, if only such tasks remained; the run's state is then cancelled
	// Cancelled is the request that ended a cancelled run; nil if a signal did.
	Cancelled *CancelledError
	Graph     *dataflow.Graph
	Outcome   *dataflow.Outcome
	Package   *record.Package // the package at the end; nil, like the two fields above, if the run is proven current
}

// work is called when the run is not proven current at once; it may be called again.
func (r *run) work() {
	r.watch()
	if r.o.OnWork != nil {
		r.o.OnWork()
	}
}

// Errors that callers branch on.
var (
	ErrNoMatch = errors.New("no task matches") // the filter
)

// Start runs the dataflow of a workspace: it follows the package file, if there is one, closes the runs of dead
// predecessors, and settles every task. A failed or cancelled run is a result, not an error; an error beside a result
// says that the stores failed during the run.
func (w *Runner) Start(ctx context.Context, ws string, o StartOptions) (*RunResult, error) {
	ctx, lock, err := w.states.lockExisting(ctx, ws, record.Dataflow)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	r := &run{w: w, ws: ws, o: &o, lock: lock, durable: o.Durability != None}
	defer r.letGo()
	outer := ctx
	ctx, look := r.watchCancellation(outer, lock)
	defer r.unwatch()
	swept := false
	err = atOnce(
		w.states,
		func() error {
			err := w.states.Sweep(outer)
			swept = err == nil
			return err
		},
		look,
		func() error { _ = r.hold(outer); return nil }, // start tries again if this has failed
	)
	switch {
	case err != nil && !swept:
		return nil, fmt.Errorf("clean up after dead processes: %w", err)
	case err != nil:
		return nil, lock.explain(ctx, err)
	}
	res, err := r.start(ctx)
	if part := new(PartError); errors.As(err, &part) && r.version == "" { // nothing is written yet
		if _, err = r.w.heal(ctx, lock, part, r.durable); err == nil {
			r.snapshots = snapshots{}
			res, err = r.start(ctx)
		}
	}
	if err == nil {
		return res, nil
	}
	err = lock.explain(ctx, err)
	lost := errors.Is(err, refstore.ErrLost)
	if r.log != nil { // an unfinished run must not write after the lock is released
		if lost {
			r.log.Stop(err)
		}
		_ = r.log.Close()
	}
	if lost {
		return nil, err // the successor reports how the run ended
	}
	return res, asCancelled(ctx, err)
}

// run is a run of a workspace at work. It holds the dataflow lock.
//
// Each step, from the first to the last event, leaves its results here for later steps.
type run struct {
	w       *Runner
	ws      string
	o       *StartOptions
	lock    *hold
	durable bool
	cancelWatch

	restoring sync.Mutex

	state    *State
	held     []func() // releases of protections
	warnings []string // of the package file, for the first event
	rec      *record.Run
	version  refstore.Version // of rec, as this run wrote it
	closed
	log    *events.Log
	first  *events.Event // of the log; also in the record
	last   *events.Event // of the log; nil until the run ends
	latest events.Latest // of the journal, before the run
	place  events.Place  // of the run in the journal
	began  time.Time
	git    *events.Git // the commit of the package file's folder
	edits  edits       // of that folder
	inputs string      // hash of the inputs node
	tasks  string      // hash of the tasks node at the beginning
	snapshots
	overrides
	grows   bool                   // the graph may grow
	grown   string                 // hash of the package of the grown graph; "": the package of the start
	dropped map[string]record.Leaf // outputs that left the tree with their tasks in a growth
	shown   bool                   // the workspace shows the proven results
	spared  string                 // the proven run, whose record stays; "": there is none, or this run proves more
	broken  bool                   // cancelled, or ended by a fault: requests may lack a result
	waiting int                    // tasks that wait for approval, if the run ended because only they remained
	outset
	stored storedProof
}

// start is the list of a start's stages. The caller holds the lock.
func (r *run) start(ctx context.Context) (*RunResult, error) {
	link, built, err := r.follow(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.lookBack(ctx); err != nil {
		return nil, err
	}
	info, err := r.describe(ctx, link, built)
	if err != nil {
		return nil, err
	}
	proof, tasks, err := r.prove(ctx, link, info)
	if err != nil {
		return nil, err
	}
	unchanged := r.shown && !proof.Partial && !r.o.Force && r.o.Filter == "" && proof.Package == r.state.PackageHash && proof.Inputs == r.inputs
	if unchanged {
		for _, node := range []string{r.inputs, tasks} {
			if err := r.w.checkNode(ctx, node); err != nil {
				return nil, err
			}
		}
	}
	if err := r.begin(ctx, r.inputs, proof); err != nil {
		return nil, err
	}
	info.RunID, r.warnings = r.rec.RunID, warned(slices.Concat(r.o.Warnings, info.Warnings))
	r.o.Executor.ForgetFolders(r.ws)
	if unchanged {
		if r.o.OnStart != nil {
			r.o.OnStart(info)
		}
		return r.finishUnchanged(ctx, proof)
	}
	return r.flow(ctx, info, proof, r.inputs)
}

// follow brings the workspace up to date with its package file and with variables. It returns the link, and the
// rebuilt package; either may be nil.
func (r *run) follow(ctx context.Context) (*record.Link, *Built, error) {
	if err := r.hold(ctx); err != nil {
		return nil, nil, err
	}
	if !r.state.Deployed {
		return nil, nil, fmt.Errorf("workspace %s: %w", r.ws, ErrNotDeployed)
	}
	link, err := r.w.states.links.link(ctx, r.ws, r.state)
	if err != nil {
		return nil, nil, err
	}
	if !r.o.FileNamed {
		if other, err := r.w.states.links.unfollowed(ctx, r.ws, r.state, link); err != nil || other != nil {
			return nil, nil, either(other, err)
		}
	}
	built, taken, err := r.w.deployer.follow(ctx, r.lock, r.state, link, r.durable, r.work)
	if err != nil {
		return nil, nil, err
	}
	if err := r.hold(ctx); err != nil {
		return nil, nil, err
	}
	if !taken {
		err = r.takeVariables(ctx)
	}
	return link, built, err
}

// lookBack closes the runs of dead processes, and reads what earlier runs have left for this one.
func (r *run) lookBack(ctx context.Context) error {
	err := atOnce(
		r.w.states,
		func() (err error) {
			if r.closed, err = r.w.closeDead(ctx, r.lock, r.state.CurrentRunID, r.o.Executor); err != nil {
				return err
			}
			r.latest, err = events.LookAhead(ctx, r.w.states.Records, r.ws, r.journal)
			return err
		},
		func() (err error) { r.generation, r.quiet, err = r.w.states.generation.Read(ctx); return err },
		func() (err error) { r.stored, err = r.w.proofs.stored(ctx, r.ws); return err },
	)
	if err == nil {
		r.state.CurrentRunID = r.current
	}
	return err
}

// describe begins the RunInfo: with what was built, or with the origin of the package.
func (r *run) describe(ctx context.Context, link *record.Link, built *Built) (info *RunInfo, err error) {
	info = &RunInfo{}
	if built != nil {
		info.Package, info.Warnings, info.Renamed, info.File = built.Package, built.Warnings, built.Renamed, built.Link.File
	} else if info.Elsewhere, err = r.w.states.links.deployedElsewhere(ctx, r.ws, r.state, link); err != nil {
		return nil, err
	} else if info.Elsewhere == nil {
		info.Warnings = leftOutOf(link)
	}
	if link != nil && info.Elsewhere == nil {
		r.git, r.edits.folder = gitOf(filepath.Dir(link.File)), filepath.Dir(link.File)
	}
	return info, nil
}

// gitOf is what git has checked out in a project; nil if that lies in no repository of git.
func gitOf(project string) *events.Git {
	head, err := git.Read(project)
	switch {
	case errors.Is(err, git.ErrNone):
		return nil
	case err != nil:
		return &events.Git{Unknown: err.Error()}
	}
	return &events.Git{Commit: head.Commit, Branch: head.Branch}
}

// prove reads the tree and its latest proof, which is nil if there is none. If the proof is of other inputs, the
// package gets the tasks of the present lists of items. It returns the hash of the tasks node.
func (r *run) prove(ctx context.Context, link *record.Link, info *RunInfo) (proof *provenRun, tasks string, err error) {
	inputs, tasks, err := r.w.states.readRoot(ctx, r.state.RootHash)
	if err != nil {
		return nil, "", fmt.Errorf("workspace %s: %w", r.ws, r.w.states.notRunnable(ctx, r.state, err))
	}
	r.inputs, r.tasks = inputs, tasks
	if r.folders, err = r.w.proofs.lookAtFolders(); err != nil {
		return nil, "", err
	}
	if proof, err = r.w.proofs.proof(ctx, r.ws, r.stored, r.outset); err != nil {
		return nil, "", err
	}
	if proof == nil || proof.Package != r.state.PackageHash || proof.Inputs != inputs {
		if inputs, tasks, err = r.regrow(ctx, link, info); err != nil {
			return nil, "", err
		}
	}
	if r.inputs, err = r.override(ctx, info, inputs); err != nil {
		return nil, "", err
	}
	if proof != nil {
		r.remember(proof)
	}
	r.shown = proof != nil && proof.Tasks == tasks
	return proof, tasks, nil
}

// begin prepares the run's record and log; nothing is written yet.
func (r *run) begin(ctx context.Context, inputs string, proof *provenRun) error {
	id, err := executions.NewID()
	if err != nil {
		return err
	}
	snapshot := ""
	if proof != nil && proof.Inputs == inputs {
		snapshot = proof.run.InputSnapshot
	}
	r.began = r.w.states.Now()
	r.rec = &record.Run{
		RunID: id, WorkspaceName: r.ws, PackageRef: r.state.PackageName + "@" + r.state.PackageVersion,
		StartedAt: r.began, State: record.RunRunning,
	}
	if err := r.snapInputs(ctx, inputs, snapshot); err != nil {
		return err
	}
	r.log = events.Create(r.w.states.Records, r.ws, id, r.w.states.Now)
	r.log.Tell(func(e events.Event) {
		if e.Execution != "" && (e.Type == events.TaskCompleted || e.Type == events.TaskFailed || e.Type == events.TaskDeferred) {
			r.o.Executor.Told(e.Execution)
		}
		if r.o.OnEvent != nil {
			e.Cursor = events.Cursor{Journal: r.place.Seq, Run: e.Run, Seq: e.Seq}.String()
			r.o.OnEvent(e)
		}
	})
	context.AfterFunc(r.lock.lasting, func() { r.log.Stop(context.Cause(r.lock.lasting)) })
	r.id.Store(&id)
	return nil
}

// remember spares the record of the proven run, until this run proves more. Then it is deletable in the version that was
// read, which saves reading that large record again.
func (r *run) remember(p *provenRun) {
	r.spared = p.RunID
	for i := range r.old {
		if o := &r.old[i]; o.id == p.RunID {
			o.version, o.goes = p.version, true
		}
	}
}

func (r *run) emit(e events.Event) {
	if r.git != nil && (e.Type == events.TaskStarted || e.Type == events.TaskClaimed) {
		r.edits.look()
	}
	r.log.Emit(e)
}

// edits are what was edited in the project since its commit. Only a run that executes something looks, beside its commands:
// a look at 20,000 files takes longer than a start that has nothing to do.
type edits struct {
	folder string
	once   sync.Once
	found  chan git.Edits
}

// longestLook is how long the end of a run waits for a look: a project may have millions of files on a slow disk.
const longestLook = time.Second

// look begins to look, the first time.
func (e *edits) look() {
	e.once.Do(func() {
		e.found = make(chan git.Edits, 1)
		go func() {
			found, _ := git.Modified(e.folder) // otherwise nothing is known
			e.found <- found
		}()
	})
}

// tell is a commit with what was found; nil if there is nothing to tell.
func (e *edits) tell(of *events.Git) *events.Git {
	e.once.Do(func() {}) // from now on nothing begins
	if e.found == nil {
		return nil
	}
	var found git.Edits
	select {
	case found = <-e.found:
		e.found <- found
	case <-time.After(longestLook): // it is not told
	}
	if found == (git.Edits{}) {
		return nil
	}
	told := *of
	told.Modified, told.Staged = found.Modified, found.Staged
	return &told
}

// recorded makes the journal name the run, before the run has events.
func (r *run) recorded(ctx context.Context) (err error) {
	r.place, err = events.RecordRunAt(ctx, r.w.states.Records, r.ws, r.rec.RunID, r.w.states.Now, r.latest)
	return err
}

// draftStarted makes the first event. Its time is the record's, so that both agree.
func (r *run) draftStarted() {
	set := r.set
	if r.o.From != "" {
		set = r.o.Given
	}
	limits := events.Limits{Cores: r.o.Concurrency, Memory: r.o.Memory, Resources: r.o.Capacities}
	if r.o.Outstanding > 0 {
		limits = events.Limits{}
	}
	e := r.log.Draft(events.Event{Type: events.RunStarted, Time: r.rec.StartedAt, Data: &events.Data{
		Package: r.rec.PackageRef, PackageHash: r.state.PackageHash, Git: r.git, Inputs: r.rec.InputSnapshot, Process: r.o.Process,
		Filter: r.o.Filter, Force: r.o.Force, Set: set, From: r.o.From, Warnings: r.warnings, After: r.state.CurrentRunID, AfterSeq: r.ended.Number(), AfterSum: r.ended.Sum, Grows: r.grows,
		Limits: &limits,
	}}, 0)
	r.first = &e
}

func (r *run) emitStarted() { r.emit(*r.first) }

// finishUnchanged ends a run that is proven to have nothing to do. It touches no task.
func (r *run) finishUnchanged(ctx context.Context, p *provenRun) (*RunResult, error) {
	if r.durable && !p.Durable {
		if err := r.w.states.Records.Sync(ctx); err != nil {
			return nil, err
		}
		p.Durable = true
	}
	n := int64(p.run.Tasks.Len())
	r.rec.Tasks = p.run.Tasks.AllCached()
	r.rec.Summary = record.Summary{Total: n, Completed: n, Cached: n}
	r.rec.State = record.RunCompleted
	r.snapOutputs(r.state.RootHash, r.inputs, r.tasks)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	ctx = r.lock.lasting // nothing is left to cancel, and a recorded run must be finished
	cached := []events.Event{{Type: events.TaskCached, Data: &events.Data{Tasks: int(n), As: p.RunID}}}
	if n <= events.Bulk {
		cached = cached[:0]
		for t := range p.run.Tasks.All() {
			cached = append(cached, events.Event{Type: events.TaskCached, Task: t.Task, Execution: t.ExecutionID, Data: &events.Data{As: p.RunID}})
		}
	}
	r.draftStarted()
	if err := r.write(ctx, 1+len(cached)); err != nil {
		return nil, err
	}
	err := atOnce(
		r.w.states,
		func() error { return r.recorded(ctx) },
		func() error { return r.name(ctx) },
	)
	if err != nil {
		return nil, err
	}
	r.emitStarted() // readers of its events look for the run's record
	for i := range cached {
		cached[i].Time = r.rec.CompletedAt // the end, which is recorded before this event
		r.emit(cached[i])
	}
	p.Proof.RunID, r.spared = r.rec.RunID, ""
	err = atOnce(
		r.w.states,
		func() error { return r.tellEnd(ctx) },
		func() error { return r.w.proofs.saveProof(ctx, r.ws, &p.Proof, &r.stored.version) },
	)
	return &RunResult{Run: r.rec}, err
}
