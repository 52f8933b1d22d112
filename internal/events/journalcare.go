package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"e3/refstore"
)

// CleanJournal removes the streams of a workspace's journal whose last event is earlier than before. It keeps the
// latest stream, so that numbers continue.
func CleanJournal(ctx context.Context, streams refstore.Streams, workspace string, before time.Time) error {
	firsts, err := journalStreams(ctx, streams, workspace)
	if err != nil || len(firsts) == 0 {
		return err
	}
	for _, first := range firsts[:len(firsts)-1] {
		last, err := lastOf(ctx, streams, workspace, first)
		if err != nil {
			return err
		}
		if last == nil || !last.Time.Before(before) {
			return nil
		}
		if err := streams.Remove(ctx, journalKey(workspace, first)); err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return fmt.Errorf("clean the journal of workspace %s: %w", workspace, err)
		}
	}
	return nil
}

// journalStreams returns the numbers of the first events of a journal's streams.
func journalStreams(ctx context.Context, streams refstore.Streams, workspace string) ([]int64, error) {
	var firsts []int64
	for key, err := range streams.ListStreams(ctx, refstore.Query{Partition: JournalPartition(workspace)}) {
		if err != nil {
			return nil, fmt.Errorf("journal of workspace %s: %w", workspace, err)
		}
		if n := firstOf(key.Sort); n > 0 {
			firsts = append(firsts, n)
		}
	}
	return firsts, nil
}

// lastOf returns the last readable event in a stream of a journal.
func lastOf(ctx context.Context, streams refstore.Streams, workspace string, first int64) (*Event, error) {
	data, err := journalBytes(ctx, streams, workspace, first)
	if err != nil {
		return nil, err
	}
	for _, line := range slices.Backward(slices.Collect(bytes.Lines(data))) {
		if e, err := parseJournal(line); err == nil {
			return e, nil
		}
	}
	return nil, nil
}

// journalBytes reads a stream of a journal, empty if there is none.
func journalBytes(ctx context.Context, streams refstore.Streams, workspace string, first int64) ([]byte, error) {
	key := journalKey(workspace, first)
	info, err := streams.Size(ctx, key)
	var data []byte
	if err == nil && info.Size > maxMend {
		err = fmt.Errorf("%w: the stream %s has %d bytes", refstore.ErrDamaged, key, info.Size)
	}
	if err == nil {
		data, err = readBytes(ctx, streams, key, 0, info.Size)
	}
	if errors.Is(err, refstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal of workspace %s: %w", workspace, err)
	}
	return data, nil
}

// MendJournal rewrites the damaged streams of a journal: each lost event is replaced by an [EventLost] with its
// number. It returns how many are lost. Concurrent appends go to a later stream, which begins with a [JournalMended].
func MendJournal(ctx context.Context, streams refstore.Streams, workspace string, now func() time.Time) (lost int, err error) {
	damaged := map[int64]bool{}
	for _, err := range ReadJournal(ctx, streams, workspace, 0) {
		var bad *JournalError
		if errors.As(err, &bad) {
			damaged[bad.First] = true
		} else if err != nil {
			return 0, err
		}
	}
	if len(damaged) == 0 {
		return 0, nil
	}
	for first := range damaged { // sealed streams take no appends
		if err := streams.Seal(ctx, journalKey(workspace, first)); err != nil && !errors.Is(err, refstore.ErrDamaged) {
			return 0, fmt.Errorf("mend the journal of workspace %s: %w", workspace, err)
		}
	}
	mended, err := AppendJournal(ctx, streams, workspace, now, Event{Type: JournalMended})
	if err != nil {
		return 0, err
	}
	firsts, err := journalStreams(ctx, streams, workspace)
	if err != nil {
		return 0, err
	}
	next := mended[0].Seq
	for _, first := range slices.Backward(firsts) {
		if damaged[first] {
			n, err := mendStream(ctx, streams, workspace, first, next)
			if err != nil {
				return lost, fmt.Errorf("mend the journal of workspace %s: %w", workspace, err)
			}
			lost += n
		}
		next = first
	}
	return lost, nil
}

// mendStream rewrites one stream, which takes no appends and ends before the number next.
func mendStream(ctx context.Context, streams refstore.Streams, workspace string, first, next int64) (lost int, err error) {
	data, err := journalBytes(ctx, streams, workspace, first)
	if err != nil {
		return 0, err
	}
	var whole []byte
	seq, at := first-1, time.Unix(0, 0).UTC()
	upTo := func(n int64) (err error) { // adds the missing events before n
		for seq+1 < n && err == nil {
			seq++
			lost++
			whole, err = AppendLine(whole, &Event{Seq: seq, Time: at, Workspace: workspace, Type: EventLost})
		}
		return err
	}
	for line := range bytes.Lines(data) {
		e, err := parseJournal(line)
		if err != nil || e.Seq <= seq || e.Seq >= next || e.Seq > seq+maxLost {
			continue
		}
		if seq < first {
			at = e.Time
		}
		if err := upTo(e.Seq); err != nil {
			return lost, err
		}
		whole = append(append(whole, bytes.TrimSuffix(bytes.TrimSuffix(line, []byte(tornMark)), []byte("\n"))...), '\n')
		seq, at = e.Seq, e.Time
	}
	if next-seq <= maxLost {
		if err := upTo(next); err != nil {
			return lost, err
		}
	}
	key := journalKey(workspace, first)
	if err := streams.Remove(ctx, key); err != nil && !errors.Is(err, refstore.ErrNotFound) {
		return lost, err
	}
	// Until the stream is sealed, the mark keeps appenders away that know this stream.
	if err := streams.Append(ctx, key, 0, append(whole, tornMark...)); err != nil {
		return lost, err
	}
	return lost, streams.Seal(ctx, key)
}
