package reach

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
)

// Executions is the part of the executions register that roots need.
type Executions interface {
	Tasks(ctx context.Context) iter.Seq2[objectstore.Hash, error]
	Inputs(ctx context.Context, task objectstore.Hash) iter.Seq2[objectstore.Hash, error]
	Statuses(ctx context.Context, k executions.Key) iter.Seq2[*executions.Execution, error]
}

// Stores are the stores from which the roots of a repository are read.
type Stores struct {
	Records    executions.Records
	Objects    objectstore.Store
	Executions Executions
	Jobs       Jobs
	Workers    int // tasks, and keys of tasks, that are read at a time; 0: a number that suits the store
}

// A Sink takes roots, from several goroutines at a time. An error from it ends the enumeration and is returned.
type Sink interface {
	Root(Root) error
	// RecordFault says that a record cannot be read; its roots are not known. A store that cannot be read ends the
	// enumeration instead.
	RecordFault(*Fault) error
}

// Roots enumerates all roots: References, Tombstones since a moment, and the objects that sessions protect. A
// collector must read the three in this order, and list the sessions again before it reads the third (doc/design.md
// §13).
func (s *Stores) Roots(ctx context.Context, since time.Time, sessions []refstore.SessionInfo, sink Sink) error {
	if err := s.References(ctx, sink); err != nil {
		return err
	}
	if err := s.Tombstones(ctx, func(string) time.Time { return since }, sink); err != nil {
		return err
	}
	return Protected(sessions, sink)
}

// References enumerates the recorded roots: unfinished jobs, executions, runs and their events, pins, packages,
// workspaces.
func (s *Stores) References(ctx context.Context, sink Sink) error {
	// Jobs come first: when one finishes, its roots pass to its execution. Executions come next: their task objects
	// are read once for the kinds of their outputs, and not again for the packages.
	return all(ctx, sink, s.JobRoots, s.ExecutionRoots, s.OtherReferences)
}

// OtherReferences are the References that follow jobs and executions. Events come after the records of runs: a run's record may
// go while its events stay.
func (s *Stores) OtherReferences(ctx context.Context, sink Sink) error {
	return all(ctx, sink, s.RunRoots, s.EventRoots, s.PinRoots, s.PackageRoots, s.WorkspaceRoots)
}

func all(ctx context.Context, sink Sink, enumerate ...func(context.Context, Sink) error) error {
	for _, roots := range enumerate {
		if err := roots(ctx, sink); err != nil {
			return err
		}
	}
	return nil
}

// PackageRoots enumerates the registered packages.
func (s *Stores) PackageRoots(ctx context.Context, sink Sink) error {
	return s.list(ctx, "PACKAGE", func(rec refstore.Record, err error) error {
		owner := Owner{Kind: APackage, Name: rec.Key.Sort}
		var h objectstore.Hash
		if err == nil {
			h, err = objectstore.ParseHash(strings.TrimSuffix(string(rec.Value), "\n"))
		}
		if err != nil {
			return sink.RecordFault(recordFault(owner, rec.Key, err))
		}
		return sink.Root(Root{Ref: Ref{Package, h}, Owner: owner})
	})
}

// WorkspaceRoots enumerates the packages and trees of the workspaces.
func (s *Stores) WorkspaceRoots(ctx context.Context, sink Sink) error {
	return s.list(ctx, "WORKSPACE", func(rec refstore.Record, err error) error {
		owner := Owner{Kind: AWorkspace, Name: rec.Key.Sort}
		var state *record.WorkspaceState
		if err == nil {
			state, err = record.DecodeWorkspaceState(rec.Value)
		}
		if err != nil {
			return sink.RecordFault(recordFault(owner, rec.Key, err))
		}
		if state == nil {
			return nil
		}
		for _, r := range []struct {
			kind       Kind
			hash, role string
		}{{Package, state.PackageHash, "package"}, {Node, state.RootHash, "tree"}} {
			h, err := objectstore.ParseHash(r.hash)
			if err != nil {
				return sink.RecordFault(recordFault(owner, rec.Key, fmt.Errorf("%s: %w", r.role, err)))
			}
			owner.Role = r.role
			if err := sink.Root(Root{Ref: Ref{r.kind, h}, Owner: owner}); err != nil {
				return err
			}
		}
		return nil
	})
}

// RunRoots enumerates the nodes of the runs' snapshots, also of removed workspaces. They may be missing.
func (s *Stores) RunRoots(ctx context.Context, sink Sink) error {
	for ws, err := range s.Records.List(ctx, refstore.Query{Partition: "RUNS", KeysOnly: true}) {
		if err != nil {
			return err
		}
		err := s.list(ctx, "DATAFLOW/"+ws.Key.Sort, func(rec refstore.Record, err error) error {
			owner := Owner{Kind: ARun, Name: ws.Key.Sort, ID: rec.Key.Sort}
			var run *record.Run
			if err == nil {
				run, err = record.DecodeRun(rec.Value)
			}
			if err != nil {
				return sink.RecordFault(recordFault(owner, rec.Key, err))
			}
			if err := snapshotRoot(sink, owner, "inputs", run.InputSnapshot); err != nil {
				return err
			}
			return snapshotRoot(sink, owner, "outputs", run.OutputSnapshot)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// PinRoots enumerates the tasks of pinned executions. The execution itself keeps the rest.
func (s *Stores) PinRoots(ctx context.Context, sink Sink) error {
	return s.list(ctx, "PIN", func(rec refstore.Record, err error) error {
		owner := Owner{Kind: APin, ID: rec.Key.Sort, Role: "task"}
		var pin *record.Pin
		if err == nil {
			pin, err = record.DecodePin(rec.Value)
		}
		var h objectstore.Hash
		if err == nil {
			h, err = objectstore.ParseHash(pin.Task)
		}
		if err != nil {
			return sink.RecordFault(recordFault(owner, rec.Key, err))
		}
		return sink.Root(Root{Ref: Ref{Task, h}, Weak: true, Owner: owner})
	})
}

// Tombstones enumerates the objects of executions that were pruned at a moment or later: a session at work then may
// have found them. The moment is by the clock of the pruning process, which is given as user@host. Tombstones are
// kept to the millisecond.
func (s *Stores) Tombstones(ctx context.Context, since func(by string) time.Time, sink Sink) error {
	return s.list(ctx, "TOMBSTONE", func(rec refstore.Record, err error) error {
		owner := Owner{Kind: ATombstone}
		var task objectstore.Hash
		if err == nil {
			task, err = objectstore.ParseHash(rec.Key.Sort)
		}
		var stones record.Tombstones
		if err == nil {
			stones, err = record.DecodeTombstones(rec.Value)
		}
		if err != nil {
			return sink.RecordFault(recordFault(owner, rec.Key, err))
		}
		t := s.TaskRoots(task, sink)
		for i := range stones {
			stone := &stones[i]
			if stone.PrunedAt.Before(since(stone.By).Truncate(time.Millisecond)) {
				continue
			}
			inputs, err := objectstore.ParseHash(stone.InputsHash)
			if err != nil {
				return sink.RecordFault(recordFault(owner, rec.Key, err))
			}
			owner.ID, owner.Key = stone.ExecutionID, executions.Key{Task: task, Inputs: inputs}
			if err := t.read(ctx, Root{Weak: true, Owner: owner}); err != nil {
				return err
			}
			if stone.OutputHash == "" {
				continue
			}
			output, err := objectstore.ParseHash(stone.OutputHash)
			if err != nil {
				return sink.RecordFault(recordFault(owner, rec.Key, err))
			}
			owner.Role = "output"
			if err := sink.Root(Root{Ref: Ref{t.shape.Output, output}, Weak: true, Owner: owner}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Protected enumerates the objects that sessions protect. A name that this version cannot read is an error, since it
// may mean any object.
func Protected(sessions []refstore.SessionInfo, sink Sink) error {
	for _, session := range sessions {
		owner := Owner{Kind: ASession, Since: session.Began}
		for _, name := range session.Protected {
			ref, err := ParseRef(name)
			if err != nil {
				return fmt.Errorf("%s: %w", owner, err)
			}
			// A protected object may have been missing from the start; its session reports that.
			if err := sink.Root(Root{Ref: ref, Weak: true, Owner: owner}); err != nil {
				return err
			}
		}
	}
	return nil
}

// list calls f for every record of a partition, with an error if the record is damaged.
func (s *Stores) list(ctx context.Context, partition string, f func(refstore.Record, error) error) error {
	for rec, err := range s.Records.List(ctx, refstore.Query{Partition: partition}) {
		if err == nil || errors.Is(err, refstore.ErrDamaged) {
			err = f(rec, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func recordFault(owner Owner, key refstore.Key, err error) *Fault {
	return &Fault{Owner: owner, Err: &RecordError{Record: key.String(), Err: err}}
}
