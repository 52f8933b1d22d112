package refstoretest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"e3/refstore"
)

func listCases() []Case {
	return []Case{
		onStore("list of nothing", listOfNothing),
		onStore("list in order", listInOrder),
		onStore("list with values and fields", listValues),
		onStore("list after write", listAfterWrite),
		onStore("list while deleting", listWhileDeleting),
		large(onStore("list while replacing", listWhileReplacing)),
		onStore("partitions are apart", partitionsApart),
	}
}

func watchCases() []Case {
	return []Case{
		onStore("watch wakes after a write", watchWakes),
		onStore("watch ends with its context", watchEnds),
	}
}

// sorts collects the sort keys of a listing.
func sorts(ctx context.Context, s refstore.Store, q refstore.Query) ([]string, error) {
	var got []string
	for r, err := range s.List(ctx, q) {
		if err != nil {
			return nil, err
		}
		if r.Key.Partition != q.Partition {
			return nil, fmt.Errorf("list of %q: got a record of %q", q.Partition, r.Key.Partition)
		}
		got = append(got, r.Key.Sort)
	}
	return got, nil
}

func wantSorts(ctx context.Context, s refstore.Store, q refstore.Query, want []string) error {
	got, err := sorts(ctx, s, q)
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("list %+v: got %.300q, want %.300q", q, got, want)
	}
	return nil
}

func listOfNothing(ctx context.Context, s refstore.Store) error {
	for _, key := range keys("a") {
		if err := wantSorts(ctx, s, refstore.Query{Partition: key.Partition}, nil); err != nil {
			return err
		}
	}
	return nil
}

func listInOrder(ctx context.Context, s refstore.Store) error {
	names := []string{
		"b", "a", "ab", "a-b", "a/b", "a0", "A", "Z", "é", "e\u0301", "日本", "日", "🦊", "~", " ", "0", "10", "9", "\x01", "%41", "a.rec",
		"\uffff", "019a0000-0000-7000-8000-000000000001", "019a0000-0000-7000-8000-000000000002", strings.Repeat("a", 300),
		strings.Repeat("a", 300) + "b", "train[4]", "train[depth=4,lr=0.1]",
	}
	for _, key := range names {
		if _, err := create(ctx, s, index(key), key); err != nil {
			return err
		}
	}
	slices.Sort(names) // by bytes
	for _, prefix := range []string{"", "a", "019a", "日", "none", strings.Repeat("a", 299)} {
		for _, after := range []string{"", "a", "ab", "az", "é", "\U0010ffff", "\x01"} {
			for _, limit := range []int{0, 1, 3, 100} {
				for _, descending := range []bool{false, true} {
					for _, keysOnly := range []bool{false, true} {
						if keysOnly && limit != 3 { // the same keys are listed; one limit is enough
							continue
						}
						q := refstore.Query{
							Partition: index("").Partition, Prefix: prefix, After: after,
							Limit: limit, Descending: descending, KeysOnly: keysOnly,
						}
						if err := wantSorts(ctx, s, q, answer(names, q)); err != nil {
							return err
						}
					}
				}
			}
		}
	}
	return nil
}

// answer computes the result of a query of sorted names in another way than Query.Select.
func answer(names []string, q refstore.Query) []string {
	var want []string
	for i := range names {
		name := names[i]
		if q.Descending {
			name = names[len(names)-1-i]
		}
		beyond := q.After == "" || q.Descending && name < q.After || !q.Descending && name > q.After
		full := q.Limit > 0 && len(want) == q.Limit
		if strings.HasPrefix(name, q.Prefix) && beyond && !full {
			want = append(want, name)
		}
	}
	return want
}

func listValues(ctx context.Context, s refstore.Store) error {
	for _, kind := range keys("") {
		var want []refstore.Record
		for i := range 5 {
			key := refstore.Key{Partition: kind.Partition, Sort: strconv.Itoa(i) + kind.Sort}
			r := refstore.Record{Key: key, Value: []byte("value " + key.Sort), Fields: []refstore.Field{field("f", key.Sort), field("g", "not asked for")}}
			v, err := s.Put(ctx, r)
			if err != nil {
				return err
			}
			r.Fields, r.Version = r.Fields[:1], v
			want = append(want, r)
		}
		i := 0
		for r, err := range s.List(ctx, refstore.Query{Partition: kind.Partition, Fields: []string{"f", "none"}}) {
			if err != nil {
				return err
			}
			if i == len(want) {
				return fmt.Errorf("list of %q: got %s, want no more", kind.Partition, show(r))
			}
			if err := equal(r, want[i]); err != nil {
				return err
			}
			i++
		}
		if i != len(want) {
			return fmt.Errorf("list of %q: got %d records, want %d", kind.Partition, i, len(want))
		}
		for range s.List(ctx, refstore.Query{Partition: kind.Partition}) {
			break // a reader may stop at any time
		}
	}
	return nil
}

func listAfterWrite(ctx context.Context, s refstore.Store) error {
	for k, kind := range keys("") {
		var want []string
		for i := range rounds(k, 30, 6) {
			key := refstore.Key{Partition: kind.Partition, Sort: fmt.Sprintf("%02d%s", i, kind.Sort)}
			v, err := create(ctx, s, key, "value")
			if err != nil {
				return err
			}
			want = append(want, key.Sort)
			if i%4 == 3 {
				if err := s.Delete(ctx, key, v); err != nil {
					return err
				}
				want = want[:len(want)-1]
			}
			if err := wantSorts(ctx, s, refstore.Query{Partition: kind.Partition, KeysOnly: i%2 == 0}, want); err != nil {
				return err
			}
		}
	}
	return nil
}

// listWhileDeleting deletes, from within the loop, records that the list has not reached.
func listWhileDeleting(ctx context.Context, s refstore.Store) error {
	const n = 40
	versions := make([]refstore.Version, n)
	name := func(i int) refstore.Key { return index(fmt.Sprintf("%03d", i)) }
	for i := range n {
		var err error
		if versions[i], err = create(ctx, s, name(i), "value", field("f", "f")); err != nil {
			return err
		}
	}
	var got []string
	next := 0
	for r, err := range s.List(ctx, refstore.Query{Partition: name(0).Partition, Fields: []string{"f"}}) {
		if err != nil {
			return err
		}
		got = append(got, r.Key.Sort)
		for ; next < n; next++ { // all that the list has not reached, but the last
			if next%2 == 1 && next != n-1 {
				if err := s.Delete(ctx, name(next), versions[next]); err != nil {
					return err
				}
			}
		}
	}
	// The remaining ones must be listed; those deleted meanwhile may be, if they were read ahead.
	for i := range n {
		if i%2 == 0 || i == n-1 {
			if !slices.Contains(got, name(i).Sort) {
				return fmt.Errorf("list while deleting: %q is missing, which stays", name(i))
			}
		}
	}
	if !slices.IsSorted(got) {
		return fmt.Errorf("list while deleting: got %q, which is not in order", got)
	}
	return nil
}

// listWhileReplacing lists a partition whose records are all being replaced: none may be missed.
func listWhileReplacing(ctx context.Context, s refstore.Store) error {
	const n = 100
	var want []string
	for i := range n {
		key := index(fmt.Sprintf("%s-%03d", strings.Repeat("long name ", 8), i))
		if _, err := create(ctx, s, key, "0"); err != nil {
			return err
		}
		want = append(want, key.Sort)
	}
	var writeErr, listErr error
	done := make(chan struct{})
	together(2, func(i int) {
		if i == 0 {
			defer close(done)
			for round := 0; round < 3 && writeErr == nil; round++ {
				for _, sort := range want {
					if writeErr = Increment(ctx, s, index(sort)); writeErr != nil {
						return
					}
				}
			}
			return
		}
		for listErr == nil {
			listErr = wantSorts(ctx, s, refstore.Query{Partition: index("").Partition, KeysOnly: true}, want)
			select {
			case <-done:
				return
			default:
			}
		}
	})
	if writeErr != nil {
		return writeErr
	}
	return listErr
}

func partitionsApart(ctx context.Context, s refstore.Store) error {
	partitions := []string{
		"INDEX", "INDEX/a", "INDEX/a/b", "INDEX/a/b/c", "INDEX/ab", "INDEX/a.rec", "QUEUE/a", "QUEUE/a/b", "LEASE/a",
		"EXECUTION/a/b", "EXECUTION/a/c", "EXECUTION/b/b", "DATAFLOW/a", "DATAFLOW/b", "WORKSPACE",
	}
	for _, partition := range partitions {
		for _, sort := range []string{"a", "b", "b/c"} {
			if _, err := create(ctx, s, refstore.Key{Partition: partition, Sort: sort}, partition+" "+sort); err != nil {
				return err
			}
		}
	}
	for _, partition := range partitions {
		if err := wantSorts(ctx, s, refstore.Query{Partition: partition}, []string{"a", "b", "b/c"}); err != nil {
			return err
		}
		for r, err := range s.List(ctx, refstore.Query{Partition: partition}) {
			if err != nil {
				return err
			}
			if want := partition + " " + r.Key.Sort; string(r.Value) != want {
				return fmt.Errorf("%q: got %q, want %q", r.Key, r.Value, want)
			}
		}
	}
	return nil
}

// patience is how long a wake-up may take before the store counts as broken.
const patience = 20 * time.Second

func watchWakes(ctx context.Context, s refstore.Store) error {
	w, err := capability[refstore.Watcher](s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, key := range keys("a") {
		c, err := w.Watch(ctx, key.Partition)
		if err != nil {
			return err
		}
		var v refstore.Version
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"create", func() (err error) { v, err = create(ctx, s, key, "one"); return err }},
			{"update", func() (err error) { v, err = update(ctx, s, key, v, "two"); return err }},
			{"delete", func() error { return s.Delete(ctx, key, v) }},
		} {
			for len(c) > 0 {
				<-c
			}
			if err := step.do(); err != nil {
				return err
			}
			if _, ok := <-c; !ok {
				return fmt.Errorf("watch of %q: not woken by %s within %v", key.Partition, step.name, patience)
			}
		}
	}
	return nil
}

func watchEnds(ctx context.Context, s refstore.Store) error {
	w, err := capability[refstore.Watcher](s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := w.Watch(ctx, "INDEX/test")
	if err != nil {
		return err
	}
	cancel()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case _, ok := <-c:
			if !ok {
				return nil
			}
		case <-late.C:
			return fmt.Errorf("watch: the channel is open %v after its context ended", patience)
		}
	}
}
