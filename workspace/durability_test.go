package workspace_test

import (
	"context"
	"sync/atomic"
	"testing"

	"e3/internal/repo"
	"e3/refstore"
	"e3/workspace"
)

// syncing counts syncs.
type syncing struct {
	repo.Records
	all, one *atomic.Int64 // Sync and PutSync
}

func (s syncing) Sync(ctx context.Context) error {
	s.all.Add(1)
	return s.Records.Sync(ctx)
}

func (s syncing) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	s.one.Add(1)
	return s.Records.PutSync(ctx, r)
}

// A run syncs in groups, whatever its size; with durability none, it does not sync.
func TestDurability(t *testing.T) {
	for _, test := range []struct {
		name       string
		durability workspace.Durability
		want       bool
	}{{"batch", workspace.Batch, true}, {"none", workspace.None, false}} {
		t.Run(test.name, func(t *testing.T) {
			p := newPlace(t)
			p.write("a.txt", "a")
			p.write("b.txt", "b")
			p.deploy(twoInputs)
			r := syncing{p.repo.Records, new(atomic.Int64), new(atomic.Int64)}
			p.ws = workspace.New(workspace.Stores{
				Records: r, Locks: r, Objects: p.repo.Objects, Local: r, Now: p.ws.Now, Holder: p.ws.Holder, Sweep: p.ws.Sweep,
			})
			durable := func(o *workspace.StartOptions) { o.Durability = test.durability }
			for _, step := range []struct {
				name string
				do   func()
			}{
				{"a run", func() { p.start(durable) }},
				{"a run of an edited input", func() { p.write("a.txt", "b"); p.start(durable) }},
				{"a run that is proven current", func() { p.start(durable) }},
			} {
				r.all.Store(0)
				r.one.Store(0)
				step.do()
				all, one := r.all.Load(), r.one.Load()
				if (one > 0) != test.want || all > 0 && !test.want || all > 4 || one > 6 {
					t.Errorf("%s: %d syncs of all, %d of one record", step.name, all, one)
				}
			}
			r.all.Store(0)
			p.set("a", "always durable")
			if r.all.Load() == 0 {
				t.Error("a value that was set is not durable")
			}
		})
	}
}
