package repo

import (
	"e3/refstore"
	"e3/refstore/checked"
	reffs "e3/refstore/fs"
)

// Records with sums, over each kind of store. Records are read and written through the sums; streams, locks and other
// capabilities are the embedded store's own.
type (
	summedFolder struct {
		*checked.Records
		folderBelow
	}
	folderBelow struct{ *reffs.Store }

	summedBeside struct {
		*checked.Records
		besideBelow
	}
	besideBelow struct{ *folderRecords }

	summedShared struct {
		*checked.Records
		sharedBelow
	}
	sharedBelow struct{ *sharedRecords }
)

// OnlyExecution reports whether an execution's record is certainly the only one of its key.
func (f *summedFolder) OnlyExecution(key refstore.Key) bool { return reffs.OnlyExecution(f.Store, key) }

var (
	_ Records = (*summedFolder)(nil)
	_ Records = (*summedBeside)(nil)
	_ Records = (*summedShared)(nil)

	_ interface{ OnlyExecution(refstore.Key) bool } = (*summedFolder)(nil) // which executions asks for

	_ refstore.Watcher = (*summedFolder)(nil)
	_ refstore.Barrier = (*summedBeside)(nil)
	_ refstore.Leased  = (*summedShared)(nil)

	_ refstore.Outlasting = (*summedShared)(nil)
	_ refstore.Outlasting = (*summedBeside)(nil)
)
