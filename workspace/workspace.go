// Package workspace keeps named trees of datasets, each with a package deployed in it,
// and runs their dataflow.
//
// A workspace's state names a package and a root node: {inputs, tasks}, below which
// every dataset has the package's name for it. The state is compared and swapped with
// the changed names merged, so that setting a dataset and a run's publishing never lose
// each other's writes, and readers take no lock.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/executions"
	"e3/internal/record"
	"e3/objectstore"
	"e3/refstore"
)

// Conditions that callers branch on.
var (
	ErrNotFound    = errors.New("not found")
	ErrExists      = errors.New("exists already")
	ErrNotDeployed = errors.New("no package is deployed")
)

// Records are the stores of a repository's records and streams.
type Records interface {
	refstore.Store
	refstore.Streams
	// PutSync is Put, durable when it returns.
	PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error)
	// Sync makes everything written before durable.
	Sync(ctx context.Context) error
}

// Local is a store of records on this machine.
type Local interface {
	refstore.Store
	// PutSync is Put, durable when it returns.
	PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error)
}

// Objects is an object store with a side on this machine.
type Objects interface {
	executions.LocalObjects
	// ShardTimes returns the modification time of each object folder, ns.
	ShardTimes() ([256]int64, error)
}

// Durability says what survives power loss.
type Durability int

// The settings of --durability.
const (
	Batch Durability = iota // what a finished run says
	Full                    // every execution when it is reported
	None                    // nothing is synced
)

// Stores are what workspaces are made of.
type Stores struct {
	Records Records
	Locks   refstore.Locker
	Objects Objects
	Local   Local // what never leaves this machine: links, proofs
	// Sessions make known what a run works from. nil: nobody collects garbage.
	Sessions refstore.Sessions
	Now      func() time.Time
	Holder   func() string // describes this process, as LockState.Holder
	Sweep    func(context.Context) error
}

// Workspaces are the workspaces and packages of a repository. All methods are safe for
// concurrent use, by any number of processes.
type Workspaces struct {
	Stores
	generation *executions.Generation
}

// New returns the workspaces in the given stores.
func New(s Stores) *Workspaces {
	return &Workspaces{Stores: s, generation: executions.NewGeneration(s.Records, s.Locks)}
}

// State is a workspace's state as it was read.
type State struct {
	record.WorkspaceState
	Deployed bool
	version  refstore.Version
}

func stateKey(name string) refstore.Key {
	return refstore.Key{Partition: "WORKSPACE", Sort: name}
}

// State reads a workspace.
func (w *Workspaces) State(ctx context.Context, name string) (*State, error) {
	rec, err := w.Records.Get(ctx, stateKey(name))
	if errors.Is(err, refstore.ErrNotFound) {
		return nil, w.unknown(ctx, name)
	}
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", name, err)
	}
	ws, err := record.DecodeWorkspaceState(rec.Value)
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", name, err)
	}
	s := &State{version: rec.Version, Deployed: ws != nil}
	if ws != nil {
		s.WorkspaceState = *ws
	}
	return s, nil
}

// UnknownError says that a name stands for nothing, and what might have been meant.
type UnknownError struct {
	What  string // workspace, task, …
	Name  string
	Known []string
}

func (e *UnknownError) Error() string { return fmt.Sprintf("there is no %s %q", e.What, e.Name) }

// Unwrap makes errors.Is(err, ErrNotFound) true.
func (e *UnknownError) Unwrap() error { return ErrNotFound }

func (w *Workspaces) unknown(ctx context.Context, name string) error {
	names, err := w.List(ctx)
	if err != nil {
		return err
	}
	return &UnknownError{What: "workspace", Name: name, Known: names}
}

// List returns the names of all workspaces in order.
func (w *Workspaces) List(ctx context.Context) ([]string, error) {
	var names []string
	for rec, err := range w.Records.List(ctx, refstore.Query{Partition: "WORKSPACE", KeysOnly: true}) {
		if err != nil {
			return nil, fmt.Errorf("list workspaces: %w", err)
		}
		names = append(names, rec.Key.Sort)
	}
	return names, nil
}

// Create makes an empty workspace; ErrExists if there is one of that name.
func (w *Workspaces) Create(ctx context.Context, name string) error {
	_, err := w.Records.Put(ctx, refstore.Record{Key: stateKey(name)})
	if errors.Is(err, refstore.ErrConflict) {
		return fmt.Errorf("workspace %s: %w", name, ErrExists)
	}
	return err
}

// Remove deletes a workspace with its run records and what this machine remembers of it.
// Executions and events stay.
func (w *Workspaces) Remove(ctx context.Context, name string) error {
	if _, err := w.State(ctx, name); err != nil {
		return err
	}
	lock, err := w.lock(ctx, name, record.Removal)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if _, err := w.State(ctx, name); err != nil {
		return err // somebody else was faster
	}
	ctx = context.WithoutCancel(ctx) // what is begun is brought to its end
	// What this machine remembers goes first: a crash may leave the workspace without it, but
	// never it for another workspace of that name.
	for _, key := range []refstore.Key{linkKey(name), proofKey(name), durationsKey(name)} {
		if err := forget(ctx, w.Local, key); err != nil {
			return err
		}
	}
	if err := forget(ctx, w.Records, cancelKey(name)); err != nil {
		return err
	}
	if err := forget(ctx, w.Records, stateKey(name)); err != nil {
		return fmt.Errorf("remove workspace %s: %w", name, err)
	}
	return w.deleteAllRuns(ctx, name)
}

// forget deletes a record if it is there.
func forget(ctx context.Context, s refstore.Store, key refstore.Key) error {
	for {
		rec, err := s.Get(ctx, key)
		if err == nil {
			err = s.Delete(ctx, key, rec.Version)
		}
		if errors.Is(err, refstore.ErrNotFound) {
			return nil
		}
		if err == nil || !errors.Is(err, refstore.ErrConflict) {
			return err
		}
	}
}

// overwrite puts a record whatever is there.
func overwrite(ctx context.Context, s refstore.Store, key refstore.Key, value []byte) error {
	for {
		rec, err := s.Get(ctx, key)
		if err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return err
		}
		_, err = s.Put(ctx, refstore.Record{Key: key, Value: value, Version: rec.Version})
		if err == nil || !errors.Is(err, refstore.ErrConflict) {
			return err
		}
	}
}

// update changes the state by compare-and-swap; change may be called again when somebody
// else was faster. durable makes the new state survive power loss.
func (w *Workspaces) update(ctx context.Context, name string, durable bool, change func(*State) error) (*State, error) {
	for {
		s, err := w.State(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := change(s); errors.Is(err, errStale) {
			continue
		} else if err != nil {
			return nil, err
		}
		put := w.Records.Put
		if durable {
			put = w.Records.PutSync
		}
		s.version, err = put(ctx, refstore.Record{Key: stateKey(name), Value: s.WorkspaceState.Encode(), Version: s.version})
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, refstore.ErrConflict) {
			return nil, fmt.Errorf("workspace %s: %w", name, err)
		}
	}
}

// tree is a workspace's datasets: the two nodes below the root, or the one that is asked for.
type tree struct {
	inputs, tasks         record.Node
	inputsHash, tasksHash string
}

// maxNode bounds a node object that is read into memory.
const maxNode = 1 << 30

// readRoot returns the hashes of the nodes below a root.
func (w *Workspaces) readRoot(ctx context.Context, root string) (inputs, tasks string, err error) {
	node, err := w.readNode(ctx, root)
	if err != nil {
		return "", "", err
	}
	in, _ := node.Get("inputs")
	out, _ := node.Get("tasks")
	return in.Hash, out.Hash, nil
}

// parts says which nodes of a tree are wanted: one of 10,000 tasks is a megabyte.
type parts int

const (
	inputsPart parts = 1 << iota
	tasksPart
	bothParts = inputsPart | tasksPart
)

func (w *Workspaces) readTree(ctx context.Context, root string, want parts) (*tree, error) {
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
func (w *Workspaces) readNode(ctx context.Context, hash string) (record.Node, error) {
	if hash == "" {
		return nil, nil
	}
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return nil, err
	}
	data, err := objectstore.ReadAll(ctx, w.Objects, h, maxNode)
	if err != nil {
		return nil, fmt.Errorf("workspace node: %w", err)
	}
	return record.DecodeNode(data)
}

// writeTree stores the nodes that were read and returns the new root's hash.
func (w *Workspaces) writeTree(ctx context.Context, t *tree, have parts) (string, error) {
	var err error
	if have&inputsPart != 0 {
		if t.inputsHash, err = w.writeNode(ctx, t.inputs); err != nil {
			return "", err
		}
	}
	if have&tasksPart != 0 {
		if t.tasksHash, err = w.writeNode(ctx, t.tasks); err != nil {
			return "", err
		}
	}
	return w.writeRoot(ctx, t.inputsHash, t.tasksHash)
}

func (w *Workspaces) writeNode(ctx context.Context, n record.Node) (string, error) {
	h, err := objectstore.PutBytes(ctx, w.Objects, n.Encode())
	if err != nil {
		return "", fmt.Errorf("store workspace node: %w", err)
	}
	return h.String(), nil
}

// writeRoot stores a root node; without tasks it is the snapshot of the inputs.
func (w *Workspaces) writeRoot(ctx context.Context, inputs, tasks string) (string, error) {
	root := record.Node{{Name: "inputs", Leaf: record.Leaf{Kind: record.LeafNode, Hash: inputs}}}
	if tasks != "" {
		root = append(root, record.NodeEntry{Name: "tasks", Leaf: record.Leaf{Kind: record.LeafNode, Hash: tasks}})
	}
	return w.writeNode(ctx, root)
}

// edit changes datasets of a workspace and leaves all others as they are, whoever writes
// beside it. fn gets the wanted parts of the tree of now and may be called again.
func (w *Workspaces) edit(ctx context.Context, name string, durable bool, want parts, fn func(*State, *tree) error) (*State, error) {
	return w.update(ctx, name, durable, func(s *State) error {
		if !s.Deployed {
			return fmt.Errorf("workspace %s: %w", name, ErrNotDeployed)
		}
		t, err := w.treeOf(ctx, name, s, want)
		if err != nil {
			return fmt.Errorf("workspace %s: %w", name, w.notRunnable(ctx, s, err))
		}
		if err := fn(s, t); err != nil {
			return err
		}
		root, err := w.writeTree(ctx, t, want)
		if err != nil {
			return err
		}
		if durable {
			// What the state names must not be less durable than the state.
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
