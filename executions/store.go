package executions

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
)

// Fields of an execution's record, beside its status.
const (
	fieldOutput     = "output" // hash of the output + "\n", for people and the reference
	fieldDetail     = "detail.beast2"
	fieldRejected   = "rejected.beast2"
	fieldSignature  = "signature.beast2" // absent if its maker had no key
	fieldMetadata   = "metadata.beast2"
	fieldProvenance = "provenance.beast2"
	fieldJob        = "job" // Job.Ref of an announced execution; only read where needed
)

// sideFields are the fields that an Execution is decoded from.
var sideFields = []string{fieldDetail, fieldRejected, fieldSignature, fieldMetadata, fieldProvenance}

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

// Objects is the part of an object store that a Store needs. A hit requires that its output exists, and carries its
// size.
type Objects interface {
	objectstore.Store
	// Stat returns the size of an object in bytes, or objectstore.ErrNotFound.
	Stat(ctx context.Context, h objectstore.Hash) (int64, error)
}

// Store reads executions. It is safe for concurrent use.
type Store struct {
	records  Records
	objects  Objects
	presumes bool
	parallel int     // how many keys are read at a time
	working  Working // nil: jobs keep nothing alive
	demands  Demands // nil: all executions count
	tell     func(error)
	kinds    *kinds
}

// presumer is an object store whose objects, once recorded, need no check: only collections remove objects, and never
// those that a record names. A check would be a request.
type presumer interface{ Presumes() bool }

// NewStore returns a reader of the executions in records whose outputs are in objects.
func NewStore(records Records, objects Objects) *Store {
	p, ok := objects.(presumer)
	s := &Store{records: records, objects: objects, presumes: ok && p.Presumes(), parallel: 1, kinds: &kinds{}}
	if far, ok := objects.(interface{ Parallel() int }); ok { // if objects are remote, records mostly are too
		s.parallel = far.Parallel()
	}
	return s
}

// WithObjects returns a store of the same executions whose outputs are in other objects.
func (s *Store) WithObjects(objects Objects) *Store {
	p, ok := objects.(presumer)
	with := *s
	with.objects, with.presumes, with.kinds = objects, ok && p.Presumes(), &kinds{}
	return &with
}

// Telling returns a store over the same records whose curators call tell once, with its cause, in each wait of more
// than a second for another process.
func (s *Store) Telling(tell func(error)) *Store {
	with := *s
	with.tell = tell
	return &with
}

// Execution is an execution as it is recorded.
type Execution struct {
	Key Key
	record.Status
	Detail     *record.Detail     // nil if none was recorded
	Rejection  *record.Rejection  // nil if it was never rejected
	Signature  *record.Signature  // not verified; nil if the maker had no key, or if the field was not requested (Lookup)
	Metadata   *record.Metadata   // nil if it was made here
	Provenance *record.Provenance // nil if it was made here

	version refstore.Version
}

// Rejected tells whether the execution is rejected, and the rejection has not been taken back.
func (e *Execution) Rejected() bool { return e.Rejection != nil && e.Rejection.Rejected }

// TaskName names the task of an execution, with its workspace, as far as it is recorded.
func (e *Execution) TaskName() string {
	switch d := e.Detail; {
	case d == nil || d.Task == "":
		return "task " + e.Key.Task.Short()
	case d.Workspace == "":
		return d.Task
	default:
		return d.Workspace + "." + d.Task
	}
}

var errOutput = errors.New("its file output is not what its status names")

// A RecordError says which execution cannot be read. It wraps ErrMalformed.
type RecordError struct {
	Key         Key
	ExecutionID string
	Err         error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("execution %s: %v: %v", e.ExecutionID, ErrMalformed, e.Err)
}

// Unwrap returns ErrMalformed and the reason.
func (e *RecordError) Unwrap() []error { return []error{ErrMalformed, e.Err} }

func partition(k Key) string {
	return "EXECUTION/" + k.Task.String() + "/" + k.Inputs.String()
}

func recordKey(k Key, id string) refstore.Key {
	return refstore.Key{Partition: partition(k), Sort: id}
}

func logKey(k Key, id string, s Stream) refstore.Key {
	return refstore.Key{Partition: "LOG/" + k.Task.String() + "/" + k.Inputs.String() + "/" + id, Sort: string(s)}
}

// outputField names the output of a success for readers that do not decode its status.
func outputField(s *record.Status) refstore.Field {
	return refstore.Field{Name: fieldOutput, Value: []byte(s.OutputHash + "\n")}
}

// Get reads one execution with its side fields.
func (s *Store) Get(ctx context.Context, k Key, id string) (*Execution, error) {
	if _, err := ParseID(id); err != nil { // events may name anything
		return nil, fmt.Errorf("execution %.40q: %w", id, ErrNotFound)
	}
	rec, err := s.records.Get(ctx, recordKey(k, id), sideFields...)
	e, err := decodeFound(k, rec, err)
	if bad := (*RecordError)(nil); err != nil && !errors.As(err, &bad) {
		return nil, fmt.Errorf("execution %s: %w", id, err)
	}
	return e, err
}

// decodeFound decodes a record, or returns the error of reading it. A damaged record yields a RecordError.
func decodeFound(k Key, rec refstore.Record, err error) (*Execution, error) {
	switch {
	case errors.Is(err, refstore.ErrDamaged):
		return nil, &RecordError{Key: k, ExecutionID: rec.Key.Sort, Err: err}
	case err != nil:
		return nil, err
	}
	return decode(k, rec)
}

// decode reads a record with the side fields that were requested. Its error is a RecordError.
func decode(k Key, rec refstore.Record) (*Execution, error) {
	id := rec.Key.Sort
	fail := func(err error) (*Execution, error) { return nil, &RecordError{Key: k, ExecutionID: id, Err: err} }
	status, err := record.DecodeStatus(rec.Value)
	if err != nil {
		return fail(err)
	}
	if status.ExecutionID != id {
		return fail(fmt.Errorf("it names execution %q", status.ExecutionID))
	}
	e := &Execution{Key: k, Status: *status, version: rec.Version}
	for _, f := range rec.Fields {
		switch f.Name {
		case fieldDetail:
			e.Detail, err = record.DecodeDetail(f.Value)
		case fieldRejected:
			e.Rejection, err = record.DecodeRejection(f.Value)
		case fieldSignature:
			e.Signature, err = record.DecodeSignature(f.Value)
		case fieldMetadata:
			e.Metadata, err = record.DecodeMetadata(f.Value)
		case fieldProvenance:
			e.Provenance, err = record.DecodeProvenance(f.Value)
		}
		if err != nil {
			return fail(err)
		}
	}
	return e, nil
}

// List yields every execution of a key, latest first. An execution that cannot be read comes with its RecordError and
// does not end the list.
func (s *Store) List(ctx context.Context, k Key) iter.Seq2[*Execution, error] {
	return s.list(ctx, refstore.Query{Partition: partition(k), Descending: true, Fields: sideFields}, k)
}

// Checked is List for a check of the repository: an execution whose file output differs from its status comes with a RecordError
// too.
func (s *Store) Checked(ctx context.Context, k Key) iter.Seq2[*Execution, error] {
	return s.list(ctx, refstore.Query{Partition: partition(k), Descending: true, Fields: append(sideFields[:len(sideFields):len(sideFields)], fieldOutput)}, k)
}

// Statuses yields every execution of a key, earliest first, without side fields. An execution that cannot be read
// comes with its RecordError and does not end the list.
func (s *Store) Statuses(ctx context.Context, k Key) iter.Seq2[*Execution, error] {
	return s.list(ctx, refstore.Query{Partition: partition(k)}, k)
}

func (s *Store) list(ctx context.Context, q refstore.Query, k Key) iter.Seq2[*Execution, error] {
	return func(yield func(*Execution, error) bool) {
		for rec, err := range s.records.List(ctx, q) {
			if err == nil || errors.Is(err, refstore.ErrDamaged) {
				if _, bad := ParseID(rec.Key.Sort); bad != nil {
					continue // a stray file in the folder
				}
			}
			e, err := decodeFound(k, rec, err)
			if err == nil && e.State == record.Success && slices.Contains(q.Fields, fieldOutput) {
				if text, _ := rec.Field(fieldOutput); string(text) != e.OutputHash+"\n" {
					e, err = nil, &RecordError{Key: k, ExecutionID: rec.Key.Sort, Err: errOutput}
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// TasksPartition lists the tasks that have executions.
const TasksPartition = "TASKS"

// Tasks yields every task hash that was ever executed.
func (s *Store) Tasks(ctx context.Context) iter.Seq2[objectstore.Hash, error] {
	return s.hashes(ctx, TasksPartition)
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
