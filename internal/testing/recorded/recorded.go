// Package recorded puts executions on record that never ran, so that tests and benchmarks have large histories at once.
package recorded

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/refstore"
)

// atATime is the number of records that are written at a time.
const atATime = 32

// Content is the output of each recorded task.
const Content = "output\n"

// Workspace records a success of each task of a workspace. Each must have one input, an input of the package with a default.
func Workspace(ctx context.Context, r *repo.Repo, ws string) error {
	state, err := r.Workspaces.State(ctx, ws)
	if err != nil {
		return err
	}
	pkg, err := r.Workspaces.Packages.Load(ctx, state.PackageHash)
	if err != nil {
		return err
	}
	inputs := map[string]objectstore.Hash{}
	for i := range pkg.Inputs {
		if inputs[pkg.Inputs[i].Name], err = objectstore.ParseHash(pkg.Inputs[i].Default.Hash); err != nil {
			return err
		}
	}
	output, err := r.Objects.PutBytes(ctx, []byte(Content))
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atATime)
	for i := range pkg.Tasks {
		t := &pkg.Tasks[i]
		g.Go(func() error {
			task, err := objectstore.ParseHash(t.Task)
			if err == nil {
				_, err = Success(ctx, r.Records, t.Name, task, inputs[t.Wiring[0].Name], output)
			}
			return err
		})
	}
	return g.Wait()
}

// Success records a success of a task on one input.
func Success(ctx context.Context, records refstore.Store, name string, task, input, output objectstore.Hash) (executions.Key, error) {
	key := executions.NewKey(task, []objectstore.Hash{input})
	id, err := executions.NewID()
	if err != nil {
		return key, err
	}
	at := time.Now().Truncate(time.Millisecond)
	status := &record.Status{State: record.Success, ExecutionID: id, InputHashes: []string{input.String()}, OutputHash: output.String(), StartedAt: at, CompletedAt: at}
	detail := &record.Detail{Attempt: 1, Task: name, BytesOut: int64(len(Content))}
	_, err = records.Put(ctx, refstore.Record{
		Key:   refstore.Key{Partition: "EXECUTION/" + key.String(), Sort: id},
		Value: status.Encode(),
		Fields: []refstore.Field{
			{Name: "output", Value: []byte(status.OutputHash + "\n")}, {Name: "detail.beast2", Value: detail.Encode()},
		},
	})
	return key, err
}
