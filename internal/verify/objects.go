package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/objectstore"
)

// damage is the fault of an object's bytes.
type damage struct {
	kind    FaultKind
	problem string
	time    time.Time // of the object's file when the fault was found
}

// objectPath is the path of an object in the repository.
func objectPath(h objectstore.Hash) string {
	text := h.String()
	return "objects/" + text[:2] + "/" + text[2:]
}

// hash reads the objects of the sample, several at a time.
func (v *verifier) hash(ctx context.Context) error {
	var shards []byte
	for i := range objectstore.Shards {
		if v.Sample.hasShard(byte(i)) {
			shards = append(shards, byte(i))
		}
	}
	v.progress(Progress{Phase: Hashing, Total: len(shards)})
	done := 0
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(v.workers())
	for _, shard := range shards {
		g.Go(func() error {
			if err := v.past(v.hashShard(ctx, shard)); err != nil {
				return fmt.Errorf("hash objects: %w", err)
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			done++
			v.progress(Progress{Phase: Hashing, Done: done, Total: len(shards), Bytes: v.report.Bytes})
			return nil
		})
	}
	return g.Wait()
}

func (v *verifier) hashShard(ctx context.Context, shard byte) error {
	for e, err := range v.Objects.WalkShard(ctx, shard) {
		if err != nil {
			return err
		}
		if !v.Sample.has(e.Hash) {
			continue
		}
		d, found := v.look(ctx, e.Hash)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		v.mu.Lock()
		v.report.Objects++
		v.report.Bytes += e.Size
		if found {
			d.time = e.Time
			v.corrupt[e.Hash] = d
		}
		v.mu.Unlock()
	}
	return nil
}

// look hashes an object. If the hash is wrong it hashes again, because the object may have been put again, or
// collected, in between.
func (v *verifier) look(ctx context.Context, h objectstore.Hash) (damage, bool) {
	err := v.Objects.Verify(ctx, h)
	if err == nil || errors.Is(err, objectstore.ErrNotFound) {
		return damage{}, false
	}
	return v.lookAgain(ctx, h)
}

func (v *verifier) lookAgain(ctx context.Context, h objectstore.Hash) (damage, bool) {
	err := v.Objects.Verify(ctx, h)
	var corrupt *objectstore.CorruptError
	switch {
	case err == nil, errors.Is(err, objectstore.ErrNotFound):
		return damage{}, false
	case errors.As(err, &corrupt):
		return damage{kind: CorruptObject, problem: fmt.Sprintf("its %d bytes hash to %s", corrupt.Size, corrupt.Got)}, true
	}
	return damage{kind: UnreadableObject, problem: err.Error()}, true
}

// removeCorrupt removes a corrupt object, unless it has been replaced since. A newer time stamp does not protect it,
// since a writer that put it again may have refreshed the stamp of the corrupt bytes.
func (v *verifier) removeCorrupt(ctx context.Context, h objectstore.Hash, seen time.Time) (bool, error) {
	gone, err := v.Objects.DeleteBefore(ctx, h, seen.Add(1))
	if gone || err != nil {
		return gone, err
	}
	if d, still := v.lookAgain(ctx, h); !still || d.kind != CorruptObject {
		return true, nil
	}
	return true, v.Objects.Delete(ctx, h)
}
