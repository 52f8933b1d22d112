package approval

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"
)

// maxPause bounds the pause between two failed reads.
const maxPause = 30 * time.Second

// Watch yields the decided blocks that a run waits for, each once, as soon as possible, including earlier decisions. A
// yielded decision counts as acted on. An unreadable block is also yielded once, as by List, because it can never be
// decided. Watch ends with ctx. A failed read is repeated (Options.Fault).
func (b *Blocks) Watch(ctx context.Context, ws, run string) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var changed <-chan struct{}
		if b.watcher != nil {
			changed, _ = b.watcher.Watch(ctx, partition(ws)) // without notifications it polls
		}
		told := reported{decided: map[string]bool{}, malformed: map[string]bool{}}
		again := time.Duration(0) // the pause after a failed read
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
				b.fault(fmt.Errorf("read the approvals of run %s, which continues once that succeeds: %w", run, err))
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

// news is a decided or unreadable block.
type news struct {
	block Block
	err   error
}

// reported is what a watcher has yielded.
type reported struct {
	decided   map[string]bool // by id
	malformed map[string]bool // tasks whose block was unreadable at the last read
}

// look returns the decided and unreadable blocks of a run that were not reported. They are collected before any is
// yielded, so that a slow consumer does not hold up a listing.
func (b *Blocks) look(ctx context.Context, ws, run string, told *reported) (found []news, err error) {
	malformed := map[string]bool{}
	for rec, err := range b.list(ctx, ws, "") {
		if err != nil {
			return nil, err
		}
		got, err := read(rec)
		switch {
		case err != nil:
			if malformed[got.Task] = true; !told.malformed[got.Task] {
				found = append(found, news{got, err})
			}
			continue
		case got.Run != run || !got.decided() || told.decided[got.ID]:
			continue
		}
		acted, ok, err := b.act(ctx, &got, rec.Version)
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", got.Task, err)
		}
		if ok {
			found = append(found, news{block: acted})
		} // otherwise the change that came between causes another read
	}
	told.malformed = malformed
	for i := range found {
		told.decided[found[i].block.ID] = true
	}
	slices.SortStableFunc(found, func(a, b news) int { return a.block.At.Compare(b.block.At) })
	return found, nil
}

// pause waits for a change, or for one polling interval if the store does not notify; after a failed read, for the
// duration failed.
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
