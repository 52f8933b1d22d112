// Package workspace keeps named trees of datasets, each with a deployed package, and runs their dataflow.
//
// A workspace's state names a package and a root node: {inputs, tasks}, below which every dataset has its name in the
// package. The state changes by compare-and-swap, and each writer merges only the names that it changes. So the writes
// of "e3 set" and of a run never overwrite each other, and readers take no lock.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/host/tools"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/packages"
	"e3/objectstore"
	"e3/refstore"
)

// Errors that callers branch on.
var (
	ErrNotFound    = human.ErrNotFound
	ErrExists      = packages.ErrExists
	ErrNotDeployed = packages.ErrNotDeployed
	// ErrVariable is wrapped if an input to set or unset holds an environment variable.
	ErrVariable = errors.New("each start takes it from its own environment")
	// ErrTool is wrapped if an input to set or unset holds the parts of a program.
	ErrTool = errors.New("each start reads it on its machine")
	// ErrPart is wrapped if an input to set or unset is a file with some values of a file of parameters.
	ErrPart = errors.New("set the values themselves")
	// ErrEnvironment is wrapped if an input to set or unset holds the files of an environment.
	ErrEnvironment = errors.New("edit the files from which it is made")
)

// Types of other packages that callers need.
type (
	PackageRef       = packages.Ref
	ListedPackage    = packages.Registered
	PartError        = packages.PartError
	NotRunnableError = packages.NotRunnableError
	AmbiguousError   = packages.AmbiguousError
	UnknownError     = human.UnknownError
)

// Records are the stores of a repository's records and streams.
type Records interface {
	refstore.Durable
	refstore.Streams
	// Sync makes everything written before durable.
	Sync(ctx context.Context) error
}

// Local is a store of records on this machine.
type Local = refstore.Durable

// Objects is an object store that has folders on this machine.
type Objects interface {
	executions.LocalObjects
	// ShardTimes returns the modification time of each object folder, in nanoseconds.
	ShardTimes() ([256]int64, error)
}

// Durability says which writes survive a power failure.
type Durability int

// The settings of --durability.
const (
	Batch Durability = iota // a finished run
	Full                    // every execution once it is reported
	None                    // nothing is synced
)

// Stores are the stores and callbacks that workspaces need.
type Stores struct {
	Records Records
	Locks   refstore.Locker
	Objects Objects
	Local   Local // data that never leaves this machine, such as links
	// Derived holds data that can be recomputed from the repository: proofs and durations of tasks. Machines that
	// share the records also share Derived; each entry has the id of its deployment. nil means Local, without ids.
	Derived Local
	// Lookups is how many tasks are looked up at a time. 0: one for each processor, for records on this machine.
	Lookups int
	// Waiting is called once for each lock, with the time after which the holder is known to be alive or dead. It may
	// be nil.
	Waiting func(*BusyError, time.Duration)
	// Sessions announce the objects that a run works from. nil: no garbage is collected.
	Sessions refstore.Sessions
	// Withdraw withdraws the queued jobs of a workspace, or of one of its runs, that no worker has begun, and returns
	// their number. After listing them it calls dead, if not nil, to confirm that the runs are dead; an error of dead
	// stops it. nil: nothing is queued.
	Withdraw func(ctx context.Context, ws, run string, dead func(context.Context) error) (int, error)
	// Demands says which signatures an execution needs to be an answer. nil: none.
	Demands executions.Demands
	// Signer returns the key of this process, which signs proofs if executions must be signed. nil: there is none.
	Signer func() (*signature.Key, error)
	// Attempts returns the executions that workers have begun for a run, from their jobs, and the jobs that wait for a
	// worker. nil: there are no workers.
	Attempts func(ctx context.Context, ws, run string) ([]JobAttempt, error)
	// Queued lists the tasks of a run that wait for a worker. nil: there are no workers.
	Queued func(ctx context.Context, ws, run string) ([]Queued, error)
	// Folder is the repository's folder, without symbolic links; "" if machines share the repository.
	Folder string
	// From is the command's current folder; "" if it has none.
	From    string
	Remote  Remote                               // nil: no input comes from a server
	Getenv  func(string) (string, bool)          // reads variables of key_env; nil: from the environment of this process
	Tools   *tools.Finder                        // finds programs of this machine; nil: no package names any
	Rooms   func(context.Context) (Rooms, error) // the rooms given outside of a package file; nil: none
	Folders func(ws string) []Folder             // kept folders of failed commands on this machine; nil: none
	Images  Images                               // nil: no package names an image
	Now     func() time.Time
	Holder  func() string // describes this process, as LockState.Holder
	User    func() string // the deploying user, as user@host; nil if unknown
	Sweep   func(context.Context) error
	Warn    func(error) // receives errors that stop nothing and are retried; may be nil
}

// Workspaces are the workspaces of a repository and the operations on them. All methods of its parts are safe for
// concurrent use, by any number of processes.
type Workspaces struct {
	*States
	Datasets  *Datasets
	Approvals *Approvals
	Deployer  *Deployer
	Planner   *Planner
	Runner    *Runner
	Cleaner   *Cleaner
	Repairer  *Repairer
}

// New returns the workspaces in the given stores.
func New(s Stores) *Workspaces {
	shared := s.Derived != nil
	if !shared {
		s.Derived = s.Local
	}
	if s.Getenv == nil {
		s.Getenv = os.LookupEnv
	}
	states := &States{Stores: s, links: &links{s, shared}, generation: executions.NewGeneration(s.Records, s.Locks)}
	return assemble(states.withObjects(s.Objects))
}

// assemble makes the parts, each from the parts before it.
func assemble(states *States) *Workspaces {
	w := &Workspaces{States: states, Datasets: &Datasets{states}}
	proofs := &proofs{states}
	w.Approvals = newApprovals(states)
	w.Cleaner = &Cleaner{states, w.Approvals}
	w.Deployer = &Deployer{states, w.Datasets}
	w.Planner = &Planner{states: states, proofs: proofs, deployer: w.Deployer, approvals: w.Approvals}
	w.Repairer = &Repairer{states, w.Deployer}
	w.Runner = &Runner{states, proofs, w.Deployer, w.Approvals, w.Cleaner, w.Repairer}
	return w
}

// States reads and swaps the states of workspaces and the trees below them, and holds their locks.
type States struct {
	Stores
	Packages   *packages.Registry
	Runs       *runview.Runs
	links      *links
	generation *executions.Generation
}

// withObjects returns the same states with another store of objects.
func (w *States) withObjects(objects Objects) *States {
	o := *w
	o.Objects = objects
	o.Packages = &packages.Registry{Records: w.Records, Locks: w.Locks, Objects: objects}
	o.Runs = &runview.Runs{Records: w.Records, Objects: objects, Packages: o.Packages, Workspaces: asked{&o}, Lookups: w.Lookups, Now: w.Now}
	return &o
}

// executions returns the executions that can answer a start.
func (w *States) executions() *executions.Store {
	return executions.NewStore(w.Records, w.Objects).Requiring(w.Demands)
}

// State is a workspace's state in the version that was read.
type State struct {
	record.WorkspaceState
	Deployed bool
	version  refstore.Version

	// deployment is the origin of the deployed package; nil if no machines share the workspace, or if the origin is
	// unknown. It is replaced, never modified. stored is the deployment in the record, unreadable the reason why
	// there is none.
	deployment, stored *record.WorkspaceDeployment
	unreadable         error
}

// Package is the deployed package.
func (s *State) Package() PackageRef {
	return PackageRef{Name: s.PackageName, Version: s.PackageVersion, Hash: s.PackageHash}
}

func stateKey(name string) refstore.Key {
	return refstore.Key{Partition: "WORKSPACE", Sort: name}
}

// State reads a workspace.
func (w *States) State(ctx context.Context, name string) (*State, error) {
	rec, err := w.readState(ctx, name)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil, w.unknown(ctx, name)
	}
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", name, err)
	}
	return decodeState(name, rec)
}

func decodeState(name string, rec refstore.Record) (*State, error) {
	ws, err := record.DecodeWorkspaceState(rec.Value)
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", name, err)
	}
	s := &State{version: rec.Version, Deployed: ws != nil}
	if ws != nil {
		s.WorkspaceState = *ws
	}
	s.decodeDeployment(name, rec)
	return s, nil
}

func (s *State) copied() *State {
	c := *s
	return &c
}

func (w *States) unknown(ctx context.Context, name string) error {
	names, err := w.List(ctx)
	if err != nil {
		return err
	}
	return &UnknownError{What: "workspace", Name: name, Known: names}
}

// List returns the names of all workspaces in order.
func (w *States) List(ctx context.Context) ([]string, error) {
	var names []string
	for rec, err := range w.Records.List(ctx, refstore.Query{Partition: "WORKSPACE", KeysOnly: true}) {
		if err != nil {
			return nil, fmt.Errorf("list workspaces: %w", err)
		}
		names = append(names, rec.Key.Sort)
	}
	return names, nil
}

// Create makes an empty workspace; ErrExists if there is one of that name. If a response was lost, the existing
// workspace may be this call's own.
func (w *States) Create(ctx context.Context, name string) error {
	_, err := w.Records.Put(ctx, refstore.Record{Key: stateKey(name)})
	if errors.Is(err, refstore.ErrConflict) || errors.Is(err, refstore.ErrInDoubt) {
		return fmt.Errorf("workspace %s: %w", name, ErrExists)
	}
	return err
}

// Remove deletes a workspace with its run records and this machine's records of it. Executions and events stay.
func (w *Cleaner) Remove(ctx context.Context, name string) error {
	ctx, lock, err := w.states.lockExisting(ctx, name, record.Removal)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if _, err := lock.read(ctx); err != nil {
		return lock.explain(ctx, err) // another process has removed it
	}
	return lock.explain(ctx, w.remove(lock.lasting, lock)) // a removal that has begun is completed
}

func (w *Cleaner) remove(ctx context.Context, lock *hold) error {
	confirm := func(ctx context.Context) error { return w.states.confirm(ctx, lock.ws) }
	if _, err := w.states.withdrawLeft(ctx, lock.ws, "", confirm); err != nil {
		return err
	}
	// Links, proofs and decisions are removed first: a crash may leave the workspace without them, but a later
	// workspace of the same name never inherits them.
	if err := w.approvals.blocks.Remove(ctx, lock.ws); err != nil {
		return err
	}
	if err := w.states.forgetDerived(ctx, lock.ws); err != nil {
		return err
	}
	if err := refstore.Forget(ctx, w.states.Records, w.states.Locks, cancelKey(lock.ws)); err != nil {
		return err
	}
	if err := lock.remove(ctx); err != nil {
		return fmt.Errorf("remove workspace %s: %w", lock.ws, err)
	}
	return w.deleteAllRuns(ctx, lock.ws)
}

// forgetDerived removes the records about a workspace beside its state.
func (w *States) forgetDerived(ctx context.Context, name string) error {
	if err := w.links.forgetLink(ctx, name); err != nil {
		return err
	}
	if err := w.links.forgetResults(ctx, name); err != nil {
		return err
	}
	if err := refstore.Forget(ctx, w.Derived, w.Locks, proofKey(name)); err != nil {
		return err
	}
	return refstore.Forget(ctx, w.Derived, w.Locks, durationsKey(name))
}

// overwrite puts a record unconditionally. It is for data that can be recomputed: if a process that lost the lease
// overwrites its successor's better data, the next run only needs more lookups. last is the version that the caller has
// read, which saves a read; nil: none.
func (w *States) overwrite(ctx context.Context, s refstore.Store, key refstore.Key, value []byte, last *refstore.Version) error {
	for {
		if last == nil {
			rec, err := s.Get(ctx, key)
			if err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrDamaged) {
				return err
			}
			last = &rec.Version
		}
		_, err := s.Put(ctx, refstore.Record{Key: key, Value: value, Version: *last})
		if err == nil || !errors.Is(err, refstore.ErrConflict) {
			return err
		}
		if err := refstore.Confirm(ctx, w.Locks); err != nil {
			return err
		}
		last = nil
	}
}

// update changes the state by compare-and-swap; change may be called again after a conflict. lock is the caller's, nil
// if it has none. With durable, the new state survives a power failure.
func (w *States) update(ctx context.Context, lock *hold, name string, durable bool, change func(*State) error) (*State, error) {
	for s, err := w.begin(ctx, lock, name); ; s, err = w.reread(ctx, lock, name) {
		if err != nil {
			return nil, err
		}
		if err := change(s); errors.Is(err, errStale) {
			continue
		} else if err != nil {
			return nil, err
		}
		if err := w.checkLease(name); err != nil {
			return nil, err
		}
		put := w.Records.Put
		if durable {
			put = w.Records.PutSync
		}
		s.version, err = put(ctx, refstore.Record{Key: stateKey(name), Value: s.WorkspaceState.Encode(), Fields: s.fields(), Version: s.version})
		if err == nil {
			s.stored = s.deployment
			if lock != nil {
				lock.known = s.copied()
			}
			return s, nil
		}
		// A change under the lock can be repeated. A value that was set without a lock could replace a later one.
		again := errors.Is(err, refstore.ErrConflict) || lock != nil && errors.Is(err, refstore.ErrInDoubt)
		if !again {
			return nil, fmt.Errorf("workspace %s: %w", name, err)
		}
	}
}

// tree is a workspace's datasets: the two nodes below the root, or only the requested one.
type tree struct {
	inputs, tasks         record.Node
	inputsHash, tasksHash string
	rebuilt               bool // made anew, since the outputs were lost
}

// readRoot returns the hashes of the nodes below a root.
func (w *States) readRoot(ctx context.Context, root string) (inputs, tasks string, err error) {
	node, err := w.readNode(ctx, root)
	if err != nil {
		return "", "", err
	}
	in, _ := node.Get("inputs")
	out, _ := node.Get("tasks")
	return in.Hash, out.Hash, nil
}

// parts says which nodes of a tree to read: a node of 10,000 tasks is a megabyte.
type parts int

const (
	inputsPart parts = 1 << iota
	tasksPart
	bothParts = inputsPart | tasksPart
)

func (w *States) readTree(ctx context.Context, root string, want parts) (*tree, error) {
	t := &tree{}
	var err error
	if t.inputsHash, t.tasksHash, err = w.readRoot(ctx, root); err != nil {
		return nil, err
	}
	if want&inputsPart != 0 {
		if t.inputs, err = w.readNode(ctx, t.inputsHash); err != nil {
			return nil, err
		}
	}
	if want&tasksPart != 0 {
		t.tasks, err = w.readNode(ctx, t.tasksHash)
	}
	return t, err
}

// readNode reads a node; "" is an empty one.
func (w *States) readNode(ctx context.Context, hash string) (record.Node, error) {
	if hash == "" {
		return nil, nil
	}
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return nil, err
	}
	data, err := objectstore.ReadAll(ctx, w.Objects, h, record.MaxNode)
	if err != nil {
		return nil, packages.Part("workspace node", err)
	}
	return record.DecodeNode(data)
}

// writeTree stores the given parts and returns the new root's hash.
func (w *States) writeTree(ctx context.Context, t *tree, have parts) (string, error) {
	var writes []func() error // if the writes are made in turn, the root comes last
	add := func(n record.Node) string {
		text := n.Encode()
		writes = append(writes, func() error {
			_, err := w.writeNode(ctx, text)
			return err
		})
		return objectstore.Sum(text).String()
	}
	if have&inputsPart != 0 {
		t.inputsHash = add(t.inputs)
	}
	if have&tasksPart != 0 {
		t.tasksHash = add(t.tasks)
	}
	root := add(rootNode(t.inputsHash, t.tasksHash))
	return root, atOnce(w, writes...)
}

func (w *States) writeNode(ctx context.Context, text []byte) (string, error) {
	h, err := objectstore.PutBytes(ctx, w.Objects, text)
	if err != nil {
		return "", fmt.Errorf("store workspace node: %w", err)
	}
	return h.String(), nil
}

// writeRoot stores a root node; without tasks it is an input snapshot.
func (w *States) writeRoot(ctx context.Context, inputs, tasks string) (string, error) {
	return w.writeNode(ctx, rootNode(inputs, tasks).Encode())
}

func rootNode(inputs, tasks string) record.Node {
	root := record.Node{{Name: "inputs", Leaf: record.Leaf{Kind: record.LeafNode, Hash: inputs}}}
	if tasks != "" {
		root = append(root, record.NodeEntry{Name: "tasks", Leaf: record.Leaf{Kind: record.LeafNode, Hash: tasks}})
	}
	return root
}

// edit changes datasets of a workspace and leaves all others as they are, even with concurrent writers. fn gets the
// wanted parts of the present tree and may be called again.
func (w *States) edit(ctx context.Context, lock *hold, name string, durable bool, want parts, fn func(*State, *tree) error) (*State, error) {
	return w.update(ctx, lock, name, durable, func(s *State) error {
		if !s.Deployed {
			return fmt.Errorf("workspace %s: %w", name, ErrNotDeployed)
		}
		t, err := w.treeOf(ctx, name, s, want)
		have := want
		if part := new(PartError); errors.As(err, &part) && !errors.Is(err, errStale) {
			t, err = w.treeAnew(ctx, name, s, want, err)
			have = bothParts
		}
		if err != nil {
			return fmt.Errorf("workspace %s: %w", name, w.notRunnable(ctx, s, err))
		}
		if err := fn(s, t); err != nil {
			return err
		}
		root, err := w.writeTree(ctx, t, have)
		if err != nil {
			return err
		}
		if durable {
			// The objects that the state names must be as durable as the state.
			if err := w.Records.Sync(ctx); err != nil {
				return err
			}
		}
		if root != s.RootHash {
			s.RootHash, s.RootUpdatedAt = root, w.Now()
		}
		return nil
	})
}
