// Package approval keeps the approvals that tasks wait for (seed 002): a task needs a person's approval before it runs,
// or its command has suspended itself.
//
// A block stops one step of one task on one content, its key. It belongs to the workspace and outlives runs. A run asks
// (Ask). A person decides, also while no run is at work (Resolve, Withdraw). A run acts on the decision, once it is in
// the workspace's journal; from then on the decision is final. The step that follows an approval has a name of its own
// ([ResumeStep]), so its result is never mistaken for the result of the stopped step.
//
//	(none) ─ask→ pending ─approve→ approved ─act→ acted on ─ask, its command has suspended itself→ pending, anew
//	               │  ↑ ↑─withdraw────┘
//	               │  └─withdraw──────┐
//	               ├─reject→ rejected ┴─act→ acted on ─withdraw→ pending
//	               └─void→ closed
//	all ─ask afresh (--force)→ pending, anew          closed ─ask→ pending, anew
package approval

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"e3/refstore"
)

// Type says why a step is stopped.
type Type string

// The types of blocks.
const (
	Review  Type = "review"  // a person must approve before the task runs
	Suspend Type = "suspend" // the command ended with the exit code that requests approval
)

// Status is the state of a block.
type Status string

// The states of a block.
const (
	Pending  Status = "pending"
	Approved Status = "approved"
	Rejected Status = "rejected"
	Closed   Status = "closed" // no task waits for it any more
)

// Block is what stops a step of a task on one content, and its record: the tags name its fields there. Workspace and
// Task are in the record's key.
type Block struct {
	ID        string    `json:"id"` // UUIDv7
	Workspace string    `json:"-"`
	Task      string    `json:"-"`
	Type      Type      `json:"type"`
	Key       string    `json:"key"`                 // of the content, <taskHash>/<inputsHash>
	Run       string    `json:"run"`                 // the latest run that asked, or acted on the decision
	Step      string    `json:"step,omitempty"`      // the stopped step: "" is the first
	Execution string    `json:"execution,omitempty"` // the suspended execution; "" for a review
	Latest    string    `json:"latest,omitempty"`    // for a review: the latest execution of the key when the run asked, "" if there was none
	Status    Status    `json:"status"`
	Created   time.Time `json:"created"`
	At        time.Time `json:"at,omitzero"`  // when its status last changed; zero if never
	By        string    `json:"by,omitempty"` // user@host of that change
	Note      string    `json:"note,omitempty"`
	Acted     time.Time `json:"acted,omitzero"`   // when a run acted on the decision; zero: no run has
	Untold    int64     `json:"untold,omitempty"` // 0: the journal has the last status change; else it may have it, from this number on
}

// Resume is the step that follows the approval of a block.
func (b *Block) Resume() string { return ResumeStep(b.ID) }

// ResumeStep is the name of the step that follows the approval of a block.
func ResumeStep(id string) string { return "resume:" + id }

// TaskHash is the task's part of the key.
func (b *Block) TaskHash() string {
	task, _, _ := strings.Cut(b.Key, "/")
	return task
}

// seen is the latest execution of the key that the block accounts for.
func (b *Block) seen() string {
	if b.Type == Suspend {
		return b.Execution
	}
	return b.Latest
}

// decided tells whether the block was approved or rejected.
func (b *Block) decided() bool { return b.Status == Approved || b.Status == Rejected }

// ErrNotFound reports a block that does not exist.
var ErrNotFound = errors.New("nothing waits for approval")

// A ResolvedError says that a decision comes too late: the block was decided otherwise, a run has acted on the decision
// to withdraw, or no task waits any more.
type ResolvedError struct{ Block Block }

func (e *ResolvedError) Error() string {
	b := &e.Block
	if b.Status == Closed {
		text := fmt.Sprintf("task %s no longer waits for approval", b.Task)
		if b.Note != "" {
			text += ": " + b.Note
		}
		return text
	}
	text := fmt.Sprintf("task %s was %s already", b.Task, b.Status)
	if b.By != "" {
		text += " by " + b.By
	}
	if b.Note != "" {
		text += ": " + b.Note
	}
	if b.Status == Approved && !b.Acted.IsZero() {
		text += fmt.Sprintf(" (run %s has acted on it)", b.Run)
	}
	return text
}

// A Journal keeps the changes of blocks for readers of the workspace's history.
type Journal interface {
	// Next returns the number of the journal's next event, at least 1: later events have this number or a greater one.
	Next(ctx context.Context, ws string) (int64, error)
	// Tell durably records the last change of a block, unless the journal has it from that number on. Of several
	// processes that record the same change, one succeeds.
	Tell(ctx context.Context, b *Block, from int64) error
}

// Blocks are the blocks of a repository. They are safe for concurrent use, by any number of processes.
type Blocks struct {
	records refstore.Store
	watcher refstore.Watcher // nil if the store does not notify of changes
	journal Journal
	now     func() time.Time
	pace    time.Duration
	fault   func(error)
}

// Options configure Blocks.
type Options struct {
	Now     func() time.Time // required
	Journal Journal          // nil: changes are not recorded there
	// Pace is a waiter's polling interval if the store does not notify of changes; default 1 s.
	Pace time.Duration
	// Fault is called when a waiter's read fails, once until a read succeeds; the waiter retries. It may be nil.
	Fault func(error)
}

// New returns the blocks of a repository.
func New(records refstore.Store, o Options) *Blocks {
	if o.Pace <= 0 {
		o.Pace = time.Second
	}
	if o.Fault == nil {
		o.Fault = func(error) {}
	}
	if o.Journal == nil {
		o.Journal = mute{}
	}
	watcher, _ := records.(refstore.Watcher)
	return &Blocks{
		records: refstore.Unreadable{Store: records}, watcher: watcher, journal: o.Journal, now: o.Now, pace: o.Pace, fault: o.Fault,
	}
}

// mute is a journal that records nothing.
type mute struct{}

func (mute) Next(context.Context, string) (int64, error) { return 1, nil }

func (mute) Tell(context.Context, *Block, int64) error { return nil }

// Find returns the block of a task on a content, or ErrNotFound.
func (b *Blocks) Find(ctx context.Context, ws, task, key string) (Block, error) {
	found, _, err := b.get(ctx, RecordKey(ws, task, key))
	return found, err
}

func (b *Blocks) get(ctx context.Context, key refstore.Key) (Block, refstore.Version, error) {
	rec, err := b.records.Get(ctx, key)
	if errors.Is(err, refstore.ErrNotFound) {
		return Block{}, refstore.Absent, ErrNotFound
	}
	if err != nil {
		return Block{}, refstore.Absent, err
	}
	found, err := Decode(rec)
	return found, rec.Version, err
}

// put writes a block over a version of its record. False if another process changed that first, or may have.
func (b *Blocks) put(ctx context.Context, block *Block, version refstore.Version) (refstore.Version, bool, error) {
	if err := block.validate(); err != nil {
		return "", false, fmt.Errorf("block of task %.100s: %w", block.Task, err)
	}
	version, err := b.records.Put(ctx, refstore.Record{Key: block.key(), Value: block.encode(), Version: version})
	if again(err) {
		return "", false, nil
	}
	return version, err == nil, err
}

// again tells whether to read the record and decide again.
func again(err error) bool {
	return errors.Is(err, refstore.ErrConflict) || errors.Is(err, refstore.ErrInDoubt)
}

// clock is the time of a change, with the precision of records.
func (b *Blocks) clock() time.Time { return b.now().UTC().Truncate(time.Millisecond) }

// List yields the blocks of a workspace, or only of one task, ordered by task. An unreadable block is an error that
// wraps ErrMalformed and does not end the iteration; its workspace and task come from the key.
func (b *Blocks) List(ctx context.Context, ws, task string) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		for rec, err := range b.list(ctx, ws, prefix(task)) {
			var found Block
			if err == nil {
				if found, err = read(rec); task != "" && found.Task != task {
					continue // a task's name may be a prefix of another's
				}
			}
			if !yield(found, err) || err != nil && !errors.Is(err, ErrMalformed) {
				return
			}
		}
	}
}

func (b *Blocks) list(ctx context.Context, ws, prefix string) iter.Seq2[refstore.Record, error] {
	return b.records.List(ctx, refstore.Query{Partition: partition(ws), Prefix: prefix})
}

// read decodes a record. A damaged one has the workspace and the task of its key.
func read(rec refstore.Record) (Block, error) {
	found, err := Decode(rec)
	if err != nil {
		found.Workspace, found.Task = ownerOf(rec.Key)
	}
	return found, err
}

// Remove removes all blocks of a workspace. The caller holds the workspace.
func (b *Blocks) Remove(ctx context.Context, ws string) error {
	for rec, err := range b.records.List(ctx, refstore.Query{Partition: partition(ws), KeysOnly: true}) {
		if err == nil {
			err = b.delete(ctx, rec.Key)
		}
		if err != nil {
			return fmt.Errorf("remove the blocks of workspace %s: %w", ws, err)
		}
	}
	return nil
}

// delete removes a record, whatever its version.
func (b *Blocks) delete(ctx context.Context, key refstore.Key) error {
	for {
		rec, err := b.records.Get(ctx, key)
		if err == nil {
			if err = b.records.Delete(ctx, rec.Key, rec.Version); err == nil {
				return nil
			}
		}
		if errors.Is(err, refstore.ErrNotFound) {
			return nil
		}
		if !again(err) {
			return err
		}
	}
}
