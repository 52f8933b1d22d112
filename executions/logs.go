package executions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"e3/refstore"
)

// A log is a stream or, for a short command, a field of its execution's record. Where records and streams are files,
// both are the same file.

// shortLogs is a store of streams that also finds a log in its execution's record.
type shortLogs interface{ ShortLogs() bool }

// OpenLog reads a log from a byte offset. A log that does not exist reads as empty.
func (s *Store) OpenLog(ctx context.Context, k Key, id string, stream Stream, offset int64) (io.ReadCloser, error) {
	r, err := s.records.Open(ctx, logKey(k, id, stream), offset)
	if !errors.Is(err, refstore.ErrNotFound) {
		return r, err
	}
	text, err := s.logField(ctx, k, id, stream)
	return io.NopCloser(bytes.NewReader(text[min(offset, int64(len(text))):])), err
}

// FollowLog reads a log from its beginning and waits for more, until the log is sealed, the reader closed, or ctx ends.
// It also waits for a log that does not exist yet.
func (s *Store) FollowLog(ctx context.Context, k Key, id string, stream Stream) (io.ReadCloser, error) {
	return s.records.Follow(ctx, logKey(k, id, stream), 0)
}

// LogSize returns the number of bytes that the log has now.
func (s *Store) LogSize(ctx context.Context, k Key, id string, stream Stream) (int64, error) {
	info, err := s.records.Size(ctx, logKey(k, id, stream))
	if !errors.Is(err, refstore.ErrNotFound) {
		return info.Size, err
	}
	text, err := s.logField(ctx, k, id, stream)
	return int64(len(text)), err
}

// removeLogs removes the streams of an execution whose record is deleted. Where records and streams are files the
// store has already removed them.
func (s *Store) removeLogs(ctx context.Context, k Key, id string) error {
	if _, files := s.records.(streamAdopter); files {
		return nil
	}
	for _, stream := range []Stream{Stdout, Stderr} {
		err := s.records.Remove(ctx, logKey(k, id, stream))
		if err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return fmt.Errorf("remove %s: %w", stream, err)
		}
	}
	return nil
}

// logField returns the log that was written with the record; nil if there is none or the store has already looked
// there.
func (s *Store) logField(ctx context.Context, k Key, id string, stream Stream) ([]byte, error) {
	if r, ok := s.records.(shortLogs); ok && r.ShortLogs() {
		return nil, nil
	}
	rec, err := s.records.Get(ctx, recordKey(k, id), string(stream))
	if errors.Is(err, refstore.ErrNotFound) {
		return nil, nil
	}
	text, _ := rec.Field(string(stream))
	return text, err
}
