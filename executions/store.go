package executions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"e3/internal/record"
	"e3/objectstore"
	"e3/refstore"
)

// Fields of an execution's record, beside its status.
const (
	fieldOutput     = "output" // hash of the output + "\n", for people and the reference
	fieldDetail     = "detail.beast2"
	fieldMetadata   = "metadata.beast2"
	fieldProvenance = "provenance.beast2"
)

// A Stream names one of the two logs of an execution.
type Stream string

// The logs of an execution, under the names of their files.
const (
	Stdout Stream = "stdout.txt"
	Stderr Stream = "stderr.txt"
)

// ErrNotFound is wrapped when an execution does not exist.
var ErrNotFound = refstore.ErrNotFound

// ErrMalformed is wrapped when an execution is there but its record cannot be read.
var ErrMalformed = errors.New("malformed record")

// Records are the stores that hold executions: their records and their logs.
type Records interface {
	refstore.Store
	refstore.Streams
}

// Objects is what is asked of the object store here. Existence of an output is part
// of a hit; its size is what the workspace shows.
type Objects interface {
	objectstore.Store
	// Stat returns the size of an object in bytes, or objectstore.ErrNotFound.
	Stat(ctx context.Context, h objectstore.Hash) (int64, error)
}

// Store reads executions. It is safe for concurrent use.
type Store struct {
	records Records
	objects Objects
}

// NewStore returns a reader of the executions in records whose outputs are in objects.
func NewStore(records Records, objects Objects) *Store {
	return &Store{records: records, objects: objects}
}

// Execution is an execution as it is recorded.
type Execution struct {
	Key Key
	record.Status
	Detail   *record.Detail   // nil where none was recorded
	Metadata *record.Metadata // nil where it was made here

	version refstore.Version
}

func partition(k Key) string {
	return "EXECUTION/" + k.Task.String() + "/" + k.Inputs.String()
}

func recordKey(k Key, id string) refstore.Key {
	return refstore.Key{Partition: partition(k), Sort: id}
}

func logKey(k Key, id string, s Stream) refstore.Key {
	return refstore.Key{Partition: "LOG/" + k.Task.String() + "/" + k.Inputs.String() + "/" + id, Sort: string(s)}
}

// Get reads one execution with its detail and metadata.
func (s *Store) Get(ctx context.Context, k Key, id string) (*Execution, error) {
	rec, err := s.records.Get(ctx, recordKey(k, id), fieldDetail, fieldMetadata)
	if err != nil {
		return nil, fmt.Errorf("execution %s: %w", id, err)
	}
	return decode(k, rec)
}

func decode(k Key, rec refstore.Record) (*Execution, error) {
	id := rec.Key.Sort
	status, err := record.DecodeStatus(rec.Value)
	if err != nil {
		return nil, fmt.Errorf("execution %s: %w: %w", id, ErrMalformed, err)
	}
	if status.ExecutionID != id {
		return nil, fmt.Errorf("execution %s: %w: it names execution %q", id, ErrMalformed, status.ExecutionID)
	}
	e := &Execution{Key: k, Status: *status, version: rec.Version}
	for _, f := range rec.Fields {
		switch f.Name {
		case fieldDetail:
			e.Detail, err = record.DecodeDetail(f.Value)
		case fieldMetadata:
			e.Metadata, err = record.DecodeMetadata(f.Value)
		}
		if err != nil {
			return nil, fmt.Errorf("execution %s: %w: %w", id, ErrMalformed, err)
		}
	}
	return e, nil
}

// List yields every execution of a key, latest first. An execution that cannot be
// read comes with its error and does not end the list.
func (s *Store) List(ctx context.Context, k Key) iter.Seq2[*Execution, error] {
	return func(yield func(*Execution, error) bool) {
		q := refstore.Query{Partition: partition(k), Descending: true, Fields: []string{fieldDetail, fieldMetadata}}
		for rec, err := range s.records.List(ctx, q) {
			var e *Execution
			if err == nil {
				if _, bad := ParseID(rec.Key.Sort); bad != nil {
					continue // a stray file in the folder is nobody's execution
				}
				e, err = decode(k, rec)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Tasks yields every task hash that was ever executed.
func (s *Store) Tasks(ctx context.Context) iter.Seq2[objectstore.Hash, error] {
	return s.hashes(ctx, "TASKS")
}

// Inputs yields the inputs hashes under which a task was ever executed.
func (s *Store) Inputs(ctx context.Context, task objectstore.Hash) iter.Seq2[objectstore.Hash, error] {
	return s.hashes(ctx, "INPUTS/"+task.String())
}

func (s *Store) hashes(ctx context.Context, partition string) iter.Seq2[objectstore.Hash, error] {
	return func(yield func(objectstore.Hash, error) bool) {
		for rec, err := range s.records.List(ctx, refstore.Query{Partition: partition, KeysOnly: true}) {
			if err != nil {
				yield(objectstore.Hash{}, err)
				return
			}
			if h, err := objectstore.ParseHash(rec.Key.Sort); err == nil && !yield(h, nil) {
				return
			}
		}
	}
}

// ErrAmbiguous is wrapped by Find when a prefix fits several executions.
var ErrAmbiguous = errors.New("more than one execution has this prefix")

// Find looks an execution up by its id or a prefix of it, among those of a key.
func (s *Store) Find(ctx context.Context, k Key, prefix string) (*Execution, error) {
	var found []string
	q := refstore.Query{Partition: partition(k), Prefix: strings.ToLower(prefix), KeysOnly: true, Limit: 2}
	for rec, err := range s.records.List(ctx, q) {
		if err != nil {
			return nil, err
		}
		found = append(found, rec.Key.Sort)
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("execution %s: %w", prefix, ErrNotFound)
	case len(found) > 1 && !slices.Contains(found, prefix):
		return nil, fmt.Errorf("execution %s: %w", prefix, ErrAmbiguous)
	}
	return s.Get(ctx, k, found[0])
}

// OpenLog reads a log from a byte offset; what never printed anything reads as empty.
func (s *Store) OpenLog(ctx context.Context, k Key, id string, stream Stream, offset int64) (io.ReadCloser, error) {
	r, err := s.records.Open(ctx, logKey(k, id, stream), offset)
	if errors.Is(err, refstore.ErrNotFound) {
		return io.NopCloser(strings.NewReader("")), nil
	}
	return r, err
}

// FollowLog reads a log from its beginning and waits for more, until it is closed or the context
// ends. A log that does not exist yet is waited for.
func (s *Store) FollowLog(ctx context.Context, k Key, id string, stream Stream) (io.ReadCloser, error) {
	return s.records.Follow(ctx, logKey(k, id, stream), 0)
}

// LogSize returns the number of bytes that the log has now.
func (s *Store) LogSize(ctx context.Context, k Key, id string, stream Stream) (int64, error) {
	info, err := s.records.Size(ctx, logKey(k, id, stream))
	if errors.Is(err, refstore.ErrNotFound) {
		return 0, nil
	}
	return info.Size, err
}
