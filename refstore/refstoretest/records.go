package refstoretest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"e3/refstore"
)

func recordCases() []Case {
	return []Case{
		onStore("get of nothing", getOfNothing),
		onStore("create, update, delete", lifeOfARecord),
		onStore("fields", fields),
		onStore("put in doubt changes nothing", conflictChangesNothing),
		large(onStore("versions never recur", versionsNeverRecur)),
		onStore("one creator of many", oneCreator),
		onStore("one creator of many, with fields", oneCreatorWithFields),
		onStore("a counter loses no update", counter),
		onStore("value is not newer than fields", valueLast),
		large(onStore("hostile segments", hostileSegments)),
		onStore("invalid names", invalidNames),
		onStore("large values", largeValues),
		onStore("bytes belong to the caller", ownBytes),
		onStore("cancelled context", cancelled),
	}
}

func getOfNothing(ctx context.Context, s refstore.Store) error {
	for _, key := range keys("a") {
		_, err := s.Get(ctx, key, "field")
		if err := wantErr("get", err, refstore.ErrNotFound); err != nil {
			return err
		}
		if err := wantErr("delete", s.Delete(ctx, key, "some version"), refstore.ErrNotFound); err != nil {
			return err
		}
		_, err = update(ctx, s, key, "some version", "value")
		if err := wantErr("update", err, refstore.ErrConflict); err != nil {
			return err
		}
	}
	return nil
}

func lifeOfARecord(ctx context.Context, s refstore.Store) error {
	for _, key := range keys("a") {
		v1, err := create(ctx, s, key, "one")
		if err != nil {
			return err
		}
		if err := wantRecord(ctx, s, key, v1, "one", nil); err != nil {
			return err
		}
		v2, err := update(ctx, s, key, v1, "two")
		if err != nil {
			return err
		}
		if v1 == v2 {
			return fmt.Errorf("%q: update kept the version %q", key, v1)
		}
		if err := wantRecord(ctx, s, key, v2, "two", nil); err != nil {
			return err
		}
		v3, err := update(ctx, s, key, v2, "") // an empty value is a value
		if err != nil {
			return err
		}
		if err := wantRecord(ctx, s, key, v3, "", nil); err != nil {
			return err
		}
		if err := wantErr("delete of an old version", s.Delete(ctx, key, v2), refstore.ErrConflict); err != nil {
			return err
		}
		if err := s.Delete(ctx, key, v3); err != nil {
			return err
		}
		_, err = s.Get(ctx, key)
		if err := wantErr("get after delete", err, refstore.ErrNotFound); err != nil {
			return err
		}
	}
	return nil
}

func fields(ctx context.Context, s refstore.Store) error {
	for _, key := range keys("a") {
		v, err := create(ctx, s, key, "one", field("output", "o1"), field("empty", ""))
		if err != nil {
			return err
		}
		ask := []string{"output", "none", "empty"}
		if err := wantRecord(ctx, s, key, v, "one", ask, field("output", "o1"), field("empty", "")); err != nil {
			return err
		}
		if err := wantRecord(ctx, s, key, v, "one", nil); err != nil {
			return err
		}
		if v, err = update(ctx, s, key, v, "two", field("detail.beast2", "d2")); err != nil {
			return err
		}
		ask = []string{"detail.beast2", "output", "empty"}
		if err := wantRecord(ctx, s, key, v, "two", ask, field("detail.beast2", "d2"), field("output", "o1"), field("empty", "")); err != nil {
			return err
		}
		if v, err = update(ctx, s, key, v, "three", field("output", "o3")); err != nil {
			return err
		}
		if err := wantRecord(ctx, s, key, v, "three", []string{"output"}, field("output", "o3")); err != nil {
			return err
		}
		if err := s.Delete(ctx, key, v); err != nil {
			return err
		}
		if v, err = create(ctx, s, key, "four"); err != nil {
			return err
		}
		if err := wantRecord(ctx, s, key, v, "four", ask); err != nil {
			return fmt.Errorf("fields outlived their record: %w", err)
		}
		if v, err = update(ctx, s, key, v, "five", field("late", "f")); err != nil {
			return err
		}
		if err := wantRecord(ctx, s, key, v, "five", []string{"late"}, field("late", "f")); err != nil {
			return err
		}
		// Names that a backend may use for its own purposes.
		for _, name := range []string{"status.beast2", "stdout.txt", "value", "PK", "SK", "version", "..", "a/b", "~", "%", "naïve"} {
			if v, err = update(ctx, s, key, v, "the value", field(name, "F "+name)); err != nil {
				return err
			}
			if err := wantRecord(ctx, s, key, v, "the value", []string{name}, field(name, "F "+name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func conflictChangesNothing(ctx context.Context, s refstore.Store) error {
	for _, key := range keys("a") {
		v1, err := create(ctx, s, key, "one", field("f", "1"))
		if err != nil {
			return err
		}
		_, err = create(ctx, s, key, "again", field("f", "again"), field("g", "again"))
		if err := wantErr("create of what exists", err, refstore.ErrConflict); err != nil {
			return err
		}
		if err := wantRecord(ctx, s, key, v1, "one", []string{"f", "g"}, field("f", "1")); err != nil {
			return err
		}
		v2, err := update(ctx, s, key, v1, "two", field("f", "2"))
		if err != nil {
			return err
		}
		_, err = update(ctx, s, key, v1, "stale", field("f", "stale"), field("g", "stale"))
		if err := wantErr("update of an old version", err, refstore.ErrConflict); err != nil {
			return err
		}
		if err := wantRecord(ctx, s, key, v2, "two", []string{"f", "g"}, field("f", "2")); err != nil {
			return err
		}
	}
	return nil
}

// versionsNeverRecur writes the same bytes over and over, with deletions between.
func versionsNeverRecur(ctx context.Context, s refstore.Store) error {
	for k, key := range keys("a") {
		seen := make(map[refstore.Version]int)
		note := func(i int, v refstore.Version) error {
			if before, ok := seen[v]; ok {
				return fmt.Errorf("%q: write %d has the version %q of write %d", key, i, v, before)
			}
			seen[v] = i
			return nil
		}
		for i := 0; i < rounds(k, 120, 12); {
			v, err := create(ctx, s, key, "same")
			if err != nil {
				return err
			}
			if err := note(i, v); err != nil {
				return err
			}
			i++
			for range i % 3 {
				if v, err = update(ctx, s, key, v, "same"); err != nil {
					return err
				}
				if err := note(i, v); err != nil {
					return err
				}
				i++
			}
			if err := s.Delete(ctx, key, v); err != nil {
				return err
			}
		}
		// ABA: the record is deleted and recreated while its first version is still in use.
		first, err := create(ctx, s, key, "same")
		if err != nil {
			return err
		}
		if err := s.Delete(ctx, key, first); err != nil {
			return err
		}
		if _, err := create(ctx, s, key, "same"); err != nil {
			return err
		}
		_, err = update(ctx, s, key, first, "lost")
		if err := wantErr("update of the record's predecessor", err, refstore.ErrConflict); err != nil {
			return err
		}
		if err := wantErr("delete of the record's predecessor", s.Delete(ctx, key, first), refstore.ErrConflict); err != nil {
			return err
		}
	}
	return nil
}

func oneCreator(ctx context.Context, s refstore.Store) error {
	return race(ctx, s, false)
}

func oneCreatorWithFields(ctx context.Context, s refstore.Store) error {
	return race(ctx, s, true)
}

func race(ctx context.Context, s refstore.Store, withFields bool) error {
	const creators = 12
	for round := range 4 {
		for k, key := range keys("a" + strconv.Itoa(round)) {
			if round >= rounds(k, 4, 1) {
				continue
			}
			versions, errs := make([]refstore.Version, creators), make([]error, creators)
			together(creators, func(i int) {
				var fields []refstore.Field
				if withFields {
					fields = append(fields, field("f", strconv.Itoa(i)))
				}
				versions[i], errs[i] = create(ctx, s, key, strconv.Itoa(i), fields...)
			})
			winner := -1
			for i, err := range errs {
				switch {
				case err == nil && winner >= 0:
					return fmt.Errorf("%q: creators %d and %d both succeeded", key, winner, i)
				case err == nil:
					winner = i
				case !errors.Is(err, refstore.ErrConflict):
					return fmt.Errorf("%q: creator %d: got error %w, want %v", key, i, err, refstore.ErrConflict)
				}
			}
			if winner < 0 {
				return fmt.Errorf("%q: no creator succeeded", key)
			}
			var fields []refstore.Field
			if withFields {
				fields = append(fields, field("f", strconv.Itoa(winner)))
			}
			if err := wantRecord(ctx, s, key, versions[winner], strconv.Itoa(winner), []string{"f"}, fields...); err != nil {
				return err
			}
		}
	}
	return nil
}

func counter(ctx context.Context, s refstore.Store) error {
	const workers, each = 8, 25
	for _, key := range []refstore.Key{index("counter"), keys("counter")[0]} {
		if _, err := create(ctx, s, key, "0"); err != nil {
			return err
		}
		errs := make([]error, workers)
		together(workers, func(i int) {
			for range each {
				if errs[i] = Increment(ctx, s, key); errs[i] != nil {
					return
				}
			}
		})
		if err := errors.Join(errs...); err != nil {
			return err
		}
		r, err := s.Get(ctx, key)
		if err != nil {
			return err
		}
		if got, want := string(r.Value), strconv.Itoa(workers*each); got != want {
			return fmt.Errorf("%q: counter is at %s, want %s", key, got, want)
		}
	}
	return nil
}

// Increment adds one to a decimal number by compare-and-swap.
func Increment(ctx context.Context, s refstore.Store, key refstore.Key) error {
	for {
		r, err := s.Get(ctx, key)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(r.Value))
		if err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
		r.Value = strconv.AppendInt(nil, int64(n+1), 10)
		if _, err := s.Put(ctx, r); !errors.Is(err, refstore.ErrConflict) {
			return err
		}
	}
}

// valueLast reads while a writer counts up in value and field.
func valueLast(ctx context.Context, s refstore.Store) error {
	const writes = 60
	for _, key := range []refstore.Key{index("a"), keys("a")[0]} {
		v, err := create(ctx, s, key, "0", field("f", "0"))
		if err != nil {
			return err
		}
		var writeErr, readErr error
		done := make(chan struct{})
		together(2, func(i int) {
			if i == 0 {
				defer close(done)
				for n := 1; n <= writes && writeErr == nil; n++ {
					v, writeErr = update(ctx, s, key, v, strconv.Itoa(n), field("f", strconv.Itoa(n)))
				}
				return
			}
			for {
				r, err := s.Get(ctx, key, "f")
				if err != nil {
					readErr = err
					return
				}
				f, _ := r.Field("f")
				value, _ := strconv.Atoi(string(r.Value))
				side, err := strconv.Atoi(string(f))
				if err != nil || side < value {
					readErr = fmt.Errorf("%q: read value %q with the older field %q", key, r.Value, f)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
		if err := errors.Join(writeErr, readErr); err != nil {
			return err
		}
	}
	return nil
}

func ownBytes(ctx context.Context, s refstore.Store) error {
	value, side := []byte("value"), []byte("side")
	v, err := s.Put(ctx, refstore.Record{Key: index("a"), Value: value, Fields: []refstore.Field{{Name: "f", Value: side}}})
	if err != nil {
		return err
	}
	value[0], side[0] = 'X', 'X'
	for range 2 {
		r, err := s.Get(ctx, index("a"), "f")
		if err != nil {
			return err
		}
		if err := equal(r, refstore.Record{Key: index("a"), Value: []byte("value"), Fields: []refstore.Field{field("f", "side")}, Version: v}); err != nil {
			return err
		}
		r.Value[0], r.Fields[0].Value[0] = 'Y', 'Y'
	}
	return nil
}

func cancelled(ctx context.Context, s refstore.Store) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.Get(ctx, index("a"))
	if err := wantErr("get", err, context.Canceled); err != nil {
		return err
	}
	_, err = create(ctx, s, index("a"), "")
	if err := wantErr("put", err, context.Canceled); err != nil {
		return err
	}
	_, err = s.Get(context.WithoutCancel(ctx), index("a"))
	return wantErr("get after a cancelled put", err, refstore.ErrNotFound)
}

// together runs f(0) … f(n-1) at the same time and waits for all.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}
