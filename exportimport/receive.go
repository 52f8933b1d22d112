package exportimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/reach"
	"e3/internal/settings"
	"e3/objectstore"
	"e3/refstore"
)

// Received is what came from another repository without a zip.
type Received struct {
	Outcomes map[executions.Outcome]int
	// Gone are executions that were not taken, because objects that they name are in neither repository.
	Gone []string
}

// Receive takes executions with their logs, and the objects that they name, from a repository that this process can
// read, by the rules of an import. It is for executions that a machine has made while it was apart from this
// repository. A repository that requires signatures refuses them with settings.ErrUnsigned. Receive can be repeated.
func (r *Repository) Receive(ctx context.Context, from *Repository, keys iter.Seq2[refstore.Key, error]) (*Received, error) {
	set, err := settings.Get(ctx, r.Records)
	if err != nil {
		return nil, err
	}
	if _, err := set.Decide(nil, [32]byte{}, false); err != nil {
		return nil, err
	}
	end, err := r.Curator.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	res := &Received{Outcomes: map[executions.Outcome]int{}}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(2, runtime.GOMAXPROCS(0), r.Workspaces.Lookups))
	for key, err := range keys {
		if err != nil {
			return nil, errors.Join(err, g.Wait())
		}
		k, ok := executions.ParseKey(key.Partition[len("EXECUTION/"):])
		if !ok || gctx.Err() != nil {
			continue
		}
		g.Go(func() error {
			out, err := r.receive(gctx, from, k, key)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, objectstore.ErrNotFound):
				res.Gone = append(res.Gone, key.Sort)
			case err != nil:
				return fmt.Errorf("execution %s: %w", key.Sort, err)
			default:
				res.Outcomes[out]++
			}
			return nil
		})
	}
	return res, g.Wait()
}

// receive takes one execution: its objects first.
func (r *Repository) receive(ctx context.Context, from *Repository, k executions.Key, key refstore.Key) (executions.Outcome, error) {
	e, err := from.Executions.Get(ctx, k, key.Sort)
	if err != nil {
		return 0, err
	}
	rec, err := from.Records.Get(ctx, key, fileDetail, fileRejected, fileSignature)
	if err != nil {
		return 0, err
	}
	in := &executions.Incoming{Key: k, Status: &e.Status, Provenance: &record.Provenance{}}
	in.Detail, _ = rec.Field(fileDetail)
	in.Rejection, _ = rec.Field(fileRejected)
	in.Signature, _ = rec.Field(fileSignature)
	if e.Provenance != nil {
		in.Provenance.Steps = append(in.Provenance.Steps, e.Provenance.Steps...)
	}
	in.Provenance.Steps = append(in.Provenance.Steps, record.Step{
		By: from.User, Repository: from.Location, At: r.Now(), Version: from.Version, ImportedBy: r.User, ImportedAt: r.Now(),
	})
	for stream, open := range map[executions.Stream]*func() (io.ReadCloser, int64, error){executions.Stdout: &in.Stdout, executions.Stderr: &in.Stderr} {
		size, err := from.Executions.LogSize(ctx, k, key.Sort, stream)
		if err != nil {
			return 0, err
		}
		if size > 0 {
			*open = func() (io.ReadCloser, int64, error) {
				log, err := from.Executions.OpenLog(ctx, k, key.Sort, stream, 0)
				return log, size, err
			}
		}
	}
	if out, err := r.Curator.Decide(ctx, in); err != nil || out.Skipped() || e.State == record.Running {
		return out, err
	}
	if err := r.receiveObjects(ctx, from, e); err != nil {
		return 0, err
	}
	return r.Curator.Import(ctx, in)
}

// receiveObjects puts the objects that an execution names: its task object, the objects that e3 has made for its
// inputs and, after a success, its output. Inputs may be gone, as for any execution.
func (r *Repository) receiveObjects(ctx context.Context, from *Repository, e *executions.Execution) error {
	shape, err := reach.TaskShapeOf(ctx, from.Objects, e.Key.Task)
	if err != nil {
		return err
	}
	w := reach.NewWalker(ctx, from.Objects, reach.Options{
		Visit: func(ctx context.Context, ref reach.Ref) (int64, error) { return -1, r.take(ctx, from, ref.Hash) },
		Fault: func(f *reach.Fault) error {
			if f.Weak && errors.Is(f.Err, objectstore.ErrNotFound) {
				return nil
			}
			return f.Err
		},
	})
	root := func(kind reach.Kind, h objectstore.Hash, weak bool, role string) error {
		owner := reach.Owner{Kind: reach.AnExecution, Key: e.Key, ID: e.ExecutionID, Role: role}
		return w.Root(reach.Root{Ref: reach.Ref{Kind: kind, Hash: h}, Weak: weak, Owner: owner})
	}
	err = root(reach.Task, e.Key.Task, false, "task object")
	if err == nil {
		err = shape.Inputs(e.InputHashes, func(_ int, r reach.Ref) error { return root(r.Kind, r.Hash, true, "input") })
	}
	if err == nil && e.State == record.Success {
		var h objectstore.Hash
		if h, err = objectstore.ParseHash(e.OutputHash); err == nil {
			err = root(shape.Output, h, false, "output")
		}
	}
	return errors.Join(err, w.Wait())
}

// take puts an object. If it is already here, take protects it instead.
func (r *Repository) take(ctx context.Context, from *Repository, h objectstore.Hash) error {
	if there, err := r.Objects.Refresh(ctx, h); there || err != nil {
		return err
	}
	in, err := from.Objects.Open(ctx, h)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = r.Objects.Put(ctx, in)
	return err
}
