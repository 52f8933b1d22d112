package refstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"e3/refstore"
)

func recordCases() []Case {
	return []Case{
		onStore("get of nothing", getOfNothing),
		onStore("create, update, delete", lifeOfARecord),
		onStore("fields", fields),
		onStore("put in doubt changes nothing", conflictChangesNothing),
		onStore("versions never recur", versionsNeverRecur),
		onStore("one creator of many", oneCreator),
		onStore("one creator of many, with fields", oneCreatorWithFields),
		onStore("a counter loses no update", counter),
		onStore("value is not newer than fields", valueLast),
		onStore("hostile segments", hostileSegments),
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
		// Names that a backend may use for something else.
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
	for _, key := range keys("a") {
		seen := make(map[refstore.Version]int)
		note := func(i int, v refstore.Version) error {
			if before, ok := seen[v]; ok {
				return fmt.Errorf("%q: write %d has the version %q of write %d", key, i, v, before)
			}
			seen[v] = i
			return nil
		}
		for i := 0; i < 120; {
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
		// ABA: somebody holds a version, the record goes and comes back.
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
		for _, key := range keys("a" + strconv.Itoa(round)) {
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

// Hostile are segments that a backend must keep apart and inside itself.
func Hostile() []string {
	return []string{
		".", "..", "...", "../..", "../../etc/passwd", "/", "//", "a/b", "a", "a/", "/a", "A", "a.", "a ", ".a", " a",
		"\x00", "a\x00b", "\n", "\x7f", "%", "%%", "%2F", "%2f", "%2E%2E", "~", "a~", "~a", "a.rec", "a.beast2", ".rec",
		"a\\b", "C:", "con", "*", "?", "\"", "'", "<>|", "é", "e\u0301", "日本語", "\u202e", "\ufeff", "🦊", "#", "$HOME", "-rf", ":",
		strings.Repeat("x", 200), strings.Repeat("x", 201), strings.Repeat("x", 900), strings.Repeat("日", 300),
		strings.Repeat("/", 400), strings.Repeat("../", 300), strings.Repeat("x", 199) + "%", strings.Repeat("x", 199) + "/" + strings.Repeat("y", 300),
	}
}

// hostileSegments writes one record for each name, as sort key and as segment, and finds each again.
func hostileSegments(ctx context.Context, s refstore.Store) error {
	place := make(map[refstore.Key]string)
	add := func(key refstore.Key) error {
		if _, dup := place[key]; dup || len(key.Partition) > refstore.MaxPartition {
			return nil
		}
		place[key] = strconv.Itoa(len(place))
		_, err := create(ctx, s, key, place[key])
		return err
	}
	for _, name := range Hostile() {
		for _, key := range keys(name) {
			if err := add(key); err != nil {
				return err
			}
		}
		for _, partition := range []string{"INDEX/" + name, "INDEX/test/" + name, "INDEX/" + name + "/x", "DATAFLOW/" + strings.ReplaceAll(name, "/", ":")} {
			if err := add(refstore.Key{Partition: partition, Sort: "b"}); err != nil {
				return err
			}
		}
		if err := add(index(name)); err != nil {
			return err
		}
	}
	partitions := make(map[string]int)
	for key, value := range place {
		r, err := s.Get(ctx, key)
		if err != nil {
			return err
		}
		if string(r.Value) != value {
			return fmt.Errorf("%q: got %q, want %q: two keys share a place", key, r.Value, value)
		}
		partitions[key.Partition]++
	}
	for partition, want := range partitions {
		got := 0
		for r, err := range s.List(ctx, refstore.Query{Partition: partition}) {
			if err != nil {
				return err
			}
			if value, ok := place[r.Key]; !ok || value != string(r.Value) {
				return fmt.Errorf("list of %q: got %s, which was not written", partition, show(r))
			}
			got++
		}
		if got != want {
			return fmt.Errorf("list of %q: got %d records, want %d", partition, got, want)
		}
	}
	return nil
}

func invalidNames(ctx context.Context, s refstore.Store) error {
	for _, key := range []refstore.Key{
		{}, {Partition: "INDEX"}, {Sort: "a"}, {Partition: "/INDEX", Sort: "a"}, {Partition: "index/a", Sort: "a"},
		{Partition: "../INDEX", Sort: "a"}, {Partition: "INDEX\x00", Sort: "a"},
		{Partition: "INDEX/\xff", Sort: "a"}, {Partition: "INDEX/a", Sort: "\xff"},
		{Partition: "INDEX/" + strings.Repeat("x", refstore.MaxPartition), Sort: "a"},
		{Partition: "INDEX/a", Sort: strings.Repeat("x", refstore.MaxSort+1)},
	} {
		_, err := s.Get(ctx, key)
		if err := wantErr(fmt.Sprintf("get %.50q", key), err, refstore.ErrInvalid); err != nil {
			return err
		}
		_, err = create(ctx, s, key, "")
		if err := wantErr(fmt.Sprintf("put %.50q", key), err, refstore.ErrInvalid); err != nil {
			return err
		}
		if err := wantErr(fmt.Sprintf("delete %.50q", key), s.Delete(ctx, key, "v"), refstore.ErrInvalid); err != nil {
			return err
		}
	}
	for _, bad := range [][]refstore.Field{
		{field("", "")}, {field("\xff", "")}, {field(strings.Repeat("f", refstore.MaxField+1), "")}, {field("f", "1"), field("f", "2")},
	} {
		_, err := create(ctx, s, index("a"), "", bad...)
		if err := wantErr("put of bad fields", err, refstore.ErrInvalid); err != nil {
			return err
		}
	}
	for _, err := range s.List(ctx, refstore.Query{Partition: "lower"}) {
		return wantErr("list", err, refstore.ErrInvalid)
	}
	return errors.New("list of an invalid partition: got nothing, want an error")
}

func largeValues(ctx context.Context, s refstore.Store) error {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	for _, key := range keys("a") {
		v, err := create(ctx, s, key, string(big), field("f", string(big[1:])))
		if err != nil {
			return err
		}
		if err := wantRecord(ctx, s, key, v, string(big), []string{"f"}, field("f", string(big[1:]))); err != nil {
			return err
		}
		if v, err = update(ctx, s, key, v, string(big[7:]), field("f", "small")); err != nil {
			return err
		}
		if err := wantRecord(ctx, s, key, v, string(big[7:]), []string{"f"}, field("f", "small")); err != nil {
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
