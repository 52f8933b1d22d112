package ui_test

import (
	"context"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/ui"
	"e3/refstore"
)

// charging is a store that charges for requests, as a shared one does, and counts them.
type charging struct {
	memory
	n *atomic.Int64
}

func (c charging) StreamPace() time.Duration { return time.Second }

func (c charging) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	c.n.Add(1)
	return c.memory.Get(ctx, key, fields...)
}

func (c charging) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	c.n.Add(1)
	return c.memory.List(ctx, q)
}

func (c charging) ListPartitions(ctx context.Context, prefix string) iter.Seq2[string, error] {
	c.n.Add(1)
	return c.memory.ListPartitions(ctx, prefix)
}

func (c charging) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	c.n.Add(1)
	return c.memory.Open(ctx, key, offset)
}

func (c charging) Size(ctx context.Context, key refstore.Key) (refstore.StreamInfo, error) {
	c.n.Add(1)
	return c.memory.Size(ctx, key)
}

func (c charging) ListStreams(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Key, error] {
	c.n.Add(1)
	return c.memory.ListStreams(ctx, q)
}

// tabWriter is the answer to a page's request for events, as the page reads it.
type tabWriter struct {
	mu     sync.Mutex
	header http.Header
	heard  int
}

func (w *tabWriter) Header() http.Header { return w.header }
func (w *tabWriter) WriteHeader(int)     {}
func (w *tabWriter) FlushError() error   { return nil }
func (w *tabWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard += strings.Count(string(p), "event: change")
	return len(p), nil
}
func (w *tabWriter) messages() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard
}

// On a shared repository a page of an idle workspace, or of all workspaces, costs at most 400 requests an hour, whatever the number of
// pages. It hears of a new run within 15 s, one of all workspaces within 10 s for each of them and 10 s more. When it is hidden, it
// costs nothing.
func TestIdlePagesCostLittle(t *testing.T) {
	t.Run("workspace", func(t *testing.T) { idlePages(t, "/events?w=prod", 15*time.Second) })
	t.Run("all", func(t *testing.T) { idlePages(t, "/events", 20*time.Second) })
}

func idlePages(t *testing.T, path string, within time.Duration) {
	b := newBench(t)
	b.run(false, small()...)
	b.record(record.Run{RunID: runID, WorkspaceName: "prod", PackageRef: "demo@1.0.0", StartedAt: b.began, CompletedAt: now, State: record.RunFailed})
	b.serve(ui.Options{})
	asked := &atomic.Int64{}
	stores := b.stores
	counted := charging{b.records, asked}
	runs := *b.stores.Runs
	runs.Records = counted
	stores.Records, stores.Runs = counted, &runs
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s := ui.New(ctx, stores, ui.Options{Now: time.Now})
		tabs, hide := context.WithCancel(ctx)
		var open sync.WaitGroup
		pages := []*tabWriter{{header: http.Header{}}, {header: http.Header{}}}
		for _, w := range pages {
			open.Go(func() {
				r, err := http.NewRequestWithContext(tabs, "GET", "http://127.0.0.1"+path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				s.Stream(w, r)
			})
		}
		time.Sleep(time.Minute)
		before := asked.Load()
		time.Sleep(time.Hour)
		if n := asked.Load() - before; n > 400 || n < 100 {
			t.Errorf("%d requests in an idle hour, want 100 to 400", n)
		} else {
			t.Logf("%d requests in an idle hour, of two pages", n)
		}
		synctest.Wait()
		var had []int
		for _, w := range pages {
			had = append(had, w.messages())
		}

		const next = "0194fdc3-fa2f-7cc0-81d3-ff12045b73c8"
		if _, err := events.RecordRun(ctx, b.records, "prod", next, time.Now, 0); err != nil {
			t.Fatal(err)
		}
		b.record(record.Run{RunID: next, WorkspaceName: "prod", PackageRef: "demo@1.0.0", StartedAt: time.Now(), State: record.RunRunning})
		log := events.Create(b.records, "prod", next, time.Now)
		log.Emit(events.Event{Type: events.RunStarted, Data: &events.Data{Package: "demo@1.0.0"}})
		if err := log.Flush(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(within)
		synctest.Wait()
		for i, w := range pages {
			if w.messages() == had[i] {
				t.Errorf("page %d has not heard of the new run within %v", i, within)
			}
		}
		log.Emit(events.Event{Type: events.RunCompleted, Data: &events.Data{}})
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		hide()
		open.Wait()
		time.Sleep(time.Minute)
		before = asked.Load()
		time.Sleep(time.Hour)
		if n := asked.Load() - before; n > 0 {
			t.Errorf("%d requests in an hour without a page, want none", n)
		}
	})
}
