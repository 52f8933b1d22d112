package fs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"iter"
	"strconv"
	"time"

	"e3/refstore"
)

// ExecutionsAfter yields the keys of a task's executions with ids greater than id, in no order. Some of the records may
// be gone. A folder of inputs is only opened if it changed since the time in id: a new execution changes it.
func (s *Store) ExecutionsAfter(ctx context.Context, task, id string) iter.Seq2[refstore.Key, error] {
	return func(yield func(refstore.Key, error) bool) {
		fail := func(err error) { yield(refstore.Key{}, fmt.Errorf("list executions after %.40q: %w", id, err)) }
		p, err := s.files.place("INPUTS/" + task)
		if err != nil {
			fail(err)
			return
		}
		all, err := s.files.sorts(p)
		if err != nil {
			fail(err)
			return
		}
		unchanged := s.files.unchangedAt(id)
		for _, inputs := range all {
			if ctx.Err() != nil {
				fail(context.Cause(ctx))
				return
			}
			path, _ := p.path(inputs)
			info, err := s.files.lstat(path)
			switch {
			case errors.Is(err, iofs.ErrNotExist):
				continue
			case err != nil:
				fail(err)
				return
			case info.ModTime().Before(unchanged):
				continue
			}
			of := place{shape: dirShape, dir: path}
			ids, err := s.files.sorts(of)
			if err != nil {
				fail(err)
				return
			}
			for _, made := range ids {
				key := refstore.Key{Partition: "EXECUTION/" + task + "/" + inputs, Sort: made}
				if made > id && !yield(key, nil) {
					return
				}
			}
		}
	}
}

// Clocks may differ by this much: on one machine the coarse clock of the kernel and the clock of ids, and between
// machines that share a folder.
const (
	ownSlack    = 2 * time.Second
	sharedSlack = time.Hour
)

// unchangedAt is a time for comparison with a folder's last change: a folder that was last changed before it has no
// execution with an id greater than id. It is the zero time if id holds no time.
func (s *files) unchangedAt(id string) time.Time {
	const digits = 12 // 48 bits of milliseconds, with a dash after the eighth
	if len(id) <= digits || id[8] != '-' {
		return time.Time{}
	}
	ms, err := strconv.ParseInt(id[:8]+id[9:digits+1], 16, 64)
	if err != nil {
		return time.Time{}
	}
	slack := ownSlack
	if s.looks.network {
		slack = sharedSlack
	}
	return time.UnixMilli(ms).Add(-slack)
}
