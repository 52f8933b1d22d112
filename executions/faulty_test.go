package executions_test

import (
	"context"

	"e3/objectstore"
)

// brokenObjects is a store that refuses outputs while it has a fault.
type brokenObjects struct {
	*objectstore.Dir
	fault error
}

func (b *brokenObjects) Adopt(ctx context.Context, in objectstore.Folder, name string) (objectstore.Info, error) {
	if b.fault != nil {
		return objectstore.Info{}, b.fault
	}
	return b.Dir.Adopt(ctx, in, name)
}
