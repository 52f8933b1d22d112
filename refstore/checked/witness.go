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

// Where the value and fields of a record are written together, they are also removed together. There a witness is a
// separate record in the same partition, directly behind its record, so that a listing reads both with one request. It
// has no value, and no other name has its suffix.
//
// It is written after a new record, and removed before its record is deleted. So a witness alone means that its
// record was removed by other means. A crash, or a deletion that found another version, may leave a record without a
// witness; its removal then goes unnoticed.
const witnessSuffix = " witness"

func witnessOf(key refstore.Key) refstore.Key {
	return refstore.Key{Partition: key.Partition, Sort: key.Sort + witnessSuffix}
}

// apart reports whether witnesses in a partition are records.
func (r *Records) apart(partition string) bool { return r.atomic && witnessed(partition) }

// attest writes the witness of a new record.
func (r *Records) attest(ctx context.Context, key refstore.Key) error {
	v, err := r.store.Put(ctx, refstore.Record{Key: witnessOf(key)})
	if errors.Is(err, refstore.ErrConflict) {
		return nil // it exists
	}
	if err != nil {
		return fmt.Errorf("witness of %q: %w", key, err)
	}
	if _, err = r.store.Get(ctx, key); errors.Is(err, refstore.ErrNotFound) { // deleted before it had a witness
		err = r.store.Delete(ctx, witnessOf(key), v)
	}
	return settled(err)
}

// settled returns err, unless it says that another process has done the same, or more.
func settled(err error) error {
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrConflict) || errors.Is(err, refstore.ErrDamaged) {
		return nil
	}
	return err
}

// dismiss removes the witness of a record, and returns false if the record has none.
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

// deleteApart deletes a record whose witness is a record; without a version, one whose record is gone.
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

// missed reports whether a record that was not found has a witness; again reports that the record exists now.
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
	// A deletion since the first read would have removed the witness too.
	after, err := r.store.Get(ctx, witnessOf(key))
	if errors.Is(err, refstore.ErrNotFound) {
		return false, false, nil
	}
	return err == nil && after.Version == before.Version, after.Version != before.Version, err
}

// settings is the partition that every start reads, usually without finding a record. A listing takes one request for
// this, while lookups of the record and of its witness would take two.
const settings = "SETTINGS"

// getListed reads a record like get, but by a listing.
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

// errGone is the damage that a lone witness shows.
var errGone = errors.New("it is gone")

// listed is an entry of a listing.
type listed struct {
	rec refstore.Record
	err error
}

// listApart removes the witnesses from a listing, and adds the records whose witnesses are alone. These partitions
// are small.
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
				continue // deleted meanwhile
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

// pair lists the records that q asks for, in order. For a record that seems to be gone it returns the key and an error,
// to be checked by another read.
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
