package refstoretest

import (
	"context"
	"errors"
	"fmt"

	"e3/refstore"
)

// alias reads a job at a second key, before and after changes.
func alias(ctx context.Context, s refstore.Store) error {
	a, err := capability[refstore.Aliaser](s)
	if err != nil {
		return err
	}
	id := "run.0123456789abcdef0123456789abcdef"
	job := refstore.Key{Partition: "QUEUE/default/jobs", Sort: id}
	entry := func(class string) refstore.Key {
		return refstore.Key{Partition: "QUEUE/default/ready", Sort: class + ".000000000000.0000000000000000." + id}
	}
	shows := func(what string, key refstore.Key, value string, v refstore.Version) error {
		if r, err := s.Get(ctx, key); err != nil || string(r.Value) != value || r.Version != v || r.Key != key {
			return fmt.Errorf("%s: got %q, %q, version %q, %v, want %q, version %q", what, r.Key, r.Value, r.Version, err, value, v)
		}
		return nil
	}
	none := func(what string, key refstore.Key) error {
		if _, err := s.Get(ctx, key); !errors.Is(err, refstore.ErrNotFound) {
			return fmt.Errorf("%s: got %v, want %v", what, err, refstore.ErrNotFound)
		}
		return nil
	}
	if err := a.Alias(ctx, job, entry("1")); errors.Is(err, errors.ErrUnsupported) { // a decorator over a store that has none
		return err
	} else if !errors.Is(err, refstore.ErrNotFound) {
		return fmt.Errorf("alias of nothing: got %v, want %v", err, refstore.ErrNotFound)
	}
	queued, err := s.Put(ctx, refstore.Record{Key: job, Value: []byte("queued")})
	if err != nil {
		return err
	}
	if err := a.Alias(ctx, job, entry("1")); err != nil {
		return err
	}
	if err := errors.Join(shows("an alias", entry("1"), "queued", queued), wantSorts(ctx, s, refstore.Query{Partition: entry("").Partition}, []string{entry("1").Sort})); err != nil {
		return err
	}
	if err := a.Alias(ctx, job, entry("1")); !errors.Is(err, refstore.ErrConflict) {
		return fmt.Errorf("alias once more: got %v, want a conflict", err)
	}

	// A change drops the alias.
	running, gone, err := a.PutUnaliased(ctx, refstore.Record{Key: job, Value: []byte("running now"), Version: queued}, entry("1"))
	if err != nil || !gone || running == queued {
		return fmt.Errorf("put without the alias: got %q after %q, gone is %v, %v", running, queued, gone, err)
	}
	if err := errors.Join(shows("after that", job, "running now", running), none("the alias", entry("1"))); err != nil {
		return err
	}
	if _, _, err := a.PutUnaliased(ctx, refstore.Record{Key: job, Value: []byte("running elsewhere"), Version: queued}, entry("1")); !errors.Is(err, refstore.ErrConflict) {
		return fmt.Errorf("put over an earlier version: got %v, want a conflict", err)
	}
	longer, gone, err := a.PutUnaliased(ctx, refstore.Record{Key: job, Value: []byte("running, without an alias"), Version: running}, entry("1"))
	if err != nil || !gone {
		return fmt.Errorf("put without any alias: gone is %v, %w", gone, err)
	}

	// A record of its own stays.
	own, err := s.Put(ctx, refstore.Record{Key: entry("1"), Value: []byte("an entry")})
	if err != nil {
		return err
	}
	shorter, gone, err := a.PutUnaliased(ctx, refstore.Record{Key: job, Value: []byte("queued"), Version: longer}, entry("1"))
	if err != nil || gone {
		return fmt.Errorf("put beside another record: gone is %v, %w", gone, err)
	}
	if err := errors.Join(shows("the other record", entry("1"), "an entry", own), shows("after that", job, "queued", shorter)); err != nil {
		return err
	}

	// A write at the alias, and its deletion, leave the record as it is.
	if err := a.Alias(ctx, job, entry("0")); err != nil {
		return err
	}
	own, err = s.Put(ctx, refstore.Record{Key: entry("0"), Value: []byte("an entry"), Version: shorter})
	if err != nil {
		return err
	}
	if err := errors.Join(shows("in place of the alias", entry("0"), "an entry", own), shows("after that", job, "queued", shorter), s.Delete(ctx, entry("0"), own)); err != nil {
		return err
	}
	if err := a.Alias(ctx, job, entry("0")); err != nil {
		return err
	}
	if err := s.Delete(ctx, entry("0"), shorter); err != nil {
		return fmt.Errorf("delete an alias: %w", err)
	}
	if err := errors.Join(none("the alias", entry("0")), shows("after that", job, "queued", shorter)); err != nil {
		return err
	}

	// Any other change leaves the alias, with the record as it is or was.
	if err := a.Alias(ctx, job, entry("0")); err != nil {
		return err
	}
	last, err := s.Put(ctx, refstore.Record{Key: job, Value: []byte("cancelled"), Version: shorter})
	if err != nil {
		return err
	}
	r, err := s.Get(ctx, entry("0"))
	if err != nil || r.Version != shorter && r.Version != last || (r.Version == last) != (string(r.Value) == "cancelled") {
		return fmt.Errorf("the alias after a change: got %q, version %q, %v", r.Value, r.Version, err)
	}
	return nil
}

// watchTellsNames reads which records were created until all are told.
func watchTellsNames(ctx context.Context, s refstore.Store) error {
	w, err := capability[refstore.NameWatcher](s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	const partition = "QUEUE/default/finished/run"
	c, made, err := w.WatchNames(ctx, partition)
	if err != nil {
		return err
	}
	if _, all := made(); !all {
		return errors.New("the first call does not tell that all may have been created")
	}
	put := func(sort string) error {
		_, err := s.Put(ctx, refstore.Record{Key: refstore.Key{Partition: partition, Sort: sort}, Value: []byte("x")})
		return err
	}
	if err := put("first"); err != nil { // the folder may be made with it
		return err
	}
	told := map[string]bool{}
	for _, sort := range []string{"first", "second", "a%b"} {
		if err := put(sort); sort != "first" && err != nil {
			return err
		}
		for !told[sort] {
			select {
			case _, ok := <-c:
				if !ok {
					return fmt.Errorf("record %q was not told in %v", sort, patience)
				}
			case <-ctx.Done():
				return fmt.Errorf("record %q was not told in %v", sort, patience)
			}
			sorts, all := made()
			told[sort] = all
			for _, s := range sorts {
				told[s] = true
			}
		}
	}
	return nil
}
