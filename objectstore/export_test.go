package objectstore

// What tests see of the internals.

const (
	TreeHeader = treeHeader
	ChunkSize  = chunkSize
)

// ForceNamed makes d behave as on a file system without unnamed files.
func (d *Dir) ForceNamed() { d.named.Store(true) }

// ForceNoReflink makes d behave as on a file system that cannot share extents.
func (d *Dir) ForceNoReflink() { d.noReflink.Store(true) }

// File returns the path of an object.
func (d *Dir) File(h Hash) string { return d.file(h) }
