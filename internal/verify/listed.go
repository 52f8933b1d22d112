package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"e3/refstore"
)

// lists compares the indexes of executions and runs with their records. Each index entry is written before its record
// and removed after it. So an entry without a record comes from a removal or from a process that died between the two
// writes.
type lists struct {
	*verifier
	index refstore.Index         // nil where records are listed by themselves
	seen  map[uuid.UUID]struct{} // executions that were listed by their keys; under mu
}

func newLists(v *verifier) *lists {
	l := &lists{verifier: v, seen: map[uuid.UUID]struct{}{}}
	if r, ok := v.Records.(refstore.Indexed); ok {
		l.index = r.Index()
	}
	return l
}

// saw notes an execution that was listed by its key.
func (l *lists) saw(id string) {
	u, err := uuid.Parse(id)
	if l.index == nil || err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[u] = struct{}{}
}

// executions compares the executions in the index by id with those that were listed by key.
func (l *lists) executions(ctx context.Context) error {
	if l.index == nil {
		return nil
	}
	for key, err := range l.index.Executions(ctx) {
		if err != nil {
			return err
		}
		id, err := uuid.Parse(key.Sort)
		if err != nil {
			continue
		}
		if _, seen := l.seen[id]; !seen {
			if err := l.unseen(ctx, key); err != nil {
				return err
			}
		}
		delete(l.seen, id)
	}
	if len(l.seen) == 0 {
		return nil
	}
	// The remaining ones are found only by their keys, or were removed meanwhile.
	for k, err := range l.Curator.Keys(ctx) {
		if err != nil {
			return err
		}
		for rec, err := range l.Records.List(ctx, refstore.Query{Partition: "EXECUTION/" + k.String(), KeysOnly: true}) {
			if err != nil {
				return err
			}
			if id, err := uuid.Parse(rec.Key.Sort); err == nil {
				if _, left := l.seen[id]; left {
					if err := l.entered(ctx, rec.Key); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// unseen checks an execution that is found by its id and was not listed by its key.
func (l *lists) unseen(ctx context.Context, key refstore.Key) error {
	_, err := l.Records.Get(ctx, key)
	if !errors.Is(err, refstore.ErrNotFound) {
		if err != nil && !errors.Is(err, refstore.ErrDamaged) {
			return err
		}
		return l.entered(ctx, key)
	}
	if entered, err := l.index.Has(ctx, key); err != nil || !entered {
		return err // it was deleted meanwhile
	}
	if !l.Repair {
		l.note("execution %s is listed by its id and is not on record: it was removed, or a process died before it was written", key.Sort)
		return nil
	}
	l.note("execution %s was listed by its id and is not on record: it was removed, or a process died before it was written; it is not listed any more", key.Sort)
	if err := l.Records.Delete(ctx, key, refstore.Absent); !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrConflict) {
		return err
	}
	if _, err := l.Records.Get(ctx, key); !errors.Is(err, refstore.ErrNotFound) { // it was added after the listing
		return errors.Join(err, l.index.Put(ctx, key))
	}
	return nil
}

// entered checks that every index lists a record and that every way of reading it finds it.
func (l *lists) entered(ctx context.Context, key refstore.Key) error {
	entered, err := l.index.Has(ctx, key)
	if err != nil || entered {
		return err
	}
	if _, err := l.Records.Get(ctx, key); errors.Is(err, refstore.ErrNotFound) {
		return nil // and the record too
	}
	kind, where, _ := strings.Cut(key.Partition, "/")
	f := Fault{
		Kind: BadRecord, Where: "executions/" + where + "/" + key.Sort, Problem: "what says that it is there is gone: it is not listed, or not found by its id",
		For: []string{"execution " + key.Sort}, Advice: "with --repair it is written again",
		mend: func(ctx context.Context) (string, bool, error) {
			err := l.index.Put(ctx, key)
			return "written again", err == nil, err
		},
	}
	if kind == "DATAFLOW" {
		f.Where, f.For, f.Problem = "dataflows/"+where, []string{"the runs of workspace " + where}, "what says that they are there is gone: the runs of all workspaces lack them"
	}
	l.fault(f)
	return nil
}

// listedEvents checks that these workspaces are in the list of all workspaces with events. A table keeps an item for
// each.
func (v *eventLogs) listedEvents(ctx context.Context, workspaces []string) error {
	var have []string // before the listing: a run that begins meanwhile is listed before it has events
	for _, ws := range workspaces {
		for _, err := range v.Records.ListStreams(ctx, refstore.Query{Partition: "EVENTS/" + ws, Limit: 1}) {
			if err != nil {
				return err
			}
			have = append(have, ws)
			break
		}
	}
	listed := map[string]bool{}
	for partition, err := range v.Records.ListPartitions(ctx, "EVENTS") {
		if err != nil {
			return err
		}
		listed[strings.TrimPrefix(partition, "EVENTS/")] = true
	}
	for _, ws := range have {
		if listed[ws] {
			continue
		}
		v.fault(Fault{
			Kind: BadEvents, Where: "events/" + ws, Problem: "what says that they are there is gone: the events of all workspaces lack them",
			For: []string{"the events of workspace " + ws}, Advice: "with --repair it is written again",
			mend: func(ctx context.Context) (string, bool, error) {
				err := v.enterEvents(ctx, ws)
				return "written again", err == nil, err
			},
		})
	}
	return nil
}

// enterEvents lists the events of a workspace again, by creating a log as a first run does, and removing it at once.
func (v *eventLogs) enterEvents(ctx context.Context, ws string) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("draw an id: %w", err)
	}
	key := refstore.Key{Partition: "EVENTS/" + ws, Sort: id.String()}
	if err := v.Records.Seal(ctx, key); err != nil {
		return err
	}
	return v.Records.Remove(ctx, key)
}
