package exportimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/eastref"
	"e3/internal/events"
	"e3/internal/reach"
	"e3/internal/record"
	"e3/internal/zipfile"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// apply writes: objects first, and once all that they refer to is there, what refers to them.
func (m *importer) apply(ctx context.Context) error {
	// What an import that the power ended has left must not be taken for whole: objects that are here are known by their size.
	if err := m.repo.Workspaces.Sweep(ctx); err != nil {
		return fmt.Errorf("clean up after dead processes: %w", err)
	}
	if _, err := m.repo.Records.SessionBegan(ctx); err != nil {
		return err
	}
	if err := m.storeObjects(ctx); err != nil {
		return err
	}
	if m.renamedPackage != nil {
		if _, err := objectstore.PutBytes(ctx, m.repo.Objects, m.renamedPackage); err != nil {
			return err
		}
	}
	if err := m.closure(ctx); err != nil {
		return err
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
		err = m.repo.Workspaces.Register(ctx, m.res.Package) // syncs what it refers to
	}
	if err != nil {
		return err
	}
	if m.opts.NewWorkspace && !m.standing {
		return m.newWorkspace(ctx)
	}
	return nil
}

// storeObjects stores the objects, several at a time. What is here with its size is made safe from collections; all else
// must hash to its name.
func (m *importer) storeObjects(ctx context.Context) error {
	workers := m.opts.Workers
	if workers <= 0 {
		workers = max(runtime.GOMAXPROCS(0), m.repo.Workspaces.Lookups)
	}
	var done, added atomic.Int64
	advance := func(n int64) {
		if sum := done.Add(n); m.opts.Progress != nil {
			m.opts.Progress(sum, m.stored)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	entries := make(chan objectEntry, 16*workers)
	for range workers {
		g.Go(func() error {
			for o := range entries {
				isNew, err := m.storeObject(ctx, o, advance)
				if err != nil {
					return err
				}
				if isNew {
					added.Add(1)
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(entries)
		var seen objectstore.HashSet
		for e, err := range m.zip.Entries() {
			if err != nil {
				return err
			}
			n, err := parseName(e.Name)
			if err != nil || n.part != objectPart {
				continue
			}
			if !seen.Add(n.object) {
				advance(e.Size)
				continue
			}
			select {
			case entries <- objectEntry{e, n.object}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	err := g.Wait()
	m.res.ObjectsAdded = int(added.Load())
	return err
}

type objectEntry struct {
	entry zipfile.Entry
	hash  objectstore.Hash
}

// storeObject tells advance of the bytes that it has seen to.
func (m *importer) storeObject(ctx context.Context, o objectEntry, advance func(int64)) (isNew bool, err error) {
	size, err := m.repo.Objects.Stat(ctx, o.hash)
	if err == nil && size == o.entry.Size {
		there, err := m.repo.Objects.Refresh(ctx, o.hash)
		if err != nil {
			return false, err
		}
		if there {
			advance(size)
			return false, nil
		}
	} else if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
		return false, err
	}
	r, err := m.open(o.entry)
	if err != nil {
		return false, err
	}
	defer r.Close()
	info, err := m.repo.Objects.Put(ctx, &countingReader{r, advance})
	if err != nil {
		return false, err
	}
	if info.Hash != o.hash {
		return false, refused(o.entry.Name, "%w", &objectstore.CorruptError{Want: o.hash, Got: info.Hash, Size: info.Size})
	}
	return true, nil
}

// A countingReader tells how many bytes were read, as they are.
type countingReader struct {
	r     io.Reader
	count func(int64)
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.count(int64(n))
	return n, err
}

// closure checks that all that is about to be referred to is here, and makes what was here before the zip safe from
// collections.
func (m *importer) closure(ctx context.Context) error {
	s := &snapshot{workspace: m.stateOf, run: m.run, state: record.WorkspaceState{
		PackageName: m.pkg.Name, PackageVersion: m.pkg.Version, PackageHash: m.pkg.Hash}}
	g := &gatherer{objects: m.repo.Objects, tasks: &tasks{objects: m.repo.Objects}, s: s, present: m.present}
	g.each = func(ctx context.Context, yield func(*taken) error) error {
		return m.eachExecution(ctx, func(in *incoming) error {
			if in.Status.State == record.Running {
				return nil
			}
			t, err := in.taken()
			if err != nil {
				return refused("", "execution %s: %w", in.id, err)
			}
			t.inputs = in.Status.InputHashes
			return yield(t)
		})
	}
	g.inputs = func(_ context.Context, t *taken) ([]string, error) { return t.inputs, nil }
	data, err := m.structure(ctx, m.pkg.Hash)
	if err != nil {
		return lacking("package "+m.pkg.String(), err)
	}
	if s.pkg, err = record.DecodePackageWithin(data, maxPackageMemory); err != nil && !errors.Is(err, record.ErrType) {
		return refused("", "package %s: %w", m.pkg, err)
	}
	if s.pkg != nil {
		if _, err := dataflow.NewGraph(s.pkg); err != nil {
			return refused("", "%w", err)
		}
	}
	if m.state != nil {
		s.state = *m.state
		if s.pkg != nil {
			if err := m.tree(ctx, s); err != nil {
				return err
			}
		}
	} else {
		s.workspace = ""
	}
	// Two at a time: what is read is as large as whoever made the zip has chosen.
	err = g.walk(ctx, reach.Options{Workers: 2})
	for _, input := range slices.Sorted(maps.Keys(g.lacking)) {
		m.note("the content of input %s is not in the zip; tasks that read it can be hits, and run once it is set", input)
	}
	var missing *MissingError
	if errors.As(err, &missing) {
		return lacking(missing.What, missing.Err)
	}
	return err
}

func lacking(what string, err error) error {
	if lost(err) {
		return refused("", "%s: %w", what, err)
	}
	return err
}

// present is asked for each object that is met, before it is read.
func (m *importer) present(ctx context.Context, r reach.Ref) (int64, error) {
	there, err := m.repo.Objects.Refresh(ctx, r.Hash)
	if err != nil {
		return 0, err
	}
	if !there {
		return 0, fmt.Errorf("object %s: %w", r.Hash, objectstore.ErrNotFound)
	}
	size, err := m.repo.Objects.Stat(ctx, r.Hash)
	if err == nil {
		err = bounded(r, size)
	}
	return size, err
}

// structure reads an object that refers to others.
func (m *importer) structure(ctx context.Context, hash string) ([]byte, error) {
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return nil, err
	}
	if _, err := m.present(ctx, reach.Ref{Kind: reach.Package, Hash: h}); err != nil {
		return nil, err
	}
	return objectstore.ReadAll(ctx, m.repo.Objects, h, maxStructure)
}

// tree reads the nodes of the exported workspace. They have the datasets of its package, and no others.
func (m *importer) tree(ctx context.Context, s *snapshot) error {
	top, err := m.node(ctx, s.state.RootHash, 2)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		what string // of its datasets
		to   *record.Node
		n    int
		name func(int) string
	}{
		{"input", &s.inputs, len(s.pkg.Inputs), func(i int) string { return s.pkg.Inputs[i].Name }},
		{"task", &s.tasks, len(s.pkg.Tasks), func(i int) string { return s.pkg.Tasks[i].Name }},
	} {
		leaf, ok := top.Get(part.what + "s")
		if !ok || leaf.Kind != record.LeafNode {
			return refused("", "the tree of workspace %s has no %ss", m.stateOf, part.what)
		}
		if *part.to, err = m.node(ctx, leaf.Hash, part.n); err != nil {
			return err
		}
		for i := range part.n { // names of a package differ from each other
			if _, ok := part.to.Get(part.name(i)); !ok {
				return refused("", "the tree of workspace %s has no %s %q, its package has", m.stateOf, part.what, clip(part.name(i)))
			}
		}
	}
	return nil
}

// node reads a node with a known number of entries.
func (m *importer) node(ctx context.Context, hash string, want int) (record.Node, error) {
	data, err := m.structure(ctx, hash)
	if err != nil {
		return nil, lacking("the tree of workspace "+m.stateOf, err)
	}
	n, got := make(record.Node, 0, want), 0
	err = record.EachEntry(data, func(e *record.NodeEntry) {
		if got++; got <= want {
			n = append(n, *e)
		}
	})
	if err == nil && got != want {
		err = fmt.Errorf("node %.8s has %d entries, not %d", hash, got, want)
	}
	if err != nil {
		return nil, refused("", "the tree of workspace %s: %w", m.stateOf, err)
	}
	return n, nil
}

// executions takes the executions in, several at a time.
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
	if first := g.Wait(); first != nil { // err says only that the others have ended
		return first
	}
	return err
}

// settle counts what became of an execution.
func (m *importer) settle(in *incoming, out executions.Outcome, retired *record.Rejection) {
	m.res.Outcomes[out]++
	if retired != nil {
		m.note("execution %s was rejected by %s where it comes from, and answers here: %q; retire it with: e3 reject <repo> %[1]s", in.id, clip(retired.By), clip(retired.Reason))
	}
}

// retiredThere returns the rejection of an execution that is skipped, and stands here.
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

// lockName keeps imports apart while they write what there is one of.
const lockName = "import"

func (m *importer) lock(ctx context.Context) (unlock func(), err error) {
	// Where locks are leases, one that is tried again and again is also found out to be dead.
	nap, most := refstore.Pace(m.repo.Locks)
	for ; ; nap = min(2*nap, most) {
		lock, err := m.repo.Locks.TryLock(ctx, lockName, refstore.Exclusive, nil)
		var locked *refstore.LockedError
		if err == nil {
			return func() { lock.Unlock() }, nil
		}
		if !errors.As(err, &locked) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(nap):
		}
	}
}

// importRun writes the events of the run and then its record, so that whoever sees the run finds them. What this
// repository has of the run itself stays.
func (m *importer) importRun(ctx context.Context) error {
	run := *m.run
	run.WorkspaceName = m.runWorkspace()
	key := runKey(run.WorkspaceName, run.RunID)
	here, err := m.repo.Records.Get(ctx, key, fieldProvenance)
	switch {
	case errors.Is(err, refstore.ErrNotFound):
		m.res.RunAdded = true
	case err != nil:
		return err
	default:
		steps, imported := here.Field(fieldProvenance)
		m.res.RunAdded = torn(here.Value, steps, imported)
		if !m.res.RunAdded && !imported {
			return nil
		}
	}
	if m.events != nil {
		if err := m.importEvents(ctx, eventsKey(run.WorkspaceName, run.RunID)); err != nil {
			return err
		}
	}
	if !m.res.RunAdded {
		return nil
	}
	_, err = m.repo.Records.Put(ctx, refstore.Record{Key: key, Value: run.Encode(), Version: here.Version,
		Fields: []refstore.Field{{Name: fieldProvenance, Value: m.origin.run(run.RunID).Encode()}}})
	return err
}

// torn tells whether the record of a run cannot be read, as a loss of power during an import leaves it.
func torn(run, steps []byte, imported bool) bool {
	_, err := record.DecodeRun(run)
	if err == nil && imported {
		_, err = record.DecodeProvenance(steps)
	}
	return err != nil
}

// eventsPiece is how much of the events is held at a time.
const eventsPiece = 256 << 10

// importEvents makes the stream whole and seals it.
func (m *importer) importEvents(ctx context.Context, key refstore.Key) error {
	streams := m.repo.Records
	info, err := streams.Size(ctx, key)
	switch {
	case errors.Is(err, refstore.ErrNotFound):
	case err != nil:
		return err
	default:
		// A workspace of this name that was removed has left the events of its run, or an import was cut off: by a loss of
		// power, with any bytes missing.
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
		// It is what was looked at, unless another import has taken over since from this one.
		if err := refstore.Confirm(ctx, m.repo.Locks); err != nil {
			return err
		}
		if err := streams.Remove(ctx, key); err != nil {
			return err
		}
	}
	r, err := m.open(*m.events)
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
		if err == io.EOF || err == io.ErrUnexpectedEOF { // of the entry; that of a zip which was cut is wrapped
			break
		}
		if err != nil {
			// What is there may be half a line, or of another zip.
			return errors.Join(err, streams.Cut(context.WithoutCancel(ctx), key, 0))
		}
	}
	return streams.Seal(ctx, key)
}

// sameEvents tells whether the stream has the bytes of the zip's.
func (m *importer) sameEvents(ctx context.Context, key refstore.Key) (same bool, err error) {
	r, err := m.repo.Records.Open(ctx, key, 0)
	if err != nil {
		return false, err
	}
	defer r.Close()
	want, got, err := m.sums.of(m.events, r)
	return got == want, err
}

// newWorkspace makes the workspace, as the last of all: whoever sees it finds everything.
func (m *importer) newWorkspace(ctx context.Context) error {
	name := m.res.Workspace
	if m.state == nil {
		data, err := m.structure(ctx, m.pkg.Hash)
		if err != nil {
			return err
		}
		if !eastref.IsPackage(data) {
			if err := m.repo.Workspaces.Create(ctx, name); err != nil && !errors.Is(err, workspace.ErrExists) {
				return err
			}
			return m.repo.Workspaces.Deploy(ctx, name, m.res.Package)
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
	return m.repo.Workspaces.Adopt(ctx, name, m.state)
}
