package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"e3/refstore"
)

// A Question is a run's question: may a task continue, on this content?
type Question struct {
	Workspace string
	Run       string
	Task      string
	Key       string // <taskHash>/<inputsHash>
	Review    bool   // the task needs approval before it runs
	Fresh     bool   // ignore earlier decisions: --force
	Suspended string // the latest execution of the key, if its command has suspended itself; else ""
	Latest    string // the latest execution of the key, "" if there is none
}

// Reasons why blocks are closed.
const (
	becauseForced  = "--force asks again"
	becauseChanged = "the task or its inputs have changed"
	becauseSettled = "the task has an answer, or is not there any more"
)

// Ask returns the block that stops the task, or that lets it continue as the step [Block.Resume]. A zero block means
// that nothing stops its first step. A decision that is returned is in the journal, and counts as acted on. The same
// question of the same run or a later one returns the same block, unless it is Fresh. A new block closes the task's
// blocks on other contents that wait for earlier runs.
func (b *Blocks) Ask(ctx context.Context, q Question) (Block, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Block{}, fmt.Errorf("make the id of a block: %w", err)
	}
	found, err := b.ask(ctx, &q, id.String())
	if err != nil {
		return Block{}, fmt.Errorf("stop task %s for approval: %w", q.Task, err)
	}
	return found, nil
}

func (b *Blocks) ask(ctx context.Context, q *Question, id string) (Block, error) {
	for {
		old, version, err := b.get(ctx, RecordKey(q.Workspace, q.Task, q.Key))
		none := errors.Is(err, ErrNotFound)
		switch {
		case err != nil && !none:
			return Block{}, err
		case old.ID == id: // the response to the write was lost
			return old, b.closeOthers(ctx, &old)
		}
		want, same := q.next(&old, none)
		switch {
		case want == nil:
			return Block{}, nil
		case same:
			found, ok, err := b.take(ctx, &old, version, q.Run)
			if err != nil || ok {
				return found, err
			}
			continue
		case !none && (old.Untold > 0 || old.Status != Closed && old.Acted.IsZero()): // the journal must have it before its record is replaced
			_, _, err := b.close(ctx, &old, version, becauseForced)
			if err != nil {
				return Block{}, err
			}
			continue
		}
		want.ID, want.Created = id, b.clock()
		_, ok, err := b.put(ctx, want, version)
		if err != nil {
			return Block{}, err
		}
		if ok {
			return *want, b.closeOthers(ctx, want)
		}
	}
}

// next is the block that the question leads to; nil if nothing stops the task. same says that it is the old block.
func (q *Question) next(old *Block, none bool) (want *Block, same bool) {
	want = &Block{Workspace: q.Workspace, Run: q.Run, Task: q.Task, Key: q.Key, Status: Pending}
	switch {
	case none || q.Fresh || old.Status == Closed || old.Type == Review && !q.Review && old.Status != Approved:
		switch {
		case q.Suspended != "": // if a review was needed, it was given before the command ran
			want.Type, want.Execution = Suspend, q.Suspended
		case q.Review:
			want.Type, want.Latest = Review, q.Latest
		default:
			return nil, false
		}
		return want, false
	case old.Status == Approved && q.Suspended > old.seen():
		want.Type, want.Execution, want.Step = Suspend, q.Suspended, old.Resume()
		return want, false
	}
	return old, true
}

// take assigns an existing block to a run, which acts on a decision, or waits for a pending block. False if another
// process changed it first.
func (b *Blocks) take(ctx context.Context, block *Block, version refstore.Version, run string) (Block, bool, error) {
	known := block.Run >= run && block.Untold == 0 && block.decided() == !block.Acted.IsZero()
	block.Run = max(block.Run, run)
	if known {
		return *block, true, b.closeOthers(ctx, block)
	}
	var found Block
	var ok bool
	var err error
	if block.decided() {
		found, ok, err = b.act(ctx, block, version)
	} else {
		_, ok, err = b.put(ctx, block, version)
		found = *block
	}
	if err != nil || !ok {
		return Block{}, false, err
	}
	return found, true, b.closeOthers(ctx, &found)
}

// act marks a decision as acted on, once it is in the journal. False if another process changed the block first.
func (b *Blocks) act(ctx context.Context, block *Block, version refstore.Version) (Block, bool, error) {
	if block.Untold > 0 {
		if err := b.journal.Tell(ctx, block, block.Untold); err != nil {
			return Block{}, false, err
		}
		block.Untold = 0
	}
	if block.Acted.IsZero() {
		block.Acted = b.clock()
	}
	_, ok, err := b.put(ctx, block, version)
	return *block, ok, err
}

// tell records a change that may be missing in the journal. False if another process changed the block first.
func (b *Blocks) tell(ctx context.Context, block *Block, version refstore.Version) (refstore.Version, bool, error) {
	if err := b.journal.Tell(ctx, block, block.Untold); err != nil {
		return "", false, err
	}
	block.Untold = 0
	return b.put(ctx, block, version)
}

// close closes a block that no run waits for any more, after recording an unrecorded change. False if another process
// changed the block first.
func (b *Blocks) close(ctx context.Context, block *Block, version refstore.Version, why string) (refstore.Version, bool, error) {
	if block.Untold > 0 {
		var ok bool
		var err error
		if version, ok, err = b.tell(ctx, block, version); err != nil || !ok {
			return "", false, err
		}
	}
	if block.Status == Closed {
		return version, true, nil
	}
	block.Status, block.By, block.Note = Closed, "", why
	return b.change(ctx, block, version)
}

// change writes a changed status to the record, then to the journal, and then marks it as recorded. A process that
// finds an unrecorded change first records it, so that every effective decision has an event.
func (b *Blocks) change(ctx context.Context, block *Block, version refstore.Version) (refstore.Version, bool, error) {
	at := b.clock()
	if !at.After(block.At) { // each change of a block has a time of its own, whatever the clocks
		at = block.At.Add(time.Millisecond)
	}
	from, err := b.journal.Next(ctx, block.Workspace)
	if err != nil {
		return "", false, err
	}
	block.At, block.Untold = at, from
	version, ok, err := b.put(ctx, block, version)
	if err != nil || !ok {
		return "", false, err
	}
	if err := b.journal.Tell(ctx, block, from); err != nil {
		return "", false, err
	}
	block.Untold = 0
	next, ok, err := b.put(ctx, block, version)
	if err == nil && ok {
		version = next
	} // otherwise another process continues it, or records it again
	return version, true, nil
}

// keep is how many decisions about a task's other contents are kept after a run has acted on them.
const keep = 8

// closeOthers closes and removes a task's blocks on other contents that wait for earlier runs, and removes old
// decisions. Decisions that no run has acted on stay. It leaves blocks of later runs: if there are any, this run is no
// longer at work.
func (b *Blocks) closeOthers(ctx context.Context, present *Block) error {
	var old []Block
	versions := map[string]refstore.Version{}
	for rec, err := range b.list(ctx, present.Workspace, prefix(present.Task)) {
		if err != nil {
			return err
		}
		other, err := Decode(rec)
		switch {
		case err != nil || other.Task != present.Task || other.Key == present.Key || other.Run > present.Run:
			continue // an unreadable block concerns only its own content
		case other.decided() && other.Acted.IsZero():
			continue
		case other.decided():
			versions[other.ID] = rec.Version
			old = append(old, other)
			continue
		}
		if err := b.drop(ctx, &other, rec.Version, becauseChanged); err != nil {
			return err
		}
	}
	slices.SortFunc(old, func(x, y Block) int { return y.At.Compare(x.At) })
	for i := keep; i < len(old); i++ {
		if err := b.records.Delete(ctx, old[i].key(), versions[old[i].ID]); err != nil && !again(err) && !errors.Is(err, refstore.ErrNotFound) {
			return err
		}
	}
	return nil
}

// drop closes a block and removes its record, unless another process has changed it.
func (b *Blocks) drop(ctx context.Context, block *Block, version refstore.Version, why string) error {
	version, ok, err := b.close(ctx, block, version, why)
	if err != nil || !ok {
		return err
	}
	err = b.records.Delete(ctx, block.key(), version)
	if again(err) || errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	return err
}

// Settle closes and removes blocks that wait for this run or earlier runs, if the run has settled their tasks: these
// have an answer, have failed otherwise, or no longer exist.
func (b *Blocks) Settle(ctx context.Context, ws, run string, settled func(task string) bool) error {
	for rec, err := range b.list(ctx, ws, "") {
		if err == nil {
			var block Block
			if block, err = Decode(rec); err != nil || block.decided() || block.Run > run || !settled(block.Task) {
				continue
			}
			err = b.drop(ctx, &block, rec.Version, becauseSettled)
		}
		if err != nil {
			return fmt.Errorf("close the blocks of workspace %s: %w", ws, err)
		}
	}
	return nil
}
