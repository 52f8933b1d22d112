package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"e3/refstore"
)

// maxMend bounds how much of a log after a damaged line is kept in memory to be rewritten. The rest is cut off.
const maxMend = 256 << 20

// maxLost bounds the lost lines in a row; after a larger gap, the rest of the log is dropped.
const maxLost = 10_000

// mendPiece is the size of one append.
const mendPiece = 256 << 10

// Mend rewrites a log from its first damaged line on. Each lost event is replaced by an [EventLost] with its number,
// so that readers know what is missing and the numbers have no gap. Lines after the end of the run, and a torn last
// line, are removed. It returns how many events were lost; a lost end of the log leaves no trace. first is the first
// event, if the run's record knows it (Bounds): it is written again, because it has the user and the machine. The
// caller ensures that nothing is appended meanwhile.
func Mend(ctx context.Context, streams refstore.Streams, workspace, run string, first *Event) (lost int, err error) {
	whole, damage, err := readable(ctx, streams, workspace, run, nil)
	if err != nil || damage == nil {
		return 0, err
	}
	src := source{streams, RunRef{workspace, run}}
	info, err := streams.Size(ctx, src.key())
	if err != nil {
		return 0, src.fault(err)
	}
	var rest []byte
	if info.Size-whole.off <= maxMend {
		data, err := src.bytes(ctx, whole.off, info.Size)
		if err != nil {
			return 0, src.fault(err)
		}
		if rest, lost, err = src.without(data, whole, first); err != nil {
			return 0, src.fault(err)
		}
	}
	if err := src.replace(ctx, info.Sealed, whole.off, rest); err != nil {
		return 0, fmt.Errorf("mend events of run %s: %w", run, err)
	}
	return lost, nil
}

// without returns the readable lines, with EventLost in place of the lost ones.
func (src source) without(data []byte, p position, first *Event) (rest []byte, lost int, err error) {
	at := time.Time{}
	for line := range bytes.Lines(data) {
		e, err := Parse(line)
		if err != nil || !bytes.HasSuffix(line, []byte("\n")) || e.Run != src.Run || e.Seq <= p.seq || e.Seq > p.seq+maxLost {
			continue
		}
		for p.seq+1 < e.Seq {
			p.seq++
			if first != nil && first.Seq == p.seq && first.Run == src.Run {
				if rest, err = AppendLine(rest, first); err != nil {
					return nil, 0, err
				}
				at = first.Time
				continue
			}
			lost++
			if at.IsZero() {
				at = e.Time
			}
			gone := Event{Seq: p.seq, Time: at, Run: src.Run, Workspace: src.Workspace, Type: EventLost}
			if rest, err = AppendLine(rest, &gone); err != nil {
				return nil, 0, err
			}
		}
		rest = append(rest, line...)
		p.seq, at = e.Seq, e.Time
		if e.Type.Ends() {
			break
		}
	}
	return rest, lost, nil
}

// DropEnd cuts the end off a log, if it has one.
func DropEnd(ctx context.Context, streams refstore.Streams, workspace, run string) error {
	e, line, err := endLine(ctx, streams, workspace, run)
	if err != nil || e == nil {
		return err
	}
	src := source{streams, RunRef{workspace, run}}
	info, err := streams.Size(ctx, src.key())
	if err == nil {
		err = src.replace(ctx, info.Sealed, info.Size-int64(len(line))-1, nil)
	}
	if err != nil {
		return src.fault(err)
	}
	return nil
}

// Fill marks the events after the last event of a log as lost, up to a number, and returns how many it has marked. A
// log that is sealed, or that lacks too many, stays as it is.
func Fill(ctx context.Context, streams refstore.Streams, workspace, run string, last int64) (lost int, err error) {
	whole, _, err := readable(ctx, streams, workspace, run, nil)
	if err != nil || last-whole.seq > maxLost {
		return 0, err
	}
	src := source{streams, RunRef{workspace, run}}
	info, err := streams.Size(ctx, src.key())
	if err != nil && !errors.Is(err, refstore.ErrNotFound) || info.Sealed {
		return 0, err
	}
	began, _ := Began(run)
	var lines []byte
	for whole.seq < last {
		whole.seq++
		lost++
		gone := Event{Seq: whole.seq, Time: began, Run: run, Workspace: workspace, Type: EventLost}
		if lines, err = AppendLine(lines, &gone); err != nil {
			return 0, err
		}
	}
	if info.Size > whole.off { // a torn line
		if err := streams.Cut(ctx, src.key(), whole.off); err != nil {
			return 0, src.fault(err)
		}
	}
	return lost, src.append(ctx, whole.off, lines)
}

// replace replaces a log's bytes from an offset on. A sealed log is sealed again.
func (src source) replace(ctx context.Context, sealed bool, from int64, rest []byte) error {
	if !sealed {
		if err := src.streams.Cut(ctx, src.key(), from); err != nil {
			return err
		}
		return src.append(ctx, from, rest)
	}
	head, err := src.bytes(ctx, 0, from)
	if err != nil {
		return err
	}
	if err := src.streams.Remove(ctx, src.key()); err != nil {
		return err
	}
	if err := src.append(ctx, 0, append(head, rest...)); err != nil {
		return err
	}
	return src.streams.Seal(ctx, src.key())
}

func (src source) append(ctx context.Context, at int64, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), mendPiece)
		if err := src.streams.Append(ctx, src.key(), at, data[:n]); err != nil {
			return err
		}
		at, data = at+int64(n), data[n:]
	}
	return nil
}

// Unseal makes a sealed log writable. Only imports seal logs, and imported logs get no appends.
func Unseal(ctx context.Context, streams refstore.Streams, workspace, run string) error {
	src := source{streams, RunRef{workspace, run}}
	info, err := streams.Size(ctx, src.key())
	if errors.Is(err, refstore.ErrNotFound) || err == nil && !info.Sealed {
		return nil
	}
	var data []byte
	if err == nil {
		data, err = src.bytes(ctx, 0, info.Size)
	}
	if err == nil {
		err = streams.Remove(ctx, src.key())
	}
	if err == nil {
		err = src.append(ctx, 0, data)
	}
	if err != nil {
		return fmt.Errorf("make the events of run %s writable: %w", run, err)
	}
	return nil
}
