package executions

import (
	"bytes"
	"context"
	"errors"
	"io"

	"e3/refstore"
)

// A log is the stream of its name or, where there is none, the field of its execution's record: what a short command
// printed is written together with the record. Where records and streams are files both are the same one.

// OpenLog reads a log from a byte offset; what never printed anything reads as empty.
func (s *Store) OpenLog(ctx context.Context, k Key, id string, stream Stream, offset int64) (io.ReadCloser, error) {
	r, err := s.records.Open(ctx, logKey(k, id, stream), offset)
	if !errors.Is(err, refstore.ErrNotFound) {
		return r, err
	}
	text, err := s.logField(ctx, k, id, stream)
	return io.NopCloser(bytes.NewReader(text[min(offset, int64(len(text))):])), err
}

// FollowLog reads a log from its beginning and waits for more, until it is closed or the context
// ends. A log that does not exist yet is waited for.
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

// logField returns the log that was written with the record, nil if there is none.
func (s *Store) logField(ctx context.Context, k Key, id string, stream Stream) ([]byte, error) {
	rec, err := s.records.Get(ctx, recordKey(k, id), string(stream))
	if errors.Is(err, refstore.ErrNotFound) {
		return nil, nil
	}
	text, _ := rec.Field(string(stream))
	return text, err
}
