// Package approval keeps the decisions that a run waits for (seed 002): a task needs a person's approval before it
// runs, or its command has suspended itself.
//
// A block stops one step of one task in one run; at most one block of a task is pending at a time. The run makes it.
// Anybody resolves it, once, or the process that ends the run closes it. The step that follows an approval has a name
// of its own ([ResumeStep]), so its result is never mistaken for that of the stopped step.
//
//	(none) ─create→ pending ─resolve→ approved
//	                  │  └────resolve→ rejected
//	                  └───────close──→ closed
//	approved ─create, of a later step→ pending
package approval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"e3/refstore"
)

// Type says why a step is stopped.
type Type string

// The types of blocks.
const (
	Review  Type = "review"  // a person must approve before the task runs
	Suspend Type = "suspend" // the command has ended with the exit code that asks to be resumed
)

// Status is the state of a block.
type Status string

// The states of a block.
const (
	Pending  Status = "pending"
	Approved Status = "approved"
	Rejected Status = "rejected"
	Closed   Status = "closed" // the run ended before a decision
)

// Block is what stops a step of a task in a run.
type Block struct {
	ID        string // UUIDv7
	Workspace string
	Run       string
	Task      string
	Step      string // the stopped step: "" is the first
	Type      Type
	Execution string // the suspended execution; "" for a review
	Status    Status
	Created   time.Time
	At        time.Time // when it was resolved or closed; zero while it is pending
	By        string    // user@host that resolved it
	Note      string
}

// Resume is the step that follows the approval of a block.
func (b *Block) Resume() string { return ResumeStep(b.ID) }

// ResumeStep is the name of the step that follows the approval of a block.
func ResumeStep(id string) string { return "resume:" + id }

// ErrNotFound reports a block that does not exist.
var ErrNotFound = errors.New("nothing waits for approval")

// A ResolvedError says that a block can no longer be resolved: it was decided otherwise, or the run has ended.
type ResolvedError struct{ Block Block }

func (e *ResolvedError) Error() string {
	b := &e.Block
	if b.Status == Closed {
		return fmt.Sprintf("task %s waits for nothing any more: run %s has ended", b.Task, b.Run)
	}
	text := fmt.Sprintf("task %s was %s already", b.Task, b.Status)
	if b.By != "" {
		text += " by " + b.By
	}
	if b.Note != "" {
		text += ": " + b.Note
	}
	return text
}

// Blocks are the blocks of a repository. They are safe for concurrent use, by any number of processes.
type Blocks struct {
	records refstore.Store
	watcher refstore.Watcher // nil if the store does not notify of changes
	now     func() time.Time
	pace    time.Duration
	fault   func(error)
}

// Options say how blocks are kept.
type Options struct {
	Now func() time.Time // required
	// Pace is a waiter's polling interval if the store does not notify of changes; default 1 s.
	Pace time.Duration
	// Fault is called when a waiter's look fails, once until a look succeeds; the waiter tries again. It may be nil.
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
	watcher, _ := records.(refstore.Watcher)
	return &Blocks{records: refstore.Unreadable{Store: records}, watcher: watcher, now: o.Now, pace: o.Pace, fault: o.Fault}
}

// Create makes and returns a block of the workspace, run, task, step, type and execution of want. Repeating it for
// the same step changes nothing and returns that step's block as it is. While another step of the task is stopped it
// fails with refstore.ErrConflict.
func (b *Blocks) Create(ctx context.Context, want Block) (Block, error) {
	want.Status, want.At, want.By, want.Note = Pending, time.Time{}, "", ""
	want.Created = b.now().UTC().Truncate(time.Millisecond)
	id, err := uuid.NewV7()
	if err != nil {
		return Block{}, fmt.Errorf("make the id of a block: %w", err)
	}
	want.ID = id.String()
	if err := want.validate(); err != nil {
		return Block{}, fmt.Errorf("block of task %.100s: %w", want.Task, err)
	}
	fail := func(err error) (Block, error) {
		return Block{}, fmt.Errorf("stop task %s for approval: %w", want.Task, err)
	}
	for {
		old, version, err := b.get(ctx, want.Workspace, want.Run, want.Task)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return fail(err)
		case old.Step == want.Step:
			return old, nil
		case old.Status == Pending:
			return fail(fmt.Errorf("its step %q is stopped: %w", old.Step, refstore.ErrConflict))
		}
		_, err = b.records.Put(ctx, refstore.Record{Key: key(want.Workspace, want.Run, want.Task), Value: want.encode(), Version: version})
		switch {
		case err == nil:
			return want, nil
		case !again(err):
			return fail(err)
		}
	}
}

// again tells whether to read the record and decide anew.
func again(err error) bool {
	return errors.Is(err, refstore.ErrConflict) || errors.Is(err, refstore.ErrInDoubt)
}

// Get returns the latest block of a task in a run. ErrNotFound.
func (b *Blocks) Get(ctx context.Context, ws, run, task string) (Block, error) {
	found, _, err := b.get(ctx, ws, run, task)
	return found, err
}

func (b *Blocks) get(ctx context.Context, ws, run, task string) (Block, refstore.Version, error) {
	rec, err := b.records.Get(ctx, key(ws, run, task))
	if errors.Is(err, refstore.ErrNotFound) {
		return Block{}, refstore.Absent, ErrNotFound
	}
	if err != nil {
		return Block{}, refstore.Absent, err
	}
	found, err := Decode(rec)
	return found, rec.Version, err
}

// A Resolution is a person's decision.
type Resolution struct {
	Approve bool
	By      string // user@host
	Note    string // why, for later readers
}

func (r *Resolution) status() Status {
	if r.Approve {
		return Approved
	}
	return Rejected
}

// Resolve decides about the latest block of a task in a run, if its id is the given one or that is "". changed is
// false if the same decision was made already. ErrNotFound, *ResolvedError.
func (b *Blocks) Resolve(ctx context.Context, ws, run, task, id string, r Resolution) (resolved Block, changed bool, err error) {
	for {
		found, version, err := b.get(ctx, ws, run, task)
		switch {
		case err != nil:
			return Block{}, false, err
		case id != "" && found.ID != id:
			return Block{}, false, ErrNotFound
		case found.Status == r.status():
			return found, false, nil
		case found.Status != Pending:
			return Block{}, false, &ResolvedError{found}
		}
		id = found.ID // the decision is about the block that was read
		found.Status, found.By, found.Note = r.status(), shorten(r.By, maxBy), shorten(r.Note, maxNote)
		if changed, err = b.move(ctx, &found, version); err != nil || changed {
			return found, changed, err
		}
	}
}

// move writes a decided block; false if another process changed the block first.
func (b *Blocks) move(ctx context.Context, block *Block, version refstore.Version) (bool, error) {
	block.At = b.now().UTC().Truncate(time.Millisecond)
	_, err := b.records.Put(ctx, refstore.Record{Key: block.key(), Value: block.encode(), Version: version})
	if again(err) {
		return false, nil
	}
	return err == nil, err
}

// List yields the latest block of each task of a run, or of all runs for "", ordered by run and name. A block that
// cannot be read is an error that wraps ErrMalformed and does not end the iteration; its workspace, run and task come
// from the key.
func (b *Blocks) List(ctx context.Context, ws, run string) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		for rec, err := range b.records.List(ctx, refstore.Query{Partition: partition(ws), Prefix: prefix(run)}) {
			var found Block
			if err == nil {
				if found, err = Decode(rec); err != nil {
					found.Workspace = ws
					found.Run, found.Task, _ = strings.Cut(rec.Key.Sort, "/")
				}
			}
			if !yield(found, err) || err != nil && !errors.Is(err, ErrMalformed) {
				return
			}
		}
	}
}

// Close closes the pending blocks of a run that has ended. Decisions stay.
func (b *Blocks) Close(ctx context.Context, ws, run string) error {
	for rec, err := range b.records.List(ctx, refstore.Query{Partition: partition(ws), Prefix: prefix(run)}) {
		for err == nil {
			var found Block
			if found, err = Decode(rec); err != nil || found.Status != Pending {
				err = nil // it does not wait, or cannot be read
				break
			}
			found.Status = Closed
			var moved bool
			if moved, err = b.move(ctx, &found, rec.Version); err != nil || moved {
				break
			}
			if rec, err = b.records.Get(ctx, rec.Key); errors.Is(err, refstore.ErrNotFound) {
				err = nil
				break
			}
		}
		if err != nil {
			return fmt.Errorf("close what waits for approval in run %s: %w", run, err)
		}
	}
	return nil
}

// Remove removes the blocks of a workspace's runs before one, by their ids; "" for all of them. The caller holds the
// workspace, so that none of these runs is under way.
func (b *Blocks) Remove(ctx context.Context, ws, before string) error {
	for rec, err := range b.records.List(ctx, refstore.Query{Partition: partition(ws), KeysOnly: true}) {
		if err == nil && before != "" && rec.Key.Sort >= prefix(before) {
			return nil
		}
		for err == nil {
			if rec, err = b.records.Get(ctx, rec.Key); err == nil {
				if err = b.records.Delete(ctx, rec.Key, rec.Version); err == nil {
					break
				}
			}
			if again(err) {
				err = nil
			}
		}
		if err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return fmt.Errorf("remove what waited for approval in workspace %s: %w", ws, err)
		}
	}
	return nil
}

// maxPause bounds the pause between two looks that fail.
const maxPause = 30 * time.Second

// Watch yields each block of a run once, as soon as it is decided; also those decided before. A block that cannot be
// read is yielded once too, as by List, because it can never be decided. Watch ends with ctx. A look that fails is
// repeated (Options.Fault).
func (b *Blocks) Watch(ctx context.Context, ws, run string) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var changed <-chan struct{}
		if b.watcher != nil {
			changed, _ = b.watcher.Watch(ctx, partition(ws)) // without notifications it polls
		}
		told := reported{decided: map[string]bool{}, malformed: map[string]bool{}}
		again := time.Duration(0) // the pause after a look that has failed
		for {
			news, err := b.look(ctx, ws, run, &told)
			if ctx.Err() != nil {
				return
			}
			for _, n := range news {
				if !yield(n.block, n.err) {
					return
				}
			}
			switch {
			case err == nil:
				again = 0
			case again == 0:
				b.fault(fmt.Errorf("look for what was approved in run %s, which goes on as soon as that succeeds: %w", run, err))
				again = b.pace
			default:
				again = min(2*again, max(maxPause, b.pace))
			}
			if !b.pause(ctx, &changed, again) {
				return
			}
		}
	}
}

// news is a block that was decided, or that cannot be read.
type news struct {
	block Block
	err   error
}

// reported is what a watcher has yielded.
type reported struct {
	decided   map[string]bool // by id
	malformed map[string]bool // tasks whose block could not be read at the last look
}

// look returns the decided and unreadable blocks of a run that were not reported. They are collected before any is
// yielded, so that a slow consumer does not hold up a listing.
func (b *Blocks) look(ctx context.Context, ws, run string, told *reported) (found []news, err error) {
	malformed := map[string]bool{}
	for got, err := range b.List(ctx, ws, run) {
		switch {
		case errors.Is(err, ErrMalformed):
			if malformed[got.Task] = true; !told.malformed[got.Task] {
				found = append(found, news{got, err})
			}
		case err != nil:
			return nil, err
		case got.Status != Pending && !told.decided[got.ID]:
			found = append(found, news{block: got})
		}
	}
	told.malformed = malformed
	for i := range found {
		told.decided[found[i].block.ID] = true
	}
	slices.SortStableFunc(found, func(a, b news) int { return a.block.At.Compare(b.block.At) })
	return found, nil
}

// pause waits for a change, or for a pace if the store does not notify; after a failed look, for as long as failed
// says.
func (b *Blocks) pause(ctx context.Context, changed *<-chan struct{}, failed time.Duration) bool {
	var again <-chan time.Time
	told := *changed
	if failed > 0 || told == nil {
		t := time.NewTimer(cmp.Or(failed, b.pace))
		defer t.Stop()
		again = t.C
	}
	if failed > 0 {
		told = nil
	}
	select {
	case <-ctx.Done():
		return false
	case _, open := <-told:
		if !open {
			*changed = nil
		}
	case <-again:
	}
	return true
}
