package queue

import (
	"context"
	"errors"
	"fmt"

	"e3/refstore"
)

// cancels delivers requests to cancel to this process's leases. It ends cancelled jobs that were given back meanwhile
// or that no worker has taken over for Options.Patience, and removes requests for ended jobs.
func (k *Keeper) cancels(ctx context.Context, queue string) error {
	var errs []error
	for r, err := range k.store.List(ctx, refstore.Query{Partition: partition(queue, "cancel")}) {
		if err != nil {
			return err
		}
		if err := k.follow(ctx, queue, r); err != nil && !errors.Is(err, refstore.ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ownCancels is cancels for the jobs that this process holds.
func (k *Keeper) ownCancels(ctx context.Context) error {
	var errs []error
	for _, l := range k.held.current() {
		select {
		case <-l.cancelled:
			continue // already delivered
		default:
		}
		j := l.Job()
		r, err := k.store.Get(ctx, cancelKey(j.Queue, j.ID))
		if err == nil {
			err = k.follow(ctx, j.Queue, r)
		}
		if err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (k *Keeper) follow(ctx context.Context, queue string, r refstore.Record) error {
	var rec cancelRecord
	if err := decode(r.Value, &rec); err != nil {
		return fmt.Errorf("record %q is not what this version of e3 writes: %w", r.Key, err)
	}
	id := r.Key.Sort
	if k.held.holds(queue + "/" + id) {
		k.held.tell(queue+"/"+id, rec)
		return nil
	}
	s, err := k.load(ctx, queue, id)
	switch {
	case isNotFound(err):
		return k.drop(ctx, r.Key, r.Version)
	case err != nil:
		return err
	case s.Status.Terminal():
		return errors.Join(k.move(ctx, s), k.drop(ctx, r.Key, r.Version))
	case s.Status == Running && s.LockedBy != "":
		return nil
	case s.Orphaned() && k.o.Now().Sub(k.index.orphanSince(fmt.Sprintf("%s#%d", s.Ref(), s.Token), k.o.Now())) < k.o.Patience:
		return nil // a worker of its host, which can end its command, claims it
	}
	_, err = k.index.cancelNow(ctx, s, rec)
	return err
}
