package queue

import (
	"bytes"
	"context"
	"errors"

	"e3/refstore"
)

// If the store can do so, the entry of a job is an alias of the job ([Files]): it needs no record of its own, and
// shows the job with its version. Once the job was claimed, the entry shows a job that cannot be claimed, or is gone.

// isAlias tells whether an entry is an alias.
func isAlias(r refstore.Record) bool { return bytes.HasPrefix(r.Value, []byte("{")) }

// checkAlias returns the fault of an alias, whose job may be in any state.
func checkAlias(r refstore.Record) error {
	j, err := decodeValue(r.Value)
	if id, ok := indexed(r.Key); err == nil && (!ok || id != j.ID) {
		err = errors.New("it is in a wrong place")
	}
	return err
}

// putEntry puts the entry of a job over a version of the entry, and returns the version of the entry.
func (rs *records) putEntry(ctx context.Context, key refstore.Key, s *stored, over refstore.Version) (refstore.Version, error) {
	if rs.files != nil && over == refstore.Absent {
		err := rs.files.Alias(ctx, jobKey(s.Queue, s.ID), key)
		if err == nil {
			return s.version, nil // unless the job has changed since, which a claim notices
		}
		if errors.Is(err, refstore.ErrNotFound) { // as if another process had put it, and the job had then ended
			return refstore.Absent, refstore.ErrConflict
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			return refstore.Absent, err
		}
	}
	e := entry{s.Job, s.version}
	return rs.store.Put(ctx, refstore.Record{Key: key, Value: e.encode(s.value), Version: over})
}

// claimSwap is swap for a claim of a job in a state that had an entry. gone tells that the entry is gone too.
func (rs *records) claimSwap(ctx context.Context, was *stored, j *Job) (s stored, gone bool, err error) {
	key, ok := was.indexKey()
	if rs.files == nil || !ok {
		s, err = rs.swap(ctx, was.version, j)
		return s, false, err
	}
	s, err = rs.swapBy(ctx, was.version, j, func(ctx context.Context, r refstore.Record) (v refstore.Version, err error) {
		v, gone, err = rs.files.PutUnaliased(ctx, r, key)
		if errors.Is(err, errors.ErrUnsupported) {
			v, err = rs.store.Put(ctx, r)
		}
		return v, err
	})
	return s, gone, err
}
