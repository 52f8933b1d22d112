package reach

import (
	"context"

	"golang.org/x/sync/errgroup"

	"e3/internal/events"
	"e3/objectstore"
	"e3/refstore"
)

// EventRoots enumerates the nodes of the snapshots in the first and the last event of every run, also of runs without a
// record, and of removed workspaces. These nodes may be missing. An event that cannot be read, or names no hash, has
// no roots; that is no fault.
func (s *Stores) EventRoots(ctx context.Context, sink Sink) error {
	for ws, err := range s.Records.List(ctx, refstore.Query{Partition: "RUNS", KeysOnly: true}) {
		if err == nil {
			err = s.eventRoots(ctx, ws.Key.Sort, sink)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Stores) eventRoots(ctx context.Context, ws string, sink Sink) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(s.workers())
	for key, err := range s.Records.ListStreams(ctx, refstore.Query{Partition: "EVENTS/" + ws}) {
		if err != nil {
			g.Go(func() error { return err })
			break
		}
		g.Go(func() error {
			started, err := events.First(ctx, s.Records, ws, key.Sort)
			if err != nil {
				return err
			}
			end, err := events.End(ctx, s.Records, ws, key.Sort)
			if err != nil {
				return err
			}
			owner := Owner{Kind: ARun, Name: ws, ID: key.Sort}
			if started != nil && started.Data != nil {
				if err := snapshotRoot(sink, owner, "inputs", started.Data.Inputs); err != nil {
					return err
				}
			}
			if end != nil && end.Data != nil {
				return snapshotRoot(sink, owner, "outputs", end.Data.Outputs)
			}
			return nil
		})
	}
	return g.Wait()
}

// snapshotRoot passes a snapshot of a run to a sink, if there is one.
func snapshotRoot(sink Sink, owner Owner, role, hash string) error {
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return nil
	}
	owner.Role = role
	return sink.Root(Root{Ref: Ref{Nodes, h}, Weak: true, Owner: owner})
}

func (s *Stores) workers() int {
	if s.Workers > 0 {
		return s.Workers
	}
	return Workers(s.Objects)
}
