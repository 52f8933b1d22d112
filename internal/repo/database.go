package repo

import (
	"context"
	"io"
	"iter"
	"time"

	"e3/objectstore/cached"
	"e3/objectstore/mounted"
	"e3/objectstore/s3"
	"e3/refstore"
	"e3/refstore/refstoretest"
)

// A database keeps the records of shared repositories, each with its objects in S3 or, beside some databases, in a folder. These methods are all that the rest of
// this package knows of one. A value is what a location says; it makes no connection.
type database interface {
	// String is the location without the repository, and without parameters that only say how to reach it.
	String() string
	// owner is the same under every address of the database.
	owner() string
	// params are the parameters that say how to reach it, each with its value in the location and its default.
	params() [][3]string
	// address tells databases of one name apart, as far as the location does.
	address() string
	connect(ctx context.Context, r *Repo) (connection, error)
}

// A connection reaches a database.
type connection interface {
	// where says for people where the database is: "in the region eu-west-1".
	where() string
	// server tells databases of one name apart.
	server() string
	// identity tells the database from its copies, as far as it can be known.
	identity(ctx context.Context) (string, error)
	// create makes what repositories need in the database, as far as it is missing, and tells c of it, with advice.
	create(ctx context.Context, c *Created, objects *bucketLocation) error
	// explain returns an error's reason if it is that there can be no repository: what is missing, or that the place is
	// for something else.
	explain(ctx context.Context, repository string, failure error) (missing string, other error)
	// describe opens a repository's records to read its description, and later use to use them.
	describe(repository string) (refstore.Store, error)
	use(repository string, f *format, w writer) (sharedStore, error)
	// aside opens stores, each without any record, for a check: under names of the check that nothing else has. gone removes
	// them all.
	aside(ctx context.Context, name string, objects remote) (open refstoretest.Opener, gone func(context.Context) error, err error)
	traits() traits
	close() error
}

// traits of a database.
type traits struct {
	lookups int  // how many tasks are looked up at a time
	told    bool // watches are told of changes, and cost nothing
	// spread says that a partition takes so few writes a second that records which all tasks write need several.
	spread bool
	// fenced says that no write of a session takes effect once it is marked dead (lease.Options.Fenced).
	fenced bool
}

// A writer of a database's records says when they may be written.
type writer struct {
	objects  remote
	place    *place
	patience time.Duration
	// sends says whether a signed request may be sent; fence names the session that must be alive for a write, "" for none.
	sends sending
	fence func(ctx context.Context) (session string, err error)
}

// A remote is a place of objects: a bucket, or a folder that machines share.
type remote interface {
	cached.Remote
	// Now returns the time by the clock that dates the objects.
	Now(ctx context.Context) (time.Time, error)
	// RemoveUploads removes what crashes have left of puts that began before a time.
	RemoveUploads(ctx context.Context, before time.Time) (removed int, err error)
	// Empty removes all that is in the place.
	Empty(ctx context.Context) error

	CreateBlob(ctx context.Context, name string, data []byte) (created bool, err error)
	PutBlob(ctx context.Context, name string, data []byte) error
	OpenBlob(ctx context.Context, name string, offset int64) (io.ReadCloser, error)
}

var _, _ remote = (*s3.Bucket)(nil), (*mounted.Folder)(nil)

// sharedStore are the records and streams of a shared repository.
type sharedStore interface {
	refstore.Durable
	refstore.Streams
	refstore.Watcher
	refstore.Tailer
	refstore.Indexed
	finder
	Create(ctx context.Context, r refstore.Record) (v refstore.Version, late bool, err error)
	WriteBatch(ctx context.Context, puts []refstore.Record, gone []refstore.Key) error
	ReadBatch(ctx context.Context, keys []refstore.Key) ([]refstore.Record, error)
	ExecutionsAfter(ctx context.Context, task, id string) iter.Seq2[refstore.Key, error]
	ShortLogs() bool
	StreamPace() time.Duration
	RemoveLeftovers(ctx context.Context, before time.Time) (removed int, err error)
}
