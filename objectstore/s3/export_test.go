package s3

import "e3/objectstore"

// What fuzz tests and properties look at.
var (
	ParseContentRange = parseContentRange
	ParseKey          = parseKey
	CheckBlobName     = checkBlobName
	Printable         = printable
	Jitter            = jitter
)

const MaxBackoff = maxBackoff

// Key is where an object lies.
func (b *Bucket) Key(h objectstore.Hash) string { return b.key(h) }

// SizeOfParts is that of the parts that an object of size bytes is put in.
func (b *Bucket) SizeOfParts(size int64) int64 { return b.partSize(size) }
