// Package verify checks a repository: every object against its name, every reference against its object, every record
// against its type and its place. It describes each fault with its place, the things that need the broken part, and a
// remedy. It repairs faults that need no guessing (doc/design.md, "Verifying").
//
// It may run at any time beside other processes, and blocks none. A suspected fault is checked again before it is
// reported: an object may just have been collected together with its references, or a record replaced.
package verify

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/internal/reach"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// Records are the repository's records and streams.
type Records interface {
	refstore.Store
	refstore.Streams
}

// Objects are the repository's objects. Shards may be walked at the same time.
type Objects interface {
	Sized
	WalkShard(ctx context.Context, first byte) iter.Seq2[objectstore.Entry, error]
	Verify(ctx context.Context, h objectstore.Hash) error
	Delete(ctx context.Context, h objectstore.Hash) error
	DeleteBefore(ctx context.Context, h objectstore.Hash, cutoff time.Time) (bool, error)
}

// Stores are the stores to check.
type Stores struct {
	Records    Records
	Objects    Objects
	Curator    *executions.Curator
	Jobs       *queue.Queue
	Workspaces *workspace.Workspaces
	Now        func() time.Time
	// Place is for objects outside the repository's folder: it returns an error if their place does not belong to this
	// repository.
	Place func(ctx context.Context) error
	// Format returns the faults of the repository's descriptions. nil: not checked.
	Format func(context.Context) ([]FormatFault, error)
	// Foreign tells of the entries of the repository's folder that e3 has not made. nil: not checked.
	Foreign func(ctx context.Context, tell func(where, problem string)) error
}

// FormatFault is a damaged or missing description of a repository.
type FormatFault struct {
	Where   string
	Err     error
	Missing bool // a copy that was never made, or is gone; only a note
	Mend    func(context.Context) error
}

// Sample is a part of the objects: part number Part, counted from 1, of the Of parts into which their names are
// divided. The zero Sample is all objects.
type Sample struct{ Part, Of int }

// IsZero reports whether the sample is everything.
func (s Sample) IsZero() bool { return s.Of == 0 }

// MarshalText writes k/n.
func (s Sample) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%d/%d", s.Part, s.Of), nil }

// UnmarshalText reads k/n; "" is everything.
func (s *Sample) UnmarshalText(text []byte) error {
	*s = Sample{}
	if len(text) == 0 {
		return nil
	}
	part, of, _ := strings.Cut(string(text), "/")
	k, err := strconv.Atoi(part)
	n, err2 := strconv.Atoi(of)
	*s = Sample{Part: k, Of: n}
	if err != nil || err2 != nil || n < 1 || n > 1_000_000 || s.Validate() != nil {
		return fmt.Errorf("a sample is the part k/n with k from 1 to n, not %q", text)
	}
	return nil
}

// Validate reports an impossible sample.
func (s Sample) Validate() error {
	if s == (Sample{}) || s.Part >= 1 && s.Part <= s.Of {
		return nil
	}
	return fmt.Errorf("a sample is the part k/n with k from 1 to n, not %d/%d", s.Part, s.Of)
}

// has reports whether an object is in the sample.
func (s Sample) has(h objectstore.Hash) bool {
	return s.Of == 0 || s.part(h) == s.Part
}

// part is the number of a name's part.
func (s Sample) part(h objectstore.Hash) int {
	at := uint64(h[0])<<24 | uint64(h[1])<<16 | uint64(h[2])<<8 | uint64(h[3])
	return int(at*uint64(s.Of)>>32) + 1
}

// hasShard reports whether a shard may have objects of the sample.
func (s Sample) hasShard(first byte) bool {
	low, high := objectstore.Hash{first}, objectstore.Hash{first, 0xff, 0xff, 0xff}
	return s.Of == 0 || s.part(low) <= s.Part && s.Part <= s.part(high)
}

// Options adjust a check.
type Options struct {
	Sample Sample // the objects to hash; everything else is checked completely
	Repair bool
	// Progress, if it is not nil, is called from time to time, by one goroutine at a time.
	Progress func(Progress)
}

// Phase is a part of a check.
type Phase string

// The phases of a check, in order.
const (
	Hashing    Phase = "hashing objects"
	Reading    Phase = "reading records"
	Following  Phase = "following references"
	Explaining Phase = "finding out what is concerned"
	Repairing  Phase = "repairing"
)

// Progress is the progress of a check.
type Progress struct {
	Phase       Phase
	Done, Total int // shards, while objects are hashed
	Bytes       int64
}

// Report is the result of a check.
type Report struct {
	Sample     Sample   `json:"sample,omitzero"` // k/n: only this share was hashed
	Objects    int64    `json:"objects"`         // hashed
	Bytes      int64    `json:"bytes"`           // hashed
	Executions int64    `json:"executions"`
	Workspaces int64    `json:"workspaces"`
	Packages   int64    `json:"packages"`
	Runs       int64    `json:"runs"`
	Faults     []Fault  `json:"faults"`
	Remaining  int      `json:"remaining"` // faults that were not repaired
	Notes      []string `json:"notes"`     // oddities
	Rerun      []string `json:"rerun"`     // <workspace>.<task>, to run again after a repair
	Inputs     []string `json:"inputs"`    // <workspace>.<input>, to set or deploy again after a repair
}

// FaultKind is a kind of fault, for programs; String is for display.
type FaultKind string

// The kinds of faults.
const (
	CorruptObject    FaultKind = "corruptObject"    // its bytes do not match its name
	MissingObject    FaultKind = "missingObject"    // something needs it, and it does not exist
	MalformedObject  FaultKind = "malformedObject"  // a reference expects other content
	UnreadableObject FaultKind = "unreadableObject" // the disk cannot read it
	BadRecord        FaultKind = "badRecord"        // it does not decode, or does not match its place
	BadEvents        FaultKind = "badEvents"        // a line is damaged or missing
	BadLog           FaultKind = "badLog"           // the disk cannot read it

	MissingExecution FaultKind = "missingExecution" // something names it, and it is not on record
	ForeignThing     FaultKind = "foreignThing"     // a link, or another thing that e3 makes nowhere
)

// String separates the words: "corrupt object".
func (k FaultKind) String() string {
	var b strings.Builder
	for _, r := range string(k) {
		if unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// A Fault is a defect of the repository.
type Fault struct {
	Kind     FaultKind `json:"kind"`
	Where    string    `json:"where"`         // such as objects/4f/…
	Problem  string    `json:"problem"`       // in words
	For      []string  `json:"for,omitempty"` // what needs it: "output of prod.train"
	More     int       `json:"more,omitempty"`
	Advice   string    `json:"advice,omitempty"` // what to do
	Repaired bool      `json:"repaired"`         // the fault is gone
	Remedy   string    `json:"remedy,omitempty"` // the repair

	object objectstore.Hash
	mend   func(context.Context) (remedy string, whole bool, err error) // nil: it cannot be repaired
}

// maxFor bounds Fault.For.
const maxFor = 20

// Verify checks a repository, and repairs it if asked to. Faults are not errors: an error means that the check could
// not be finished.
func Verify(ctx context.Context, s Stores, o Options) (*Report, error) {
	if err := o.Sample.Validate(); err != nil {
		return nil, err
	}
	v := newVerifier(s, o)
	for _, step := range []func(context.Context) error{v.foreign, v.format, v.place, v.hash, v.records, v.references} {
		if err := v.past(step(ctx)); err != nil {
			return nil, err
		}
	}
	if o.Repair && len(v.report.Faults) > 0 && v.strange.Load() == 0 {
		v.progress(Progress{Phase: Repairing})
		if err := v.repair(ctx); err != nil {
			return v.finish(), fmt.Errorf("repair: %w", err)
		}
	}
	return v.finish(), nil
}

func newVerifier(s Stores, o Options) *verifier {
	v := &verifier{
		Stores: s, Options: o, report: &Report{Sample: o.Sample, Faults: []Fault{}, Notes: []string{}, Rerun: []string{}, Inputs: []string{}},
		corrupt: map[objectstore.Hash]damage{}, retired: map[string]bool{}, strangeAt: map[string]bool{},
	}
	v.lists, v.eventLogs, v.promises = newLists(v), &eventLogs{verifier: v}, newPromises(v)
	return v
}

// place checks that the place of the objects belongs to this repository. A start refuses to write to another
// repository's place.
func (v *verifier) place(ctx context.Context) error {
	if v.Place == nil {
		return nil
	}
	err := v.Place(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		v.fault(Fault{
			Kind: BadRecord, Where: "repository.json", Problem: err.Error(), For: []string{"everything that is written here"},
			Advice: "if the objects there are this repository's alone, take them: e3 init --take-over <repo>",
		})
	}
	return nil
}

// verifier is one check.
type verifier struct {
	Stores
	Options
	corrupt map[objectstore.Hash]damage // objects that do not match their names, or cannot be read
	walk    *reach.Walker
	broken  *broken // what the walk could not follow
	concern concern
	retired map[string]bool            // ids of executions that a repair has removed
	outputs map[string]map[string]bool // workspace → tasks whose output a repair has removed

	lists     *lists
	eventLogs *eventLogs
	promises  *promises
	strange   atomic.Int64    // foreign entries
	strangeAt map[string]bool // under mu

	mu     sync.Mutex // guards the report, and calls of Progress
	report *Report
}

func (v *verifier) progress(p Progress) {
	if v.Progress != nil {
		v.Progress(p)
	}
}

func (v *verifier) fault(f Fault) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.strangeAt[f.Where] { // already reported
		return
	}
	if f.Kind == ForeignThing {
		v.strangeAt[f.Where] = true
	}
	v.report.Faults = append(v.report.Faults, f)
}

func (v *verifier) note(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report.Notes = append(v.report.Notes, fmt.Sprintf(format, args...))
}

func (v *verifier) count(n *int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	*n++
}

// finish puts everything in an order that does not depend on timing.
func (v *verifier) finish() *Report {
	r := v.report
	slices.SortStableFunc(r.Faults, func(a, b Fault) int { return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.Kind, b.Kind)) })
	for _, list := range []*[]string{&r.Notes, &r.Rerun, &r.Inputs} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	for i := range r.Faults {
		if !r.Faults[i].Repaired {
			r.Remaining++
		}
	}
	return r
}

// workers is the number of concurrent reads.
func (v *verifier) workers() int { return max(2*runtime.GOMAXPROCS(0), reach.Workers(v.Objects)) }

// drain reads to the end.
func drain(ctx context.Context, r io.ReadCloser) error {
	defer r.Close()
	_, err := io.Copy(io.Discard, contextReader{ctx, r})
	return err
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}

// repairer is the name under which a repair changes records.
const repairer = "e3 verify"

// rejection marks a success that has lost a part of its output.
func (v *verifier) rejection(reason string) *record.Rejection {
	return &record.Rejection{Rejected: true, By: repairer, At: v.Now(), Reason: reason}
}
