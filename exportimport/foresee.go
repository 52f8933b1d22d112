package exportimport

import (
	"context"
	"errors"

	"e3/internal/insight/runview"
	"e3/refstore"
	"e3/workspace"
)

// foresee does everything that an import does except the writes, so it reports the same results and refuses the same
// zips.
func (m *importer) foresee(ctx context.Context) error {
	if err := m.closure(ctx); err != nil {
		return err
	}
	if err := m.takeObjects(ctx); err != nil {
		return err
	}
	if m.run != nil {
		_, err := m.repo.Records.Get(ctx, runview.Key(m.runWorkspace(), m.run.RunID), runview.FieldProvenance, workspace.FieldEvents)
		if m.res.RunAdded = errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged); !m.res.RunAdded && err != nil {
			return err
		}
	}
	return m.eachExecution(ctx, func(in *incoming) error {
		out, err := m.repo.Curator.Decide(ctx, &in.Incoming)
		if err != nil {
			return err
		}
		retired, err := m.retiredThere(ctx, in, out)
		m.settle(in, out, retired)
		return err
	})
}
