package executions

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"e3/internal/format/record"
	"e3/refstore"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrLogDamaged reports a log that is not what the command has printed.
var ErrLogDamaged = errors.New("the log is damaged: it is not what the command has printed")

// LogNotice is what a repair puts at the end of a log that was damaged.
const LogNotice = "\n[e3: this log was damaged: it is not what the command has printed]\n"

// logsOf are the logs of an execution that ends: those that go with its record, or what the store has.
func (a *attempt) logsOf(ctx context.Context, fields []refstore.Field) record.Logs {
	sums := record.Logs{Known: true}
	for _, l := range []struct {
		stream Stream
		sum    *record.LogSum
	}{{Stdout, &sums.Stdout}, {Stderr, &sums.Stderr}} {
		var err error
		if *l.sum, err = a.logOf(ctx, l.stream, fields); err != nil {
			return record.Logs{} // it is read, and told of, by whoever wants to see it
		}
	}
	return sums
}

func (a *attempt) logOf(ctx context.Context, stream Stream, fields []refstore.Field) (record.LogSum, error) {
	switch {
	case fields != nil || a.pump == nil && !a.announced:
		text, _ := refstore.Record{Fields: fields}.Field(string(stream))
		return record.LogSum{Size: int64(len(text)), Sum: crc32.Checksum(text, castagnoli)}, nil
	case a.pump != nil:
		return a.pump.sum(stream)
	}
	in, err := a.x.OpenLog(ctx, a.key, a.id, stream, 0)
	if err != nil {
		return record.LogSum{}, err
	}
	defer in.Close() // nothing was written
	h := crc32.New(castagnoli)
	n, err := io.Copy(h, in)
	return record.LogSum{Size: n, Sum: h.Sum32()}, err
}

// CheckedLog reads a log from its beginning. Once all that the command had printed was read, or there is less of it, an error that
// wraps [ErrLogDamaged] takes the place of the end if it is something else.
func (s *Store) CheckedLog(ctx context.Context, e *Execution, stream Stream) (io.ReadCloser, error) {
	in, err := s.OpenLog(ctx, e.Key, e.ExecutionID, stream, 0)
	if err != nil || e.Detail == nil || e.State == record.Running {
		return in, err
	}
	return CheckLog(in, e.Detail, e.ExecutionID, stream), nil
}

// CheckLog is CheckedLog of a log that was opened at its beginning.
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

// checkedLog sums what is read. What follows the log, as a process that was left over may have written it, is passed on.
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

// MendLogs writes the logs of an execution that has ended anew, where they are damaged: what can be read of them, and [LogNotice].
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

// maxMendedLog bounds what is kept of a damaged log.
const maxMendedLog = 64 << 20

// readable is what can be read of a log, and what is wrong with it.
func (c *Curator) readable(ctx context.Context, e *Execution, stream Stream) ([]byte, error) {
	in, err := c.CheckedLog(ctx, e, stream)
	if err != nil {
		return nil, err
	}
	defer in.Close() // nothing was written
	text, err := io.ReadAll(io.LimitReader(in, maxMendedLog))
	if err == nil && len(text) == maxMendedLog {
		_, err = io.Copy(io.Discard, in)
	}
	return text, err
}

// replaceLog puts a text in the place of a log. A stream comes before what a record has.
func (c *Curator) replaceLog(ctx context.Context, e *Execution, stream Stream, text []byte) error {
	key := logKey(e.Key, e.ExecutionID, stream)
	_, err := c.records.Size(ctx, key) // what is no log of ours stays
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
