package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"

	"e3/refstore"
)

const partition = "EVENTS"

// RunRef names a run with events.
type RunRef struct {
	Workspace string `json:"workspace"`
	Run       string `json:"run"`
}

// Workspaces returns the names of the workspaces that have events, in order, including removed ones.
func Workspaces(ctx context.Context, streams refstore.Streams) ([]string, error) {
	var names []string
	for p, err := range streams.ListPartitions(ctx, partition) {
		if err != nil {
			return nil, fmt.Errorf("list workspaces with events: %w", err)
		}
		names = append(names, strings.TrimPrefix(p, partition+"/"))
	}
	return names, nil
}

// Runs returns the runs that have events, of one workspace or with "" of all, in the order of their ids. Offline there are
// none: runview.Runs.IDs knows runs by their records too.
func Runs(ctx context.Context, streams refstore.Streams, workspace string) ([]RunRef, error) {
	names := []string{workspace}
	if workspace == "" {
		var err error
		if names, err = Workspaces(ctx, streams); err != nil {
			return nil, err
		}
	}
	var runs []RunRef
	for _, name := range names {
		for key, err := range streams.ListStreams(ctx, refstore.Query{Partition: streamKey(name, "").Partition}) {
			if err != nil {
				return nil, fmt.Errorf("list events of workspace %s: %w", name, err)
			}
			runs = append(runs, RunRef{name, key.Sort})
		}
	}
	slices.SortStableFunc(runs, func(a, b RunRef) int { return strings.Compare(a.Run, b.Run) })
	return runs, nil
}

// Query yields the selected events, run by run, each followed by the events of the journal that came after the run was
// recorded. Runs of one workspace are in the order of recording, those of several in the order of their ids. Query does
// not parse lines that cannot match, so it does not notice damage in them, nor gaps in the numbers. The first noticed
// damage of each run is yielded as a [*DamagedError], and reading continues after it. Other errors concern one run too,
// except for those of listing and of ctx, which end the iteration. Memory does not grow with the logs.
func Query(ctx context.Context, streams refstore.Streams, f Filter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		runs, err := Runs(ctx, streams, f.Workspace)
		if err != nil {
			yield(Event{}, err)
			return
		}
		j, err := journaled(ctx, streams, &f)
		if err != nil {
			yield(Event{}, err)
			return
		}
		if f.Workspace != "" { // several workspaces have no common order
			slices.SortStableFunc(runs, func(a, b RunRef) int { return cmp.Compare(j.at[a], j.at[b]) })
		}
		q := &query{streams: streams, f: &f}
		runs = slices.DeleteFunc(runs, func(r RunRef) bool {
			return !strings.HasPrefix(r.Run, f.Run) || r.Run < f.From || f.beganTooLate(r.Run)
		})
		j.place(runs)
		if f.Cursors {
			yield = j.withCursors(ctx, streams, yield)
		}
		for _, err := range j.damaged {
			if !yield(Event{}, err) {
				return
			}
		}
		if f.Last > 0 {
			j.last(ctx, q, runs, yield)
			return
		}
		for _, e := range j.head {
			if !yield(e, nil) {
				return
			}
		}
		for fd := range q.all(ctx, runs, j.of) {
			if fd.bulk {
				if has, err := q.f.standsFor(ctx, fd.match); err != nil || !has {
					if err != nil && !yield(Event{}, err) {
						return
					}
					continue
				}
			}
			if !yield(fd.Event, fd.err) {
				return
			}
		}
		if ctx.Err() != nil {
			yield(Event{}, fmt.Errorf("query events: %w", context.Cause(ctx)))
		}
	}
}

type query struct {
	streams refstore.Streams
	f       *Filter
}

// found is a result of a scan: a match, or an error of a run.
type found struct {
	match
	err error
}

// A batch is sent when it has this many events, or was cut from this many bytes.
const (
	batchEvents = 256
	batchBytes  = 64 << 10
)

// all scans the runs, several at a time, and yields the results in the order of the runs. The results of a run are
// followed by those of the journal that were recorded after it began.
func (q *query) all(ctx context.Context, runs []RunRef, journal map[RunRef][]Event) iter.Seq[found] {
	return func(yield func(found) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var scans sync.WaitGroup
		defer scans.Wait()
		defer cancel()
		workers := min(runtime.GOMAXPROCS(0), 8, len(runs))
		buffers := make(chan []byte, workers) // one for each scan
		for range workers {
			buffers <- nil
		}
		order := make(chan chan []found, workers)
		scans.Go(func() {
			defer close(order)
			for _, run := range runs {
				var buf []byte
				select {
				case <-ctx.Done():
					return
				case buf = <-buffers:
				}
				if buf == nil {
					buf = make([]byte, chunk)
				}
				out := make(chan []found, 1)
				select {
				case <-ctx.Done():
					return
				case order <- out:
				}
				scans.Go(func() {
					defer func() { buffers <- buf }()
					defer close(out)
					q.batches(ctx, run, buf, out)
				})
			}
		})
		next := 0
		for out := range order {
			for batch := range out {
				for _, fd := range batch {
					if !yield(fd) {
						return
					}
				}
			}
			for _, e := range journal[runs[next]] {
				if !yield(found{match: match{Event: e}}) {
					return
				}
			}
			next++
		}
	}
}

// batches scans a run and sends the results.
func (q *query) batches(ctx context.Context, run RunRef, buf []byte, out chan<- []found) {
	var batch []found
	bytes := 0
	send := func() bool {
		select {
		case out <- batch:
			batch, bytes = nil, 0
			return true
		case <-ctx.Done():
			return false
		}
	}
	q.run(ctx, run, 0, buf, func(fd found, size int) bool {
		batch = append(batch, fd)
		bytes += size
		return len(batch) < batchEvents && bytes < batchBytes || send()
	})
	if len(batch) > 0 {
		send()
	}
}

// run scans the log of a run from the first line that begins at an offset or after it, and yields the selected
// events, with the length of their lines.
func (q *query) run(ctx context.Context, run RunRef, from int64, buf []byte, yield func(fd found, size int) bool) {
	src := source{q.streams, run}
	err := func() error {
		if q.f.mayBeTooEarly(run.Run) {
			if last, err := Last(ctx, src.streams, src.Workspace, src.Run); err != nil || last != nil && q.f.tooEarly(last) {
				return err
			}
		}
		if q.f.FromSeq > 1 && !q.f.inBulk() {
			info, err := src.streams.Size(ctx, src.key())
			if err != nil {
				return src.fault(err)
			}
			from = max(from, src.seek(ctx, info.Size, q.f.FromSeq).off)
		}
		return q.scan(ctx, src, from, buf, yield)
	}()
	if err != nil && ctx.Err() == nil && !errors.Is(err, refstore.ErrNotFound) { // removed meanwhile
		yield(found{err: err}, 0)
	}
}

// scan yields the selected events of a run, from the first line that begins at an offset or after it.
func (q *query) scan(ctx context.Context, src source, from int64, buf []byte, yield func(fd found, size int) bool) error {
	m := &matcher{f: q.f}
	c, err := src.open(ctx, 0, buf)
	if err != nil {
		return err
	}
	defer func() { c.Close() }()
	var sieves, open plan // open lets each event pass that may name the task
	damaged := false
	e, line, err := c.next(ctx, &plan{})
	for first := true; err != io.EOF; first = false {
		if err = src.named(c.off, err); err != nil && !errors.As(err, new(*DamagedError)) {
			return err
		}
		if err != nil && !damaged && !yield(found{err: err}, 0) {
			return nil
		}
		damaged = damaged || err != nil
		if first {
			if err == nil {
				m.begin(e)
			}
			sieves = q.f.plan(m.worker)
			open.scan = sieves.scan
		}
		if err == nil && (!first || from == 0) {
			if hit, ok := m.add(e, line); ok && !yield(found{match: hit}, len(line)) {
				return nil
			}
		}
		if first && from > 0 { // the first event is read only for its facts
			c.Close()
			if c, err = src.openWithin(ctx, from, buf); err != nil {
				return err
			}
		}
		p := &sieves
		if q.f.inBulk() && !m.named {
			p = &open
		}
		e, line, err = c.next(ctx, p)
	}
	if hit, ok := m.end(); ok {
		yield(found{match: hit}, 0)
	}
	return nil
}

// last yields the last selected events. It reads the logs backwards, from the last run on, until it has enough.
func (q *query) last(ctx context.Context, runs []RunRef, yield func(Event, error) bool) {
	var parts [][]found // one for each run, the last run first
	room := q.f.Last
	buf := make([]byte, chunk)
	for _, run := range slices.Backward(runs) {
		if room == 0 || ctx.Err() != nil {
			break
		}
		part := q.tail(ctx, run, room, buf)
		for _, fd := range part {
			if fd.err == nil {
				room--
			}
		}
		parts = append(parts, part)
	}
	for _, part := range slices.Backward(parts) {
		for _, fd := range part {
			if !yield(fd.Event, fd.err) {
				return
			}
		}
	}
	if ctx.Err() != nil {
		yield(Event{}, fmt.Errorf("query events: %w", context.Cause(ctx)))
	}
}

// tail returns the last selected events of a run, followed by its error.
func (q *query) tail(ctx context.Context, run RunRef, most int, buf []byte) []found {
	info, err := q.streams.Size(ctx, streamKey(run.Workspace, run.Run))
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return []found{{err: source{q.streams, run}.fault(err)}}
	}
	for size := int64(64 << 10); ; size *= 8 {
		from := max(0, info.Size-size)
		var hits []found
		var fault error
		q.run(ctx, run, from, buf, func(fd found, _ int) bool {
			if fd.err == nil && fd.bulk {
				has, err := q.f.standsFor(ctx, fd.match)
				if fd.err = err; err == nil && !has {
					return true
				}
			}
			if fd.err != nil {
				fault = fd.err
				return true
			}
			if len(hits) == 2*most {
				hits = slices.Delete(hits, 0, most)
			}
			hits = append(hits, fd)
			return true
		})
		if len(hits) >= most || from == 0 || ctx.Err() != nil {
			hits = hits[max(0, len(hits)-most):]
			if fault != nil {
				hits = append(hits, found{err: fault})
			}
			return hits
		}
	}
}
