package dynamo

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"e3/refstore"
)

// The parts of a stream are merged, so that its head, which each append rewrites, stays small. The head names at most
// maxParts parts, or, in a long stream, one part for each partShare bytes.
const (
	maxParts  = 64
	partShare = 16 << 20
	// maxMerged bounds a merged part. It is three times partShare: so if there are too many parts, two adjacent parts
	// are always small enough.
	maxMerged = 48 << 20
	// mergeMemory bounds the memory of all merges at a time.
	mergeMemory = 64 << 20
	// maxTable is the number of parts that fit in an item of 400 KB, with 24 bytes each. Together these parts hold at
	// least 250 GiB.
	maxTable = 16000
	// mergeReads is the number of parts that a merge reads at a time.
	mergeReads = 8
)

// mayHave is the largest allowed number of parts of a stream.
func mayHave(bytes int64) int {
	return int(min(max(maxParts, bytes/partShare), maxTable))
}

// merge makes one part of several if there are too many.
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
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return nil // the head is out of date, and its write will fail; or a part is lost: append without a merge
	}
	if err != nil {
		return err
	}
	c.added = append(c.added, p)
	c.dropped = append(c.dropped, run...)
	c.next.parts = slices.Concat(parts[:first], []streamPart{p}, parts[end:])
	return nil
}

// toMerge returns the best run of at least two parts with at most maxMerged bytes together, or an empty run if there is
// none. The best run is the one with the largest entropy, which is log2(n) for n parts of equal size. The entropy says
// how often a merge doubles the part around a byte, on average over the bytes. Such a part can double
// log2(maxMerged/maxTail) < 13 times: so a stream rewrites at most 13 times its appended bytes, divided by the least
// entropy of any best run. TestMergeCost requires an entropy above 1, and finds far more.
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

// putMerged puts one part with the bytes of a run.
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
		g.Go(func() error { return s.table.readInto(reading, into, name, k) })
	}
	if err := g.Wait(); err != nil {
		return streamPart{}, err
	}
	p := newPart(size)
	return p, s.table.putWhole(ctx, blobNames(k, []streamPart{p})[0], blob)
}

func total(parts []streamPart) (sum int64) {
	for _, p := range parts {
		sum += p.size
	}
	return sum
}
