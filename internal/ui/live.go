package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// Paces of a live page.
const (
	gather    = 400 * time.Millisecond // between two messages to a page
	beat      = 20 * time.Second       // between two signs of life, so that a dead connection is noticed
	busyPace  = time.Second            // between looks into a store that charges for them, while a run is at work
	idlePace  = 12 * time.Second       // the same while no run is at work: 300 requests an hour
	fullLooks = 50                     // after so many idle looks the journal is read as well
	quietTime = time.Minute            // time without events after which an unfinished run counts as idle
	linger    = 10 * time.Second       // life of a feed without pages, for a page that is loaded again
	logPace   = time.Second            // between looks at the length of a log
)

// feeds tell the pages of a workspace when something has happened there. All pages of a workspace share one reader.
type feeds struct {
	s   *Stores
	ctx context.Context // ends all of them
	now func() time.Time

	mu  sync.Mutex
	all map[string]*feed
}

// A feed reads a workspace's events. It tells pages that something is new, not what: a page asks for the present
// state of the workspace. So a page misses nothing, even if it misses messages of the feed.
type feed struct {
	stop func()

	mu      sync.Mutex
	pages   int
	cursor  string        // of the last event that was read; "" before the first
	ready   bool          // all events so far were read
	fault   error         // the fault that has ended the feed
	changed chan struct{} // closed with the next change
	run     string        // the latest run, and whether its end was read
	ended   bool
	heard   time.Time
}

// join adds a page to the feed of a workspace. leave must be called once.
func (f *feeds) join(ws, after string) (at *feed, leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at = f.all[ws]
	if at == nil || at.failed() != nil {
		ctx, cancel := context.WithCancel(f.ctx)
		at = &feed{stop: cancel, changed: make(chan struct{}), ended: true}
		f.all[ws] = at
		if ws == everywhere {
			go at.followAll(ctx, f)
		} else {
			go at.follow(ctx, f, ws, after)
		}
	}
	at.mu.Lock()
	at.pages++
	at.mu.Unlock()
	var once sync.Once
	return at, func() {
		once.Do(func() {
			at.mu.Lock()
			at.pages--
			at.mu.Unlock()
			time.AfterFunc(linger, func() { f.end(ws, at) })
		})
	}
}

// end stops a feed that has no pages.
func (f *feeds) end(ws string, at *feed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at.mu.Lock()
	idle := at.pages == 0
	at.mu.Unlock()
	if idle {
		at.stop()
		if f.all[ws] == at {
			delete(f.all, ws)
		}
	}
}

// cursor is the place of a workspace's feed; "" if no feed has read all events.
func (f *feeds) cursor(ws string) string {
	f.mu.Lock()
	at := f.all[ws]
	f.mu.Unlock()
	if at == nil {
		return ""
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	if !at.ready || at.fault != nil {
		return ""
	}
	return at.cursor
}

func (at *feed) failed() error {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.fault
}

// follow reads the events of the workspace until ctx ends.
func (at *feed) follow(ctx context.Context, f *feeds, ws, after string) {
	o := events.RecordedOptions{Latest: true}
	if c, err := events.ParseCursor(after); err == nil {
		o = events.RecordedOptions{After: c}
		ended, err := events.Ended(ctx, f.s.Records, ws, c.Run)
		at.update(func() { at.cursor, at.run, at.ended = after, c.Run, ended || err != nil }) // until a later run
	}
	_, paced := f.s.Records.(events.Paced)
	err := at.pass(ctx, f, ws, o)
	at.update(func() { at.ready = true })
	if err == nil && paced {
		err = at.poll(ctx, f, ws, o)
	} else if err == nil {
		err = at.pass(ctx, f, ws, at.rest(o, true))
	}
	at.update(func() { at.fault = errors.Join(err, context.Cause(ctx), errFeedEnded) })
}

var errFeedEnded = errors.New("the feed has ended")

// rest says where the next pass begins.
func (at *feed) rest(o events.RecordedOptions, follow bool) events.RecordedOptions {
	at.mu.Lock()
	defer at.mu.Unlock()
	if c, err := events.ParseCursor(at.cursor); err == nil {
		o = events.RecordedOptions{After: c}
	}
	o.Follow = follow
	return o
}

// pass reads the events that o selects.
func (at *feed) pass(ctx context.Context, f *feeds, ws string, o events.RecordedOptions) error {
	for e, err := range events.ReadRecorded(ctx, f.s.Records, events.Filter{Workspace: ws}, o) {
		switch {
		case errors.As(err, new(*events.DamagedError)), errors.As(err, new(*events.JournalError)):
			continue
		case err != nil:
			return err
		}
		at.update(func() {
			at.cursor, at.heard = e.Cursor, f.now()
			if e.Run != "" && e.Run != at.run {
				at.run, at.ended = e.Run, false
			}
			if e.Type.Ends() && e.Run == at.run {
				at.ended = true
			}
		})
	}
	return context.Cause(ctx)
}

// poll looks for news in a store that charges for each look.
func (at *feed) poll(ctx context.Context, f *feeds, ws string, o events.RecordedOptions) error {
	known, err := latestRun(ctx, f.s, ws)
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		at.mu.Lock()
		pace := busyPace
		if at.ended || f.now().Sub(at.heard) > quietTime {
			pace = idlePace
		}
		ended := at.ended
		at.mu.Unlock()
		wait := time.NewTimer(pace)
		select {
		case <-ctx.Done():
			wait.Stop()
			return context.Cause(ctx)
		case <-wait.C:
		}
		if ended {
			now, err := latestRun(ctx, f.s, ws)
			if err != nil {
				return err
			}
			if now == known && n%fullLooks != 0 {
				continue
			}
			if now != known {
				known = now
				at.update(func() { at.heard = f.now() })
			}
		}
		if err := at.pass(ctx, f, ws, at.rest(o, false)); err != nil {
			return err
		}
	}
}

// latestRun names the state of the workspace's latest run, in one request.
func latestRun(ctx context.Context, s *Stores, ws string) (string, error) {
	rec, err := s.Runs.Stored(ctx, ws, "")
	if errors.Is(err, runview.ErrNoRun) || errors.Is(err, refstore.ErrNotFound) {
		return "", nil
	}
	return rec.Key.Sort + " " + string(rec.Version), err
}

// update changes the feed, and tells its pages.
func (at *feed) update(change func()) {
	at.mu.Lock()
	defer at.mu.Unlock()
	change()
	if at.ready {
		close(at.changed)
		at.changed = make(chan struct{})
	}
}

// look returns the feed's place, and a channel that is closed when it has moved.
func (at *feed) look() (cursor string, ready bool, changed <-chan struct{}, fault error) {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.cursor, at.ready, at.changed, at.fault
}

// stream serves the events of a workspace, or without a name those of all workspaces, to one page: a message says
// that the page may be out of date. Its id is the cursor up to which everything is known. A page that was away sends
// the last id that it has seen.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	ws := q.Get("w")
	if s.streams.Add(1) > maxStreams {
		s.streams.Add(-1)
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer s.streams.Add(-1)
	after := q.Get("after")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		after = last
	}
	at, leave := s.feeds.join(ws, after)
	defer leave()
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, err := fmt.Fprint(w, text)
		return err == nil && out.Flush() == nil
	}
	if !send("retry: 2000\n\n") {
		return
	}
	log := s.logOf(q.Get("k"), q.Get("x"))
	grown, stop := log.watch(r.Context())
	defer stop()
	shown := after
	pulse := time.NewTicker(beat)
	defer pulse.Stop()
	for {
		cursor, ready, changed, fault := at.look()
		if fault != nil {
			return // the page connects again
		}
		if ready && (cursor != shown || after == "") {
			shown, after = cursor, cursor
			if after == "" {
				after = "none" // nothing has ever happened here
			}
			if !send(fmt.Sprintf("id: %s\nevent: change\ndata: {}\n\n", cursor)) || !pause(r.Context(), gather) {
				return
			}
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		case <-grown:
			if !send("event: change\ndata: {\"log\":true}\n\n") || !pause(r.Context(), gather) {
				return
			}
		case <-pulse.C:
			if !send(": here\n\n") {
				return
			}
		}
	}
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// growingLog is the log of an execution that a page shows while it grows.
type growingLog struct {
	s   *Stores
	key executions.Key
	id  string
}

// logOf is the log of an execution, nil if none is named.
func (s *Server) logOf(key, id string) *growingLog {
	k, id, ok := executionOf(url.Values{"k": {key}, "x": {id}})
	if !ok {
		return nil
	}
	return &growingLog{s.stores, k, id}
}

// watch returns a channel that gets a value when the log has grown.
func (l *growingLog) watch(ctx context.Context) (<-chan struct{}, func()) {
	if l == nil {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	grown := make(chan struct{}, 1)
	go func() {
		size, first := int64(0), true
		for pause(ctx, logPace) {
			now := int64(0)
			for _, stream := range []executions.Stream{executions.Stdout, executions.Stderr} {
				n, err := l.s.Executions.LogSize(ctx, l.key, l.id, stream)
				if err == nil {
					now += n
				}
			}
			if now != size && !first {
				select {
				case grown <- struct{}{}:
				default: // the page is told anyway
				}
			}
			size, first = now, false
		}
	}()
	return grown, cancel
}
