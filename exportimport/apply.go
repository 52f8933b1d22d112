package exportimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/internal/backoff"
	"e3/internal/events"
	"e3/internal/format/eastref"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// apply writes the objects that the zip's records lead to and, once all objects are stored, the records.
func (m *importer) apply(ctx context.Context) error {
	// Objects of an import that lost power may be incomplete. They must go first, because existing objects are
	// recognized by their size alone.
	if err := m.repo.Workspaces.Sweep(ctx); err != nil {
		return fmt.Errorf("clean up after dead processes: %w", err)
	}
	if _, err := m.repo.Records.SessionBegan(ctx); err != nil {
		return err
	}
	if err := m.closure(ctx); err != nil {
		return err
	}
	if err := m.takeObjects(ctx); err != nil {
		return err
	}
	if m.renamedPackage != nil {
		if _, err := objectstore.PutBytes(ctx, m.repo.Objects, m.renamedPackage); err != nil {
			return err
		}
	}
	if err := m.repo.Records.Sync(ctx); err != nil {
		return err
	}
	if err := m.executions(ctx); err != nil {
		return err
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if m.run != nil {
		if err := m.importRun(ctx); err != nil {
			return fmt.Errorf("import run %s: %w", m.run.RunID, err)
		}
	}
	if m.foreign {
		err = m.repo.Records.Sync(ctx)
	} else {
		err = m.repo.Workspaces.Packages.Add(ctx, m.res.Package) // syncs what it refers to
	}
	if err != nil {
		return err
	}
	if m.opts.NewWorkspace && !m.exists {
		return m.newWorkspace(ctx)
	}
	return nil
}

// executions imports the executions, several at a time.
func (m *importer) executions(ctx context.Context) error {
	if m.res.Executions == 0 {
		return nil
	}
	end, err := m.repo.Curator.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(2, runtime.GOMAXPROCS(0), m.repo.Workspaces.Lookups))
	var mu sync.Mutex
	err = m.eachExecution(gctx, func(in *incoming) error {
		g.Go(func() error {
			out, err := m.repo.Curator.Import(gctx, &in.Incoming)
			if err != nil {
				return err
			}
			retired, err := m.retiredThere(gctx, in, out)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			m.settle(in, out, retired)
			return nil
		})
		return nil
	})
	if first := g.Wait(); first != nil { // err only says that the group was cancelled
		return first
	}
	return err
}

// settle counts the outcome of an execution.
func (m *importer) settle(in *incoming, out executions.Outcome, retired *record.Rejection) {
	m.res.Outcomes[out]++
	if retired != nil {
		m.note("execution %s was rejected by %s where it comes from, and counts here: %q; retire it with: e3 reject <repo> %[1]s",
			in.id, shorten(retired.By), shorten(retired.Reason))
	}
}

// retiredThere returns the rejection, from the zip, of an execution that is skipped and not rejected here.
func (m *importer) retiredThere(ctx context.Context, in *incoming, out executions.Outcome) (*record.Rejection, error) {
	if out != executions.SkippedSuccess || in.Rejection == nil {
		return nil, nil
	}
	there, err := record.DecodeRejection(in.Rejection)
	if err != nil || !there.Rejected {
		return nil, err
	}
	here, err := m.repo.Executions.Get(ctx, in.Key, in.id)
	if errors.Is(err, executions.ErrNotFound) || err == nil && here.Rejected() {
		return nil, nil
	}
	return there, err
}

// lockName is the lock under which an import writes the records that exist once per run or workspace.
const lockName = "import"

// patience is how long a wait for another import lasts before it is told.
const patience = time.Second

func (m *importer) lock(ctx context.Context) (unlock func(), err error) {
	// If locks are leases, repeated tries also detect a dead holder.
	nap, most := refstore.Pace(m.repo.Locks)
	told := m.repo.Workspaces.Warn == nil
	for began := time.Now(); ; nap = min(2*nap, most) {
		state := record.LockState{Operation: record.Deployment, Holder: m.repo.Workspaces.Holder(), AcquiredAt: m.repo.Now()}
		lock, err := m.repo.Locks.TryLock(ctx, lockName, refstore.Exclusive, state.Encode())
		var locked *refstore.LockedError
		if err == nil {
			return func() { lock.Unlock() }, nil
		}
		if !errors.As(err, &locked) {
			return nil, err
		}
		if !told && time.Since(began) >= patience {
			told = true
			by := "another process"
			if s, err := record.DecodeLockState(locked.Holder); err == nil {
				by = human.Line(workspace.HolderWords(s.Holder))
			}
			m.repo.Workspaces.Warn(fmt.Errorf("waiting for %s, which imports; Ctrl-C ends that", by))
		}
		if err := backoff.Wait(ctx, nap); err != nil {
			return nil, err
		}
	}
}

// importRun writes the events of the run and then its record, so that a reader of the run finds them. A run that was
// made in this repository stays as it is.
func (m *importer) importRun(ctx context.Context) error {
	run := *m.run
	run.WorkspaceName = m.runWorkspace()
	key := runview.Key(run.WorkspaceName, run.RunID)
	here, err := m.repo.Records.Get(ctx, key, runview.FieldProvenance, workspace.FieldEvents)
	switch {
	case errors.Is(err, refstore.ErrNotFound), errors.Is(err, refstore.ErrDamaged):
		m.res.RunAdded = true
	case err != nil:
		return err
	default:
		steps, imported := here.Field(runview.FieldProvenance)
		m.res.RunAdded = torn(here.Value, steps, imported)
		if !m.res.RunAdded && !imported {
			return nil
		}
	}
	fields := []refstore.Field{{Name: runview.FieldProvenance, Value: m.origin.run(run.RunID).Encode()}}
	if m.events != nil {
		if err := m.importEvents(ctx, eventsKey(run.WorkspaceName, run.RunID)); err != nil {
			return err
		}
		if err := m.recordRun(ctx, run.WorkspaceName, run.RunID); err != nil {
			return err
		}
		if text := m.events.bounds.Text(); len(text) > 0 {
			fields = append(fields, refstore.Field{Name: workspace.FieldEvents, Value: text})
		}
	}
	if !m.res.RunAdded {
		return nil
	}
	_, err = m.repo.Records.Put(ctx, refstore.Record{Key: key, Value: run.Encode(), Version: here.Version, Fields: fields})
	return err
}

// recordRun adds the run, whose events are whole, to the journal of the workspace, once.
func (m *importer) recordRun(ctx context.Context, ws, run string) error {
	at, err := events.Recorded(ctx, m.repo.Records, ws)
	if err != nil || at[run] > 0 {
		return err
	}
	_, err = events.AppendJournal(ctx, m.repo.Records, ws, func() time.Time { return m.now }, events.Event{
		Type: events.RunRecorded, Data: &events.Data{Run: run, Reason: events.ReasonImported}})
	return err
}

// torn reports whether the record of a run cannot be read, which happens after a loss of power during an import.
func torn(run, steps []byte, imported bool) bool {
	_, err := record.DecodeRun(run)
	if err == nil && imported {
		_, err = record.DecodeProvenance(steps)
	}
	return err != nil
}

// eventsPiece is the part of the events that is held in memory.
const eventsPiece = 256 << 10

// importEvents completes the stream of events and seals it.
func (m *importer) importEvents(ctx context.Context, key refstore.Key) error {
	streams := m.repo.Records
	info, err := streams.Size(ctx, key)
	switch {
	case errors.Is(err, refstore.ErrNotFound):
	case err != nil:
		return err
	default:
		// The events may be from a removed workspace of this name, or from an interrupted import. After a loss of
		// power any bytes may be missing.
		ended, err := events.Ended(ctx, streams, m.runWorkspace(), m.run.RunID)
		if err == nil && ended && info.Size == m.events.Size {
			ended, err = m.sameEvents(ctx, key)
		}
		if err != nil {
			return err
		}
		if ended && info.Size >= m.events.Size {
			return streams.Seal(ctx, key)
		}
		// The stream has the bytes that were read, unless another import has presumed this one dead and taken the lock.
		if err := refstore.Confirm(ctx, m.repo.Locks); err != nil {
			return err
		}
		if err := streams.Remove(ctx, key); err != nil {
			return err
		}
	}
	r, err := m.open(m.events.Entry)
	if err != nil {
		return err
	}
	defer r.Close()
	piece := make([]byte, eventsPiece)
	for offset := int64(0); ; {
		n, err := io.ReadFull(r, piece)
		if n > 0 {
			if err := streams.Append(ctx, key, offset, piece[:n]); err != nil {
				return err
			}
			offset += int64(n)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF { // the entry's end; a truncated zip wraps these
			break
		}
		if err != nil {
			// The stream may end in half a line, or have bytes of another zip.
			return errors.Join(err, streams.Cut(context.WithoutCancel(ctx), key, 0))
		}
	}
	return streams.Seal(ctx, key)
}

// sameEvents reports whether the stream has the same bytes as the zip's events.
func (m *importer) sameEvents(ctx context.Context, key refstore.Key) (same bool, err error) {
	r, err := m.repo.Records.Open(ctx, key, 0)
	if err != nil {
		return false, err
	}
	defer r.Close()
	want, got, err := m.sums.of(&m.events.Entry, r)
	return got == want, err
}

// newWorkspace makes the workspace last of all, so that everything that it refers to exists.
func (m *importer) newWorkspace(ctx context.Context) error {
	name := m.res.Workspace
	if m.state == nil {
		data, err := m.content.structure(ctx, m.pkg.Hash)
		if err != nil {
			return err
		}
		if !eastref.IsPackage(data) {
			if err := m.repo.Workspaces.Create(ctx, name); err != nil && !errors.Is(err, workspace.ErrExists) {
				return err
			}
			return m.repo.Workspaces.Deployer.Deploy(ctx, name, m.res.Package)
		}
		// The reference's exports hold no state, but their package has the tree of the workspace.
		pkg, err := eastref.DecodePackage(data)
		if err != nil {
			return refused("", "package %s: %w", m.pkg, err)
		}
		m.state = &record.WorkspaceState{
			PackageName: m.pkg.Name, PackageVersion: m.pkg.Version, PackageHash: m.pkg.Hash,
			DeployedAt: m.now, RootHash: pkg.Root.String(), RootUpdatedAt: m.now,
		}
		if m.run != nil {
			m.state.CurrentRunID = m.run.RunID
			m.state.DeployedAt, m.state.RootUpdatedAt = m.run.StartedAt, m.run.CompletedAt
		}
	}
	return m.repo.Workspaces.Deployer.Adopt(ctx, name, m.state)
}
