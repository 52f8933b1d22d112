package cached_test

import (
	dataflowplan "e3/dataflow/plan"
	"e3/executions"
	"e3/exportimport"
	"e3/gc"
	"e3/internal/insight/explain"
	"e3/internal/verify"
	"e3/objectstore"
	"e3/objectstore/cached"
	"e3/objectstore/s3"
	"e3/workspace"
)

// The object store interfaces that this module's packages require.
var (
	_ objectstore.Store        = (*cached.Store)(nil)
	_ objectstore.Refresher    = (*cached.Store)(nil)
	_ objectstore.Adopter      = (*cached.Store)(nil)
	_ executions.Objects       = (*cached.Store)(nil)
	_ executions.LocalObjects  = (*cached.Store)(nil)
	_ executions.StoredObjects = (*cached.Store)(nil)
	_ workspace.Objects        = (*cached.Store)(nil)
	_ dataflowplan.Objects     = (*cached.Store)(nil)
	_ gc.Objects               = (*cached.Store)(nil)
	_ verify.Objects           = (*cached.Store)(nil)
	_ verify.Refreshed         = (*cached.Store)(nil)
	_ exportimport.Objects     = (*cached.Store)(nil)
	_ explain.Objects          = (*cached.Store)(nil)

	_ cached.Remote = (*s3.Bucket)(nil)
)
