package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"e3/refstore"
)

// Store is the store of queues: a store of records, with further abilities for queues.
type Store struct {
	refstore.Store
	// Files, if set, ends a job in one call, has the entry of a job as an alias of the job, and tells which entries were
	// made. It is the same store, without Spread.
	Files Files
	// Batch, if set, writes the records that follow from transitions, and reads jobs, many in one request. It is the same
	// store.
	Batch Batcher
	// Spread says that a partition takes a bounded number of writes a second, so records that many processes write at
	// a time belong into several partitions.
	Spread bool
}

// Files are the abilities of a store in files for queues. A method returns errors.ErrUnsupported if the store, or the
// record, does not allow it.
type Files interface {
	// Move creates r, and then deletes the record at from. If that record does not have the version v, or r exists,
	// nothing happens: ErrConflict, ErrNotFound. After a crash, or another error, r may exist beside the record at
	// from, or that record may have the value of r.
	Move(ctx context.Context, from refstore.Key, v refstore.Version, r refstore.Record) (refstore.Version, error)
	// Alias makes the record at key appear at alias too, with value and version; the alias holds no value of its own.
	// After a change of the record the alias may show it as it was. If there is a record at alias, the error is
	// ErrConflict; if there is none at key, ErrNotFound.
	Alias(ctx context.Context, key, alias refstore.Key) error
	// PutUnaliased replaces a version of a record, and then deletes its alias. gone tells that nothing is at alias any
	// more; a record of its own stays there. After a crash the alias may be left.
	PutUnaliased(ctx context.Context, r refstore.Record, alias refstore.Key) (v refstore.Version, gone bool, err error)
	// WatchNames is [refstore.Watcher.Watch]. made returns the sort keys of records that were created since its last
	// call, and of some that were replaced; all says that others may have been created too, as at its first call.
	WatchNames(ctx context.Context, partition string) (
		c <-chan struct{}, made func() (sorts []string, all bool), err error,
	)
}

// A Batcher writes and reads many records in one request.
type Batcher interface {
	// ReadBatch returns those of one to [refstore.MaxReads] records that are there, without fields, in any order. It leaves
	// out damaged ones.
	ReadBatch(ctx context.Context, keys []refstore.Key) ([]refstore.Record, error)
	// WriteBatch puts records, whatever was there, and deletes others, whether or not they exist: at most
	// [refstore.MaxBatch] in all, no key twice. It is neither atomic nor ordered, and a write may take effect once more a
	// while later. So it is for records that are derived from others, and that readers compare with those. Values that
	// are large are refused, as are records of kinds that are more than one item: errors.ErrUnsupported.
	WriteBatch(ctx context.Context, puts []refstore.Record, gone []refstore.Key) error
}

// records reads and writes the records of jobs. Cached state is kept by the types above it.
type records struct {
	store   *spread
	files   Files            // nil: there are none
	watcher refstore.Watcher // nil if there is none, or it must not be used
	batch   *followUps
	reads   *gathered
	o       Options
}

func (rs *records) dropCancel(ctx context.Context, queue, id string) error {
	key := cancelKey(queue, id)
	r, err := rs.store.Get(ctx, key)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return rs.drop(ctx, key, r.Version)
}

// forget removes a finished job.
func (rs *records) forget(ctx context.Context, s stored) error {
	if err := rs.drop(ctx, finishedKey(s.Queue, s.ID), s.version); err != nil {
		return err
	}
	return rs.undead(ctx, s.Queue, s.ID)
}

// undead removes a job from the dead ones unless it is dead.
func (rs *records) undead(ctx context.Context, queue, id string) error {
	key := deadKey(queue, id)
	r, err := rs.store.Get(ctx, key)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := rs.loadFinished(ctx, queue, id)
	if isNotFound(err) || err == nil && !s.isDead() {
		return rs.drop(ctx, key, r.Version)
	}
	return err
}

// jobs yields the unfinished jobs of a queue whose ids have a prefix. An unreadable record is an error that does not
// end the iteration.
func (rs *records) jobs(ctx context.Context, queue, prefix string) iter.Seq2[stored, error] {
	return rs.jobsIn(ctx, queue, prefix, shards)
}

// jobsIn is jobs in some shards, if the queue has shards.
func (rs *records) jobsIn(ctx context.Context, queue, prefix, of string) iter.Seq2[stored, error] {
	q := refstore.Query{Partition: partition(queue, "jobs"), Prefix: prefix}
	return rs.listed(rs.store.listShards(ctx, q, of), true)
}

// finished yields the finished jobs of a run.
func (rs *records) finished(ctx context.Context, queue, run string) iter.Seq2[stored, error] {
	return rs.listed(rs.store.List(ctx, refstore.Query{Partition: finishedPartition(queue, run)}), false)
}

func (rs *records) listed(list iter.Seq2[refstore.Record, error], unmoved bool) iter.Seq2[stored, error] {
	return func(yield func(stored, error) bool) {
		for r, err := range list {
			var j Job
			if err == nil {
				j, err = decodeJob(r)
			}
			if !yield(stored{j, r.Version, r.Value, unmoved}, err) {
				return
			}
		}
	}
}

// names returns the names of all queues that were used.
func (rs *records) names(ctx context.Context) ([]string, error) {
	var names []string
	for r, err := range rs.store.List(ctx, refstore.Query{Partition: Names, KeysOnly: true}) {
		if err != nil {
			return nil, fmt.Errorf("list the queues: %w", err)
		}
		if ValidName(r.Key.Sort) == nil {
			names = append(names, r.Key.Sort)
		}
	}
	return names, nil
}

// now is the time in the records' precision.
func (rs *records) now() time.Time { return TimeOf(rs.o.Now()).Time() }

// load reads a job that is unfinished, or was not moved yet. The error is ErrNotFound.
func (rs *records) load(ctx context.Context, queue, id string) (stored, error) {
	r, err := rs.store.Get(ctx, jobKey(queue, id))
	if errors.Is(err, refstore.ErrNotFound) {
		return stored{}, fmt.Errorf("job %s/%s: %w", queue, id, ErrNotFound)
	}
	if err != nil {
		return stored{}, err
	}
	j, err := decodeJob(r)
	return stored{j, r.Version, r.Value, true}, err
}

// loadFinished reads a job that was moved to the finished ones. The error is ErrNotFound.
func (rs *records) loadFinished(ctx context.Context, queue, id string) (stored, error) {
	r, err := rs.store.Get(ctx, finishedKey(queue, id))
	if errors.Is(err, refstore.ErrNotFound) {
		return stored{}, fmt.Errorf("job %s/%s: %w", queue, id, ErrNotFound)
	}
	if err != nil {
		return stored{}, err
	}
	j, err := decodeJob(r)
	return stored{j, r.Version, r.Value, false}, err
}

// swap writes a job over a version. refstore.ErrConflict says that the record has another version and was not
// changed; after any other error the record was unchanged when it was read again.
func (rs *records) swap(ctx context.Context, over refstore.Version, j *Job) (stored, error) {
	return rs.swapBy(ctx, over, j, rs.store.Put)
}

// swapBy is swap by a way of putting a record.
func (rs *records) swapBy(ctx context.Context, over refstore.Version, j *Job, put func(context.Context, refstore.Record) (refstore.Version, error)) (stored, error) {
	j.Updated = TimeOf(rs.o.Now())
	s := stored{Job: *j, value: j.encode(), unmoved: true}
	err := s.fits()
	if err != nil {
		return stored{}, err
	}
	key := jobKey(j.Queue, j.ID)
	if s.version, err = put(ctx, refstore.Record{Key: key, Value: s.value, Version: over}); err == nil || errors.Is(err, refstore.ErrConflict) {
		return s, err
	}
	there, getErr := rs.store.Get(ctx, key)
	switch {
	case getErr == nil && bytes.Equal(there.Value, s.value): // it took effect
		s.version = there.Version
		return s, nil
	case getErr == nil && there.Version != over, errors.Is(getErr, refstore.ErrNotFound) && over != refstore.Absent:
		return stored{}, fmt.Errorf("%w: %w", refstore.ErrConflict, err)
	}
	return stored{}, err
}

// fits refuses a record that is so large that a later version of it might not be read.
func (s *stored) fits() error {
	if len(s.value) > maxRecord/2 {
		return fmt.Errorf("job %s: %w: its record has %d bytes", s.Ref(), refstore.ErrInvalid, len(s.value))
	}
	return nil
}

// conclude is swap for a change that may end the job. If the store can do so, an ended job moves to the finished jobs
// in the same call, unless a person may want to retry it. A process that dies in between leaves a running job beside
// the finished one, which orphan removes.
func (rs *records) conclude(ctx context.Context, over refstore.Version, j *Job) (stored, error) {
	if rs.files != nil && j.Status.Terminal() && !j.isDead() {
		j.Updated = TimeOf(rs.o.Now())
		s := stored{Job: *j, value: j.encode()}
		if err := s.fits(); err != nil {
			return stored{}, err
		}
		var err error
		ended := refstore.Record{Key: finishedKey(j.Queue, j.ID), Value: s.value}
		s.version, err = rs.files.Move(ctx, jobKey(j.Queue, j.ID), over, ended)
		if err == nil {
			return s, nil
		}
		// It may have failed after it had moved the job: a flush, or the answer. Then the job has ended, and its record
		// under the old key is gone, which is no loss of the lease.
		if there, getErr := rs.store.Get(ctx, finishedKey(j.Queue, j.ID)); getErr == nil && bytes.Equal(there.Value, s.value) {
			if _, getErr := rs.store.Get(ctx, jobKey(j.Queue, j.ID)); errors.Is(getErr, refstore.ErrNotFound) {
				s.version = there.Version
				return s, nil
			}
		}
	} // after any other error, swap and move find out what the call has done
	return rs.swap(ctx, over, j)
}

// drop removes a version of an entry.
func (rs *records) drop(ctx context.Context, key refstore.Key, v refstore.Version) error {
	err := rs.store.Delete(ctx, key, v)
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrConflict) {
		return nil // another process has removed it, or the job can be claimed again
	}
	return err
}

// move copies an ended job to the finished ones, and removes it. It is idempotent, for any process.
func (rs *records) move(ctx context.Context, s stored) error {
	r := refstore.Record{Key: finishedKey(s.Queue, s.ID), Value: s.value}
	for {
		_, err := rs.store.Put(ctx, r)
		if err == nil {
			break
		}
		if !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrInDoubt) {
			return err
		}
		// It was moved before, or it had finished before it was retried.
		before, err := rs.loadFinished(ctx, s.Queue, s.ID)
		if err == nil && before.Retried >= s.Retried {
			break
		}
		if err != nil && !isNotFound(err) {
			return err
		}
		r.Version = before.version
	}
	if s.isDead() {
		if _, err := rs.store.Put(ctx, refstore.Record{Key: deadKey(s.Queue, s.ID), Value: []byte("{}")}); err != nil && !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrInDoubt) {
			return err
		}
	}
	return rs.drop(ctx, jobKey(s.Queue, s.ID), s.version)
}

// tells reports whether workers tell a run in a message which of its jobs they have ended: where a look at all of
// them takes several requests.
func (rs *records) tells() bool {
	return rs.store.sharded && rs.batch.store != nil && rs.watcher == nil
}

// loadMoved reads those of some jobs that are among the finished ones, by their ids. A malformed one is left out. After
// an error it returns what it has found.
func (rs *records) loadMoved(ctx context.Context, queue string, ids []string) (map[string]stored, error) {
	found := make(map[string]stored)
	if rs.batch.store == nil { // reads of a folder wait for nothing
		for _, id := range ids {
			s, err := rs.loadFinished(ctx, queue, id)
			if err == nil {
				found[id] = s
			} else if !isNotFound(err) && !errors.Is(err, ErrMalformed) {
				return found, err
			}
		}
		return found, nil
	}
	for some := range slices.Chunk(ids, refstore.MaxReads) {
		var keys []refstore.Key
		for _, id := range some {
			keys = append(keys, finishedKey(queue, id))
		}
		list, err := rs.store.ReadBatch(ctx, keys)
		for _, r := range list {
			if j, err := decodeJob(r); err == nil {
				found[j.ID] = stored{j, r.Version, r.Value, false}
			}
		}
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// loadLate is loadFinished, for many callers at a time that expect no job.
func (rs *records) loadLate(ctx context.Context, queue, id string) (stored, error) {
	if rs.batch.store == nil {
		return rs.loadFinished(ctx, queue, id)
	}
	r, found, err := rs.reads.get(ctx, rs.store, finishedKey(queue, id))
	if err != nil {
		return stored{}, err
	}
	if !found { // or it is damaged, and says nothing
		return stored{}, fmt.Errorf("job %s/%s: %w", queue, id, ErrNotFound)
	}
	j, err := decodeJob(r)
	return stored{j, r.Version, r.Value, false}, err
}

// find reads a job, finished or not. The error is ErrNotFound.
func (rs *records) find(ctx context.Context, queue, id string) (stored, error) {
	if err := errors.Join(ValidName(queue), validID(id)); err != nil {
		return stored{}, fmt.Errorf("job %.100s/%.200s: %w: %w", queue, id, ErrNotFound, err)
	}
	for try := 0; ; try++ {
		s, err := rs.load(ctx, queue, id)
		if isNotFound(err) {
			s, err = rs.loadFinished(ctx, queue, id)
		}
		// A retry may move it between the two reads.
		if !isNotFound(err) || try > 0 {
			return s, err
		}
	}
}

// notifiedOf is notified, and returns a function that tells which records were created since its last call: a list of
// names, or that any may have been created.
func (rs *records) notifiedOf(ctx context.Context, partition string) (<-chan struct{}, func() (sorts []string, all bool), error) {
	if rs.watcher != nil && rs.files != nil {
		return rs.files.WatchNames(ctx, partition)
	}
	c, err := rs.notified(ctx, partition)
	return c, func() ([]string, bool) { return nil, true }, err
}

// notified returns a channel that receives when a partition may have changed; nil, which never receives, if the store
// does not notify.
func (rs *records) notified(ctx context.Context, partition string) (<-chan struct{}, error) {
	if rs.watcher == nil {
		return nil, nil
	}
	return rs.watcher.Watch(ctx, partition)
}
