// Package queuetest is the suite that a store passes for what it does for queues, beyond keeping records.
package queuetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"e3/internal/jobs/queue"
	"e3/refstore"
)

// Run runs the cases of what a store does for queues. open returns an empty store, a new one at each call.
func Run(t *testing.T, open func(t *testing.T) queue.Store) {
	for _, c := range []struct {
		name string
		does func(queue.Store) bool
		run  func(context.Context, queue.Store) error
	}{
		{"a move takes a record to another key, in one state only", inFiles, move},
		{"an alias shows a record, until it is dropped", inFiles, alias},
		{"a watch tells which records were created", inFiles, watchTellsNames},
		{"a batch puts and deletes, whatever was there", inBatches, writeBatch},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			if !c.does(s) {
				t.Skip("the store does not")
			}
			err := c.run(t.Context(), s)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func inFiles(s queue.Store) bool { return s.Files != nil }

func inBatches(s queue.Store) bool { return s.Batch != nil }

// patience is how long a wake-up may take before the store counts as broken.
const patience = 20 * time.Second

// wantSorts lists the sort keys of a partition and compares them.
func wantSorts(ctx context.Context, s queue.Store, partition string, want ...string) error {
	var got []string
	for r, err := range s.List(ctx, refstore.Query{Partition: partition}) {
		if err != nil {
			return err
		}
		got = append(got, r.Key.Sort)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("list %q: got %.300q, want %.300q", partition, got, want)
	}
	return nil
}

// alias reads a job at a second key, before and after changes.
func alias(ctx context.Context, s queue.Store) error {
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
	if err := s.Files.Alias(ctx, job, entry("1")); errors.Is(err, errors.ErrUnsupported) { // as on a network
		return err
	} else if !errors.Is(err, refstore.ErrNotFound) {
		return fmt.Errorf("alias of nothing: got %v, want %v", err, refstore.ErrNotFound)
	}
	queued, err := s.Put(ctx, refstore.Record{Key: job, Value: []byte("queued")})
	if err != nil {
		return err
	}
	if err := s.Files.Alias(ctx, job, entry("1")); err != nil {
		return err
	}
	if err := errors.Join(shows("an alias", entry("1"), "queued", queued), wantSorts(ctx, s, entry("").Partition, entry("1").Sort)); err != nil {
		return err
	}
	if err := s.Files.Alias(ctx, job, entry("1")); !errors.Is(err, refstore.ErrConflict) {
		return fmt.Errorf("alias once more: got %v, want a conflict", err)
	}

	// A change drops the alias.
	running, gone, err := s.Files.PutUnaliased(ctx, refstore.Record{Key: job, Value: []byte("running now"), Version: queued}, entry("1"))
	if err != nil || !gone || running == queued {
		return fmt.Errorf("put without the alias: got %q after %q, gone is %v, %v", running, queued, gone, err)
	}
	if err := errors.Join(shows("after that", job, "running now", running), none("the alias", entry("1"))); err != nil {
		return err
	}
	if _, _, err := s.Files.PutUnaliased(ctx, refstore.Record{Key: job, Value: []byte("running elsewhere"), Version: queued}, entry("1")); !errors.Is(err, refstore.ErrConflict) {
		return fmt.Errorf("put over an earlier version: got %v, want a conflict", err)
	}
	longer, gone, err := s.Files.PutUnaliased(ctx, refstore.Record{Key: job, Value: []byte("running, without an alias"), Version: running}, entry("1"))
	if err != nil || !gone {
		return fmt.Errorf("put without any alias: gone is %v, %w", gone, err)
	}

	// A record of its own stays.
	own, err := s.Put(ctx, refstore.Record{Key: entry("1"), Value: []byte("an entry")})
	if err != nil {
		return err
	}
	shorter, gone, err := s.Files.PutUnaliased(ctx, refstore.Record{Key: job, Value: []byte("queued"), Version: longer}, entry("1"))
	if err != nil || gone {
		return fmt.Errorf("put beside another record: gone is %v, %w", gone, err)
	}
	if err := errors.Join(shows("the other record", entry("1"), "an entry", own), shows("after that", job, "queued", shorter)); err != nil {
		return err
	}

	// A write at the alias, and its deletion, leave the record as it is.
	if err := s.Files.Alias(ctx, job, entry("0")); err != nil {
		return err
	}
	own, err = s.Put(ctx, refstore.Record{Key: entry("0"), Value: []byte("an entry"), Version: shorter})
	if err != nil {
		return err
	}
	if err := errors.Join(shows("in place of the alias", entry("0"), "an entry", own), shows("after that", job, "queued", shorter), s.Delete(ctx, entry("0"), own)); err != nil {
		return err
	}
	if err := s.Files.Alias(ctx, job, entry("0")); err != nil {
		return err
	}
	if err := s.Delete(ctx, entry("0"), shorter); err != nil {
		return fmt.Errorf("delete an alias: %w", err)
	}
	if err := errors.Join(none("the alias", entry("0")), shows("after that", job, "queued", shorter)); err != nil {
		return err
	}

	// Any other change leaves the alias, with the record as it is or was.
	if err := s.Files.Alias(ctx, job, entry("0")); err != nil {
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
func watchTellsNames(ctx context.Context, s queue.Store) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	const partition = "QUEUE/default/finished/run"
	c, made, err := s.Files.WatchNames(ctx, partition)
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

// move moves a record once, and only in the state that the caller knows.
func move(ctx context.Context, s queue.Store) error {
	key := func(what, sort string) refstore.Key {
		return refstore.Key{Partition: "QUEUE/default/" + what, Sort: sort}
	}
	from, to := key("jobs", "a"), key("finished/run", "a")
	old, err := s.Put(ctx, refstore.Record{Key: from, Value: []byte("queued")})
	if err != nil {
		return err
	}
	v, err := s.Put(ctx, refstore.Record{Key: from, Value: []byte("running now"), Version: old})
	if err != nil {
		return err
	}
	ended := refstore.Record{Key: to, Value: []byte("ended")}
	_, err = s.Files.Move(ctx, from, old, ended)
	if errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if !errors.Is(err, refstore.ErrConflict) {
		return fmt.Errorf("move an earlier version: got %v, want a conflict", err)
	}
	if _, err := s.Files.Move(ctx, key("jobs", "b"), v, ended); !errors.Is(err, refstore.ErrNotFound) {
		return fmt.Errorf("move what is not there: got %v, want %v", err, refstore.ErrNotFound)
	}
	if err := wantSorts(ctx, s, to.Partition); err != nil {
		return fmt.Errorf("after moves that failed: %w", err)
	}
	moved, err := s.Files.Move(ctx, from, v, ended)
	if err != nil {
		return fmt.Errorf("move: %w", err)
	}
	r, err := s.Get(ctx, to)
	if err != nil || string(r.Value) != "ended" || r.Version != moved {
		return fmt.Errorf("moved: got %q, version %q, %v, want %q", r.Value, r.Version, err, moved)
	}
	if _, err := s.Get(ctx, from); !errors.Is(err, refstore.ErrNotFound) {
		return fmt.Errorf("where it was moved from: got %v, want %v", err, refstore.ErrNotFound)
	}
	again, err := s.Put(ctx, refstore.Record{Key: from, Value: []byte("queued again")})
	if err != nil {
		return err
	}
	if again == old || again == v {
		return fmt.Errorf("version %q recurs", again)
	}
	if _, err := s.Files.Move(ctx, from, again, ended); !errors.Is(err, refstore.ErrConflict) {
		return fmt.Errorf("move over another record: got %v, want a conflict", err)
	}
	if r, err = s.Get(ctx, from); err != nil || r.Version != again {
		return fmt.Errorf("after it: got version %q, %v, want %q", r.Version, err, again)
	}
	return nil
}

// writeBatch puts over a record and beside it, and deletes one that exists and one that does not.
func writeBatch(ctx context.Context, s queue.Store) error {
	key := func(sort string) refstore.Key {
		return refstore.Key{Partition: "QUEUE/default/jobs", Sort: sort}
	}
	for _, sort := range []string{"a", "b"} {
		if _, err := s.Put(ctx, refstore.Record{Key: key(sort), Value: []byte("before")}); err != nil {
			return err
		}
	}
	before, err := s.Get(ctx, key("a"))
	if err != nil {
		return err
	}
	puts := []refstore.Record{{Key: key("a"), Value: []byte("after")}, {Key: key("c"), Value: []byte("new")}, {Key: key("e")}}
	if err := s.Batch.WriteBatch(ctx, puts, []refstore.Key{key("b"), key("d")}); err != nil {
		return fmt.Errorf("write a batch: %w", err)
	}
	if err := wantSorts(ctx, s, "QUEUE/default/jobs", "a", "c", "e"); err != nil {
		return err
	}
	for sort, want := range map[string]string{"a": "after", "c": "new", "e": ""} {
		r, err := s.Get(ctx, key(sort))
		if err != nil || string(r.Value) != want {
			return fmt.Errorf("record %q: got %q, %v, want %q", sort, r.Value, err, want)
		}
	}
	records, err := s.Batch.ReadBatch(ctx, []refstore.Key{key("a"), key("b"), key("c")})
	if err != nil {
		return fmt.Errorf("read a batch: %w", err)
	}
	read := make(map[string]string)
	for _, r := range records {
		read[r.Key.Sort] = string(r.Value)
	}
	if len(read) != 2 || read["a"] != "after" || read["c"] != "new" {
		return fmt.Errorf("read a batch: got %q, want a and c as they were written", read)
	}
	if _, err := s.Put(ctx, refstore.Record{Key: key("a"), Value: []byte("late"), Version: before.Version}); !errors.Is(err, refstore.ErrConflict) {
		return fmt.Errorf("put over the version before the batch: got %v, want a conflict", err)
	}
	many := make([]refstore.Record, refstore.MaxBatch+1)
	for i := range many {
		many[i] = refstore.Record{Key: key(fmt.Sprint("many", i))}
	}
	if err := s.Batch.WriteBatch(ctx, many, nil); !errors.Is(err, refstore.ErrInvalid) {
		return fmt.Errorf("write %d records at once: got %v, want %v", len(many), err, refstore.ErrInvalid)
	}
	if err := s.Batch.WriteBatch(ctx, nil, nil); err != nil {
		return fmt.Errorf("write nothing: %w", err)
	}
	return nil
}
