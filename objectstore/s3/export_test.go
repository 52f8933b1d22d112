package s3

import "e3/objectstore"

// Internals for fuzz tests and properties.
var (
	ParseContentRange = parseContentRange
	ParseKey          = parseKey
	CheckBlobName     = checkBlobName
	Printable         = printable
)

// Key is the key of an object.
func (b *Bucket) Key(h objectstore.Hash) string { return b.key(h) }

// SizeOfParts is the size of the parts of an object of size bytes.
func (b *Bucket) SizeOfParts(size int64) int64 { return b.partSize(size) }
