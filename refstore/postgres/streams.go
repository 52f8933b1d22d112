package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"e3/refstore"
)

// head is the row of a stream, with the chunks that were read with it.
type head struct {
	stream, version, replaced string
	size                      int64
	sealed                    bool
	cuts, cutTo               int64
	from                      int64 // the offset from which on chunks were read
	chunks                    []chunk
}

// chunk are bytes of a stream from start on.
type chunk struct {
	start int64
	data  []byte
}

const (
	maxChunk   = 1 << 20 // bytes of a chunk; a longer append makes several
	chunksRead = 16      // chunks that are read at a time
)

// look reads the head of a stream and its first chunks from an offset on; a negative offset counts from the end. It
// returns nil if there is no stream. with is the number of chunks.
func (s *Store) look(ctx context.Context, key refstore.Key, offset int64, with int) (*head, error) {
	type line struct {
		head
		start *int64
		data  []byte
	}
	lines, err := rows(ctx, s, "read a stream", `
		SELECT h.stream, h.version, coalesce(h.replaced, ''), h.size, h.sealed, h.cuts, h.cut_to, f.from, c.start, c.data
		FROM e3.streams h CROSS JOIN LATERAL (SELECT CASE WHEN $4 < 0 THEN greatest(h.size + $4, 0) ELSE $4 END) f("from")
		LEFT JOIN LATERAL (
			SELECT start, data FROM e3.chunks c WHERE c.repository = $1 AND c.stream = h.stream AND start < h.size AND start >= coalesce(
				(SELECT max(b.start) FROM e3.chunks b WHERE b.repository = $1 AND b.stream = h.stream AND b.start <= f.from), 0)
			ORDER BY start LIMIT $5
		) c ON f.from < h.size
		WHERE h.repository = $1 AND h.partition = $2 AND h.sort = $3 ORDER BY c.start`,
		[]any{s.o.Repository, []byte(key.Partition), []byte(key.Sort), offset, with},
		func(r pgx.CollectableRow) (l line, err error) {
			return l, r.Scan(&l.stream, &l.version, &l.replaced, &l.size, &l.sealed, &l.cuts, &l.cutTo, &l.from, &l.start, &l.data)
		})
	if err != nil || len(lines) == 0 {
		return nil, err
	}
	h := &lines[0].head
	for _, l := range lines {
		if l.start != nil {
			h.chunks = append(h.chunks, chunk{*l.start, l.data})
		}
	}
	return h, nil
}

// write changes a stream by a statement whose conditions may not hold: w returns a row if they did. Then done, which gets the
// head as it is now, nil if there is none, says what became of it: with again, the statement is to be made again.
func (s *Store) write(ctx context.Context, operation string, key refstore.Key, version, write string, args []any, done func(h *head, doubt bool) (again bool, err error)) error {
	args = append([]any{[]byte(key.Partition), []byte(key.Sort), version}, args...)
	for {
		n, doubt, err := s.written(ctx, operation, key.Partition, write, args...)
		if err != nil || n > 0 {
			return err
		}
		h, err := s.look(ctx, key, 0, 0)
		if err != nil {
			return err
		}
		if h != nil && (h.version == version || h.replaced == version) {
			return nil
		}
		if again, err := done(h, doubt); !again {
			return err
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
	}
}

// The statements of streams. $4 is the version that they write.
const (
	appendFirst = `h AS (INSERT INTO e3.streams AS h (repository, partition, sort, stream, version, size)
		SELECT $1, $2, $3, $5, $4, $7 WHERE EXISTS (SELECT FROM fence)
		ON CONFLICT (repository, partition, sort) DO UPDATE SET size = $7, version = $4, replaced = h.version
			WHERE h.size = $6 AND NOT h.sealed AND h.replaced IS DISTINCT FROM $4 RETURNING stream)`
	appendMore = `h AS (UPDATE e3.streams SET size = $6 + $7, version = $4, replaced = version
		WHERE repository = $1 AND partition = $2 AND sort = $3 AND size = $6 AND NOT sealed AND $5 <> '' AND replaced IS DISTINCT FROM $4
			AND EXISTS (SELECT FROM fence) RETURNING stream)`
	appendChunks = `, c AS (INSERT INTO e3.chunks (repository, stream, start, data)
			SELECT $1, h.stream, $6 + k.start, k.data FROM h, unnest($8::bigint[], $9::bytea[]) AS k(start, data)),
		w AS (SELECT 1 FROM h)`
	cutStream = `h AS (UPDATE e3.streams SET size = $5, version = $4, replaced = version, cuts = cuts + 1, cut_to = $5
			WHERE repository = $1 AND partition = $2 AND sort = $3 AND version = $6 AND EXISTS (SELECT FROM fence) RETURNING stream),
		d AS (DELETE FROM e3.chunks c USING h WHERE c.repository = $1 AND c.stream = h.stream AND start >= $5),
		u AS (UPDATE e3.chunks c SET data = substring(data FOR ($5 - start)::int) FROM h WHERE c.repository = $1 AND c.stream = h.stream
			AND start = (SELECT max(start) FROM e3.chunks b WHERE b.repository = $1 AND b.stream = h.stream AND start < $5) AND start + octet_length(data) > $5),
		w AS (SELECT 1 FROM h)`
	sealStream = `w AS (INSERT INTO e3.streams AS h (repository, partition, sort, stream, version, size, sealed)
		SELECT $1, $2, $3, $5, $4, 0, true WHERE EXISTS (SELECT FROM fence)
		ON CONFLICT (repository, partition, sort) DO UPDATE SET sealed = true, version = $4, replaced = h.version WHERE NOT h.sealed RETURNING 1)`
	removeStream = `h AS (DELETE FROM e3.streams WHERE repository = $1 AND partition = $2 AND sort = $3 AND version = $5 AND $4 <> '' AND EXISTS (SELECT FROM fence)
			RETURNING stream),
		d AS (DELETE FROM e3.chunks c USING h WHERE c.repository = $1 AND c.stream = h.stream),
		w AS (SELECT 1 FROM h)`
)

// Append implements [refstore.Streams].
func (s *Store) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	err := checkOffset(ctx, key, offset)
	if err != nil {
		return err
	}
	var starts []int64
	var parts [][]byte
	start := int64(0)
	for part := range slices.Chunk(data, maxChunk) {
		starts, parts = append(starts, start), append(parts, part)
		start += int64(len(part))
	}
	text := appendMore
	if offset == 0 {
		text = appendFirst
	}
	version := newVersion()
	err = s.write(ctx, "append", key, version, text+appendChunks, []any{newVersion(), offset, int64(len(data)), starts, parts}, func(h *head, doubt bool) (bool, error) {
		switch {
		case h != nil && h.sealed:
			return false, refstore.ErrSealed
		case h == nil && offset > 0:
			return false, fmt.Errorf("there is none: %w", refstore.ErrConflict)
		case h != nil && h.size != offset && doubt && h.size >= offset+int64(len(data)):
			return false, refstore.ErrInDoubt
		case h != nil && h.size != offset:
			return false, fmt.Errorf("it has %d bytes: %w", h.size, refstore.ErrConflict)
		}
		return true, nil // it changed meanwhile
	})
	if err != nil {
		return fmt.Errorf("append to %q at %d: %w", key, offset, err)
	}
	return nil
}

// Size implements [refstore.Streams].
func (s *Store) Size(ctx context.Context, key refstore.Key) (refstore.StreamInfo, error) {
	h, err := s.existing(ctx, "size of", key, 0, 0)
	if err != nil {
		return refstore.StreamInfo{}, err
	}
	return refstore.StreamInfo{Size: h.size, Sealed: h.sealed}, nil
}

// existing is look at a stream that must exist.
func (s *Store) existing(ctx context.Context, what string, key refstore.Key, offset int64, with int) (*head, error) {
	if err := check(ctx, key.Validate()); err != nil {
		return nil, err
	}
	h, err := s.look(ctx, key, offset, with)
	if err == nil && h == nil {
		err = refstore.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", what, key, err)
	}
	return h, nil
}

// Cut implements [refstore.Streams].
func (s *Store) Cut(ctx context.Context, key refstore.Key, size int64) error {
	if err := checkOffset(ctx, key, size); err != nil {
		return err
	}
	for {
		h, err := s.existing(ctx, "cut", key, 0, 0)
		if err != nil {
			return err
		}
		again := false
		switch {
		case h.sealed:
			err = refstore.ErrSealed
		case size > h.size:
			err = fmt.Errorf("it has %d bytes: %w", h.size, refstore.ErrConflict)
		case size < h.size:
			// The chunks of this version are all seen: the statement begins after the version was read.
			err = s.write(ctx, "cut", key, newVersion(), cutStream, []any{size, h.version}, func(*head, bool) (bool, error) {
				again = true
				return false, nil
			})
		}
		if err != nil {
			return fmt.Errorf("cut %q to %d: %w", key, size, err)
		}
		if !again {
			return nil
		}
	}
}

// Seal implements [refstore.Streams].
func (s *Store) Seal(ctx context.Context, key refstore.Key) error {
	if err := check(ctx, key.Validate()); err != nil {
		return err
	}
	err := s.write(ctx, "seal", key, newVersion(), sealStream, []any{newVersion()}, func(h *head, _ bool) (bool, error) {
		return h == nil || !h.sealed, nil
	})
	if err != nil {
		return fmt.Errorf("seal %q: %w", key, err)
	}
	return nil
}

// Remove implements [refstore.Streams].
func (s *Store) Remove(ctx context.Context, key refstore.Key) error {
	stream := ""
	for {
		h, err := s.existing(ctx, "remove", key, 0, 0)
		if errors.Is(err, refstore.ErrNotFound) && stream != "" {
			return nil // by this call or another
		}
		if err != nil {
			return err
		}
		if stream != "" && h.stream != stream {
			return nil
		}
		again := false
		err = s.write(ctx, "remove", key, newVersion(), removeStream, []any{h.version}, func(_ *head, doubt bool) (bool, error) {
			if again = true; doubt {
				stream = h.stream
			}
			return false, nil
		})
		if err != nil {
			return fmt.Errorf("remove %q: %w", key, err)
		}
		if !again {
			return nil
		}
	}
}

// ListStreams implements [refstore.Streams].
func (s *Store) ListStreams(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Key, error] {
	return func(yield func(refstore.Key, error) bool) {
		if err := check(ctx, q.Validate()); err != nil {
			yield(refstore.Key{}, err)
			return
		}
		q.KeysOnly = true
		for r, err := range s.list(ctx, "e3.streams", q) {
			if err != nil {
				err = fmt.Errorf("list streams %q: %w", q.Partition, err)
			}
			if !yield(r.Key, err) || err != nil {
				return
			}
		}
	}
}

// ListPartitions implements [refstore.Streams]. It holds the names of all partitions of the kind in memory.
func (s *Store) ListPartitions(ctx context.Context, kind string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := check(ctx, refstore.Query{Partition: kind}.Validate()); err != nil {
			yield("", err)
			return
		}
		var partitions []string
		for from := kind; ; from = partitions[len(partitions)-1] + "\x00" {
			size := pages[len(pages)-1]
			found, err := s.partitions(ctx, "e3.streams", from, kind+"0", virtual{}, size)
			if err != nil {
				yield("", fmt.Errorf("list partitions of %q: %w", kind, err))
				return
			}
			partitions = append(partitions, found...)
			if len(found) < size {
				break
			}
		}
		partitions = slices.DeleteFunc(partitions, func(p string) bool { return p != kind && !strings.HasPrefix(p, kind+"/") })
		slices.SortFunc(partitions, func(a, b string) int {
			return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
		})
		for _, p := range partitions {
			if !yield(p, nil) {
				return
			}
		}
	}
}

func checkOffset(ctx context.Context, key refstore.Key, offset int64) error {
	if offset < 0 {
		return fmt.Errorf("stream %q: %w: negative offset %d", key, refstore.ErrInvalid, offset)
	}
	return check(ctx, key.Validate())
}
