package dynamo

import (
	"context"
	"crypto/sha256"
	"time"

	"e3/refstore"
)

const (
	// watched is the number of a partition's greatest sort keys that a watch checks each time. If names grow with time,
	// the new names are among these.
	watched = 16
	// watchAll is the number of checks after which a watch reads all of a larger partition.
	watchAll = 30
)

// Watch implements [refstore.Watcher]. It sees a change of the records with the greatest sort keys within
// Options.Watch, and any other change within 30 times that.
func (s *Store) Watch(ctx context.Context, partition string) (<-chan struct{}, error) {
	return s.watch(ctx, partition, "")
}

// WatchStreams implements [refstore.Streams], as Watch does for records.
func (s *Store) WatchStreams(ctx context.Context, partition string) (<-chan struct{}, error) {
	return s.watch(ctx, partition, streamPrefix)
}

func (s *Store) watch(ctx context.Context, partition, prefix string) (<-chan struct{}, error) {
	if err := check(ctx, refstore.Query{Partition: partition}.Validate()); err != nil {
		return nil, err
	}
	pk := s.table.pk(prefix, partition)
	last, more, err := s.table.state(ctx, pk, watched)
	if err != nil {
		return nil, err
	}
	var all [sha256.Size]byte
	if more {
		if all, _, err = s.table.state(ctx, pk, 0); err != nil {
			return nil, err
		}
	}
	c := make(chan struct{}, 1)
	go func() {
		defer close(c)
		wake := func() {
			select {
			case c <- struct{}{}:
			default: // one wake-up is waiting already
			}
		}
		tick := time.NewTicker(s.table.o.Watch)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now, more, err := s.table.state(ctx, pk, watched)
			if err == nil && now != last {
				last = now
				wake()
			}
			if err == nil && more && n%watchAll == 0 {
				var whole [sha256.Size]byte
				if whole, _, err = s.table.state(ctx, pk, 0); err == nil && whole != all {
					all = whole
					wake()
				}
			}
			if err != nil && ctx.Err() == nil {
				wake() // the caller's next read reports the error
			}
		}
	}()
	return c, nil
}

// state hashes the keys and versions of a partition, or of its n greatest keys, and reports whether there are more.
func (t *table) state(ctx context.Context, pk string, n int) (sum [sha256.Size]byte, more bool, err error) {
	h := sha256.New()
	seen := 0
	q := refstore.Query{Descending: true}
	if n > 0 {
		q.Limit = n + 1
	}
	for item, err := range t.query(ctx, pk, q, attrVersion, nil) {
		if err != nil {
			return sum, false, err
		}
		if seen++; n > 0 && seen > n {
			more = true
			break
		}
		d := t.decode(itemKey{pk, item.sk}, item.attributes)
		h.Write([]byte(item.sk + "\x00" + d.version() + "\x00"))
	}
	return [sha256.Size]byte(h.Sum(nil)), more, nil
}
