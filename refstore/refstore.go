// Package refstore defines small named records that change by compare-and-swap, append-only streams and locks.
//
// Everything mutable in a repository is written on these interfaces, once: executions, runs, workspaces, packages,
// events, the queue. A backend supplies the storage and nothing else, and passes the suite in
// [e3/refstore/refstoretest].
//
// # Records
//
// A [Key] names a record by partition and sort key, as DynamoDB does. A record has one value and any number of named
// side fields. There are no transactions: each call concerns one record, and callers order their writes so that what
// a reader can see is whole.
//
// A [Version] changes with every write of a record and never recurs for its key, deletion and re-creation included.
// So a put with version v succeeds only if no write came after the read of v.
//
// # Errors
//
// Backends return errors that match [ErrNotFound], [ErrConflict], [ErrDamaged], [ErrSealed], [ErrClaimed] and
// [ErrInvalid] with [errors.Is], and [*LockedError] with [errors.As]. Anything else is a failure of the storage and
// names what failed. All methods are safe for concurrent use, by goroutines and by processes that share the
// repository. Byte slices passed in are not kept; byte slices handed out belong to the caller.
package refstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

var (
	// ErrNotFound reports a record or stream that does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict reports that a record or stream is not in the state that the caller expected: read again and decide.
	ErrConflict = errors.New("changed by another process")
	// ErrInDoubt reports that the answer to a write was lost and that others have written since, so that the write's
	// outcome cannot be found out.
	ErrInDoubt = errors.New("the answer was lost, and others have written since: it may have happened")
	// ErrInvalid reports a key, query or field that no backend would take.
	ErrInvalid = errors.New("invalid")
	// ErrDamaged reports a record that exists but is not what was written. With the error comes a record with the
	// key, the undamaged parts and, if known, the version, by which it can be deleted or replaced.
	ErrDamaged = errors.New("damaged")
	// ErrForeign reports that something is in a record's or stream's place that no backend makes, such as a folder.
	ErrForeign = errors.New("not a regular file, so e3 has not put it there; move it away")
)

// SumField is the side field that holds the sum of a record whose value has no room for one (package checked). A
// backend in which a crash can come between value and field writes it before a value that it replaces, and after a
// value that is new or replaces an empty one. It need not survive power loss: a missing or torn sum is ignored.
const SumField = "sum"

// WitnessField is a side field that only shows that there is a record. A backend that keeps fields apart from values
// writes it after the value and removes it before the value; its bytes are the same for ever. Get and List report a
// record of which only SumField or WitnessField is left as ErrDamaged.
const WitnessField = "witness"

// Limits on names, in bytes. They leave room for the prefix that a shared table needs.
const (
	MaxPartition = 1024
	MaxSort      = 1000
	MaxField     = 80
)

// Key names a record or a stream.
type Key struct {
	// Partition is a list of segments joined by "/". The first is the kind, upper-case letters: "EXECUTION/<task>/<inputs>".
	Partition string
	// Sort orders the records of a partition by its bytes. It is not empty; it may hold any valid UTF-8.
	Sort string
}

// String shows the key for people. It is not meant to be parsed.
func (k Key) String() string { return k.Partition + " · " + k.Sort }

// Validate reports, as an [ErrInvalid], why no backend would take k.
func (k Key) Validate() error {
	if err := validPartition(k.Partition); err != nil {
		return err
	}
	switch {
	case k.Sort == "":
		return fmt.Errorf("key in partition %q: %w: empty sort key", k.Partition, ErrInvalid)
	case len(k.Sort) > MaxSort:
		return fmt.Errorf("key in partition %q: %w: sort key has %d bytes, at most %d are allowed", k.Partition, ErrInvalid, len(k.Sort), MaxSort)
	case !utf8.ValidString(k.Sort):
		return fmt.Errorf("key %q: %w: sort key is not valid UTF-8", k, ErrInvalid)
	}
	return nil
}

func validPartition(p string) error {
	kind, _, _ := strings.Cut(p, "/")
	if kind == "" {
		return fmt.Errorf("partition %q: %w: no kind", p, ErrInvalid)
	}
	for i := range len(kind) {
		if c := kind[i]; (c < 'A' || c > 'Z') && c != '_' {
			return fmt.Errorf("partition %q: %w: the kind is made of upper-case letters", p, ErrInvalid)
		}
	}
	if len(p) > MaxPartition {
		return fmt.Errorf("partition %.40q…: %w: %d bytes, at most %d are allowed", p, ErrInvalid, len(p), MaxPartition)
	}
	if !utf8.ValidString(p) {
		return fmt.Errorf("partition %q: %w: not valid UTF-8", p, ErrInvalid)
	}
	return nil
}

// Version tells the writes of one key apart. It is opaque: equal means unchanged, nothing else is promised.
type Version string

// Absent is the version of a record that does not exist.
const Absent Version = ""

// Field is a named value beside a record's main value.
type Field struct {
	Name  string
	Value []byte
}

// Record is one record as read or to be written.
type Record struct {
	Key     Key
	Value   []byte
	Fields  []Field
	Version Version
}

// Field returns the value of the named field and whether the record holds it.
func (r Record) Field(name string) ([]byte, bool) {
	for _, f := range r.Fields {
		if f.Name == name {
			return f.Value, true
		}
	}
	return nil, false
}

// Validate reports, as an [ErrInvalid], why no backend would write r.
func (r Record) Validate() error {
	if err := r.Key.Validate(); err != nil {
		return err
	}
	for i, f := range r.Fields {
		if f.Name == "" || len(f.Name) > MaxField || !utf8.ValidString(f.Name) {
			return fmt.Errorf("record %q: %w: field name %.120q (1 to %d bytes of UTF-8)", r.Key, ErrInvalid, f.Name, MaxField)
		}
		for _, g := range r.Fields[:i] {
			if g.Name == f.Name {
				return fmt.Errorf("record %q: %w: field %q is given twice", r.Key, ErrInvalid, f.Name)
			}
		}
	}
	return nil
}

// Store keeps records.
type Store interface {
	// Get returns the record's value, its version, and those of the named fields that exist, in the order asked for.
	// Fields are at least as new as the value: they are written before it and read after it. ErrNotFound.
	Get(ctx context.Context, key Key, fields ...string) (Record, error)

	// Put writes a record and returns its new version. With r.Version Absent the record must not exist, and of
	// several concurrent creators exactly one succeeds. Otherwise r.Version must be the current version. The given
	// fields are written, others are kept; the value comes last, so that a reader of the new value sees the new
	// fields. Only a creation without a prior record is atomic over value and fields. ErrConflict.
	//
	// A Put that failed with anything but ErrConflict may have happened: read again to know.
	Put(ctx context.Context, r Record) (Version, error)

	// Delete removes the record with its fields if its version is v. ErrConflict, ErrNotFound.
	Delete(ctx context.Context, key Key, v Version) error

	// List yields the records of one partition in the order of their sort keys. It includes everything written before
	// the iteration begins; records written or deleted during it may be included or not. A deleted record is left
	// out, never an error. An error ends the iteration, unless it wraps ErrDamaged: that concerns one record, which
	// comes with it, and the others follow.
	List(ctx context.Context, q Query) iter.Seq2[Record, error]
}

// Durable is a store that can make a record durable.
type Durable interface {
	Store
	// PutSync is Put, durable when it returns.
	PutSync(ctx context.Context, r Record) (Version, error)
}

// Query selects records, or streams, of one partition.
type Query struct {
	Partition  string
	Prefix     string   // only sort keys that begin with it
	After      string   // exclusive cursor: only keys beyond it in the direction of travel; "" is none
	Limit      int      // at most this many; 0 or less means all
	Descending bool     // greatest sort key first
	KeysOnly   bool     // only Record.Key is set
	Fields     []string // side fields to read as well
}

// Validate reports, as an [ErrInvalid], why no backend would run q.
func (q Query) Validate() error { return validPartition(q.Partition) }

// Select orders and filters sort keys as q asks, in place, all but the limit: a record may turn out to be gone. It
// serves backends that hold all names of a partition.
func (q Query) Select(sorts []string) []string {
	sorts = slices.DeleteFunc(sorts, func(s string) bool {
		switch {
		case !strings.HasPrefix(s, q.Prefix):
			return true
		case q.After == "":
			return false
		case q.Descending:
			return s >= q.After
		default:
			return s <= q.After
		}
	})
	slices.Sort(sorts)
	if q.Descending {
		slices.Reverse(sorts)
	}
	return sorts
}

// Watcher is an optional capability of a store: it says when a partition may have changed.
type Watcher interface {
	// Watch returns a channel that receives after records of the partition were written or deleted. Wake-ups are
	// coalesced and may be spurious; a change after Watch returned is never missed for good. The channel is closed when
	// ctx ends.
	Watch(ctx context.Context, partition string) (<-chan struct{}, error)
}

// MaxBatch is the most records that a store writes in one request.
const MaxBatch = 25

// MaxReads is the most records that a store reads in one request.
const MaxReads = 100
