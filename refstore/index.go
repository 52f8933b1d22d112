package refstore

import (
	"context"
	"iter"
)

// Indexed are records that are listed, and found, by what is written apart from them.
type Indexed interface {
	Index() Index
}

// Index is what says that there are records. It is written before a record and goes after it.
type Index interface {
	// Executions yields the keys of the records of all executions that are found by their ids, in no order. Some may be gone, or not there yet.
	Executions(ctx context.Context) iter.Seq2[Key, error]
	// Has tells whether all is there that says that there is a record.
	Has(ctx context.Context, key Key) (bool, error)
	// Put puts again what says that there is a record.
	Put(ctx context.Context, key Key) error
}
