package checked

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"e3/refstore"
)

// Where value and fields of a record are one thing, they are removed together. There a witness is a record of its own in the same
// partition, right behind that whose witness it is: a listing has both for one request. It has no value, and no name ends as it does.
//
// It is put after a new record, and goes before one that is deleted. So one that is alone means that its record was removed otherwise.
// A crash, and a deletion that found another version, may leave a record without one, of which nothing is told then.
const witnessSuffix = " witness"

func witnessOf(key refstore.Key) refstore.Key {
	return refstore.Key{Partition: key.Partition, Sort: key.Sort + witnessSuffix}
}

// apart tells whether the records of a partition have witnesses that are records.
func (r *Records) apart(partition string) bool { return r.atomic && witnessed(partition) }

// attest puts the witness of a record that was just created.
func (r *Records) attest(ctx context.Context, key refstore.Key) error {
	v, err := r.store.Put(ctx, refstore.Record{Key: witnessOf(key)})
	if errors.Is(err, refstore.ErrConflict) {
		return nil // it is there
	}
	if err != nil {
		return fmt.Errorf("witness of %q: %w", key, err)
	}
	if _, err = r.store.Get(ctx, key); errors.Is(err, refstore.ErrNotFound) { // it was deleted before it had a witness
		err = r.store.Delete(ctx, witnessOf(key), v)
	}
	return settled(err)
}

// settled is err, unless it says that another has done the same, or more.
func settled(err error) error {
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrConflict) || errors.Is(err, refstore.ErrDamaged) {
		return nil
	}
	return err
}

// dismiss removes the witness of a record, and returns false if there is none.
func (r *Records) dismiss(ctx context.Context, key refstore.Key) (bool, error) {
	w, err := r.store.Get(ctx, witnessOf(key))
	if errors.Is(err, refstore.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		err = r.store.Delete(ctx, w.Key, w.Version)
	}
	return true, settled(err)
}

// deleteApart deletes a record that has its witness apart; without a version one that is gone.
func (r *Records) deleteApart(ctx context.Context, key refstore.Key, v refstore.Version) error {
	if v == refstore.Absent {
		if _, err := r.store.Get(ctx, key); !errors.Is(err, refstore.ErrNotFound) {
			return errors.Join(fmt.Errorf("delete %q: %w", key, refstore.ErrConflict), err)
		}
	}
	was, err := r.dismiss(ctx, key)
	if err != nil || was && v == refstore.Absent {
		return err
	}
	return r.store.Delete(ctx, key, v)
}

// missed tells whether a record that was not found has left its witness; again that it is there after all.
func (r *Records) missed(ctx context.Context, key refstore.Key) (gone, again bool, err error) {
	before, err := r.store.Get(ctx, witnessOf(key))
	if errors.Is(err, refstore.ErrNotFound) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	if _, err = r.store.Get(ctx, key); !errors.Is(err, refstore.ErrNotFound) {
		return false, true, err
	}
	// Had it been deleted since the first look, so had the witness.
	after, err := r.store.Get(ctx, witnessOf(key))
	if errors.Is(err, refstore.ErrNotFound) {
		return false, false, nil
	}
	return err == nil && after.Version == before.Version, after.Version != before.Version, err
}

// settings is the partition of what every start looks up, most often to find nothing: one listing tells that, for which a lookup and one
// of the witness are two requests.
const settings = "SETTINGS"

// getListed is get, by a listing.
func (r *Records) getListed(ctx context.Context, key refstore.Key, fields []string) (refstore.Record, error) {
	found, err := r.pair(ctx, refstore.Query{Partition: key.Partition, Prefix: key.Sort, Fields: fields})
	if err != nil {
		return refstore.Record{}, err
	}
	for _, l := range found {
		switch {
		case l.rec.Key != key:
		case l.err != nil || l.rec.Version == refstore.Absent:
			return r.get(ctx, key, fields)
		default:
			return l.rec, nil
		}
	}
	return refstore.Record{}, fmt.Errorf("get %q: %w", key, refstore.ErrNotFound)
}

// errGone says of a record what its witness tells.
var errGone = errors.New("it is gone")

// listed is what a listing has found.
type listed struct {
	rec refstore.Record
	err error
}

// listApart takes the witnesses out of a listing, and adds the records that have left theirs. These partitions are small.
func (r *Records) listApart(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	return func(yield func(refstore.Record, error) bool) {
		found, err := r.pair(ctx, q)
		if err != nil {
			yield(refstore.Record{}, err)
			return
		}
		n := 0
		for _, l := range found {
			if l.err != nil || l.rec.Version == refstore.Absent && !q.KeysOnly {
				l.rec, l.err = r.Get(ctx, l.rec.Key, q.Fields...)
			}
			if errors.Is(l.err, refstore.ErrNotFound) {
				continue // gone since
			}
			if !yield(l.rec, l.err) {
				return
			}
			if n++; n == q.Limit {
				return
			}
		}
	}
}

// pair lists what q asks for, in its order: of a record that is gone the key only, and with an error what has to be read again.
func (r *Records) pair(ctx context.Context, q refstore.Query) ([]listed, error) {
	k, all := kindOf(q.Partition), q
	all.Limit, all.Fields = 0, k.ask(q.Fields)
	var found []listed
	var witnesses []string
	there := map[string]bool{}
	for rec, err := range r.store.List(ctx, all) {
		if err != nil && !errors.Is(err, refstore.ErrDamaged) {
			return nil, err
		}
		if sort, ok := strings.CutSuffix(rec.Key.Sort, witnessSuffix); ok {
			witnesses = append(witnesses, sort)
			continue
		}
		there[rec.Key.Sort] = true
		if err == nil && !q.KeysOnly {
			rec, err = k.open(rec, q.Fields)
		}
		found = append(found, listed{rec, err})
	}
	for _, sort := range q.Select(witnesses) {
		if !there[sort] {
			found = append(found, listed{rec: refstore.Record{Key: refstore.Key{Partition: q.Partition, Sort: sort}}})
		}
	}
	slices.SortStableFunc(found, func(a, b listed) int {
		if q.Descending {
			a, b = b, a
		}
		return strings.Compare(a.rec.Key.Sort, b.rec.Key.Sort)
	})
	return found, nil
}
