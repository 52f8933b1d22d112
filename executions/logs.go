package executions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"e3/internal/format/record"
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

// LogTail reads the last bytes of a log, at most so many, from the beginning of a line if there is one. whole is the size of
// the log.
func (s *Store) LogTail(ctx context.Context, k Key, id string, stream Stream, most int64) (tail []byte, whole int64, err error) {
	whole, err = s.LogSize(ctx, k, id, stream)
	if err != nil || whole == 0 {
		return nil, 0, err
	}
	in, err := s.OpenLog(ctx, k, id, stream, max(0, whole-most))
	if err != nil {
		return nil, whole, err
	}
	tail, err = io.ReadAll(io.LimitReader(in, most))
	if i := bytes.IndexByte(tail, '\n'); whole > most && i >= 0 && i+1 < len(tail) {
		tail = tail[i+1:]
	}
	return tail, whole, errors.Join(err, in.Close())
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

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrLogDamaged reports a log that differs from what the command printed.
var ErrLogDamaged = errors.New("the log is damaged: it is not what the command has printed")

// LogNotice is what a repair appends to a damaged log.
const LogNotice = "\n[e3: this log was damaged: it is not what the command has printed]\n"

// CheckedLog reads a log from its beginning. If the bytes differ from what the command printed, the reader's end is
// an error that wraps [ErrLogDamaged]. Bytes behind the end of the log are not checked.
func (s *Store) CheckedLog(ctx context.Context, e *Execution, stream Stream) (io.ReadCloser, error) {
	in, err := s.OpenLog(ctx, e.Key, e.ExecutionID, stream, 0)
	if err != nil || e.Detail == nil || e.State == record.Running {
		return in, err
	}
	return CheckLog(in, e.Detail, e.ExecutionID, stream), nil
}

// CheckLog is CheckedLog for a log that was opened at its beginning.
func CheckLog(in io.ReadCloser, detail *record.Detail, id string, stream Stream) io.ReadCloser {
	if !detail.Logs.Known {
		return in
	}
	want := detail.Logs.Stdout
	if stream == Stderr {
		want = detail.Logs.Stderr
	}
	return &checkedLog{ReadCloser: in, want: want, stream: stream, id: id}
}

// checkedLog sums what is read, up to the recorded length. Later bytes, such as those of a surviving child process,
// are passed on.
type checkedLog struct {
	io.ReadCloser
	want   record.LogSum
	got    record.LogSum
	stream Stream
	id     string
}

// Read implements [io.Reader].
func (l *checkedLog) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	part := p[:min(int64(n), l.want.Size-l.got.Size)]
	l.got.Size += int64(len(part))
	l.got.Sum = crc32.Update(l.got.Sum, castagnoli, part)
	if err == io.EOF && l.got != l.want {
		return n, fmt.Errorf("%s of execution %s: %w (%d bytes, it had %d)", l.stream, l.id, ErrLogDamaged, l.got.Size, l.want.Size)
	}
	return n, err
}

// MendLogs rewrites the damaged logs of an execution that has ended: their readable part, then [LogNotice].
func (c *Curator) MendLogs(ctx context.Context, e *Execution) error {
	rec, err := c.records.Get(ctx, recordKey(e.Key, e.ExecutionID), fieldDetail)
	if err != nil {
		return fmt.Errorf("mend logs of execution %s: %w", e.ExecutionID, err)
	}
	detail := record.Detail{}
	if e.Detail != nil {
		detail = *e.Detail
	}
	rec.Fields = nil
	for _, l := range []struct {
		stream Stream
		sum    *record.LogSum
	}{{Stdout, &detail.Logs.Stdout}, {Stderr, &detail.Logs.Stderr}} {
		text, bad := c.readable(ctx, e, l.stream)
		if bad == nil {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		text = append(text, LogNotice...)
		*l.sum = record.LogSum{Size: int64(len(text)), Sum: crc32.Checksum(text, castagnoli)}
		if err := c.replaceLog(ctx, e, l.stream, text); err != nil {
			return fmt.Errorf("mend %s of execution %s: %w", l.stream, e.ExecutionID, err)
		}
	}
	if e.Detail != nil {
		rec.Fields = append(rec.Fields, refstore.Field{Name: fieldDetail, Value: detail.Encode()})
	}
	if _, err := c.records.Put(ctx, rec); err != nil {
		return fmt.Errorf("mend logs of execution %s: %w", e.ExecutionID, err)
	}
	return nil
}

// maxMendedLog bounds the part of a damaged log that is kept.
const maxMendedLog = 64 << 20

// readable returns the readable part of a log, and the error that it ends with.
func (c *Curator) readable(ctx context.Context, e *Execution, stream Stream) ([]byte, error) {
	in, err := c.CheckedLog(ctx, e, stream)
	if err != nil {
		return nil, err
	}
	defer in.Close() // opened for reading
	text, err := io.ReadAll(io.LimitReader(in, maxMendedLog))
	if err == nil && len(text) == maxMendedLog {
		_, err = io.Copy(io.Discard, in)
	}
	return text, err
}

// replaceLog replaces a log by a text. A stream takes precedence over a log in the record.
func (c *Curator) replaceLog(ctx context.Context, e *Execution, stream Stream, text []byte) error {
	key := logKey(e.Key, e.ExecutionID, stream)
	_, err := c.records.Size(ctx, key) // remove only a log
	if err == nil {
		err = c.records.Remove(ctx, key)
	}
	if err != nil && !errors.Is(err, refstore.ErrNotFound) {
		return err
	}
	for at := 0; at < len(text); {
		n := min(len(text)-at, maxAppend)
		if err := c.records.Append(ctx, key, int64(at), text[at:at+n]); err != nil {
			return err
		}
		at += n
	}
	return c.records.Seal(ctx, key)
}
