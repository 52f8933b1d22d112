package dynamo

import (
	"context"
	"errors"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"e3/refstore"
)

// The parts of a stream are merged, so that its head, which each append writes anew, stays small: it names maxParts, or as many as
// the stream has times partShare bytes, if that is more.
const (
	maxParts  = 64
	partShare = 16 << 20
	// maxMerged bounds a part that is made of others. It is three times partShare: so of the parts that are too many, two
	// neighbours are always small enough.
	maxMerged = 48 << 20
	// mergeMemory is for all that are merged at a time.
	mergeMemory = 64 << 20
	// maxTable is how many parts an item has room for: of its 400 KB they take 24 bytes each. They are 250 GiB at least.
	maxTable = 16000
	// mergeReads is how many parts are read at a time.
	mergeReads = 8
)

// mayHave is how many parts are not too many.
func mayHave(bytes int64) int {
	return int(min(max(maxParts, bytes/partShare), maxTable))
}

// merge makes one part of some where there are too many.
func (s *Store) merge(ctx context.Context, k itemKey, c *change) error {
	parts := c.next.parts
	if len(parts) <= mayHave(total(parts)) {
		return nil
	}
	first, end := toMerge(parts)
	if first == end {
		return nil
	}
	run := parts[first:end]
	p, err := s.putMerged(ctx, k, run)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil // the head is old, as its write will show; or the part is lost, and no reason not to append
	}
	if err != nil {
		return err
	}
	c.made = append(c.made, p)
	c.gone = append(c.gone, run...)
	c.next.parts = slices.Concat(parts[:first], []streamPart{p}, parts[end:])
	return nil
}

// toMerge returns the best run of at least two parts that have maxMerged bytes together at most, an empty one if there is none: the
// one with the largest entropy, that is log2(n) for n parts of one size. This is by how many doublings, on average over the bytes, the
// part grows in which a byte lies. There are log2(maxMerged/maxTail) < 13 of them for each byte: so what is written again is at most 13
// times what was appended, over the least entropy that was ever the best. TestMergeCost holds it above 1, and finds the best to be far better.
func toMerge(parts []streamPart) (first, end int) {
	best := 0.0
	for i := range parts {
		var sum, logs float64
		for j := i; j < len(parts); j++ {
			size := float64(parts[j].size)
			if sum += size; sum > maxMerged {
				break
			}
			logs += size * math.Log2(size)
			if entropy := math.Log2(sum) - logs/sum; j > i && (first == end || entropy > best) {
				first, end, best = i, j+1, entropy
			}
		}
	}
	return first, end
}

// putMerged puts one part with what is in a run of them.
func (s *Store) putMerged(ctx context.Context, k itemKey, run []streamPart) (streamPart, error) {
	size := total(run)
	if err := s.merging.Acquire(ctx, size); err != nil {
		return streamPart{}, err
	}
	defer s.merging.Release(size)
	header := blobHeader(k)
	blob := make([]byte, int64(len(header))+size)
	rest := blob[copy(blob, header):]
	g, reading := errgroup.WithContext(ctx)
	g.SetLimit(mergeReads)
	for i, name := range blobNames(k, run) {
		into := rest[:run[i].size]
		rest = rest[len(into):]
		g.Go(func() error { return s.readInto(reading, into, name, k) })
	}
	if err := g.Wait(); err != nil {
		return streamPart{}, err
	}
	p := newPart(size)
	return p, s.putWhole(ctx, blobNames(k, []streamPart{p})[0], blob)
}

func total(parts []streamPart) (sum int64) {
	for _, p := range parts {
		sum += p.size
	}
	return sum
}
