package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"e3/internal/backoff"
	"e3/refstore"
)

// Writers tell watchers of the partitions that they have changed, over one channel for a repository. They tell after the
// write, in a statement of its own for all changes of a moment: in the write's transaction, a notification would have all
// writers of the server commit one after another. A writer may die in between, so a watch also wakes from time to time. One
// connection of a process listens.
//
// Behind a pooler that shares connections a LISTEN is accepted, and nothing arrives. So a listener first sends itself a
// notification; if that does not arrive, watches wake at each [Options.Poll].

// subject names what is watched: the records or the streams of a partition. It does not show the partition's name to
// others in the database.
type subject [8]byte

func (s *Store) subject(prefix, partition string) subject {
	sum := sha256.Sum256([]byte(s.o.Repository + "\x00" + prefix + "\x00" + partition))
	return subject(sum[:])
}

// streamPrefix tells the streams of a partition from its records.
const streamPrefix = "stream"

// channel is the name of the repository's channel.
func (s *Store) channel() string {
	sum := s.subject("channel", "")
	return fmt.Sprintf("e3_%x", sum[:])
}

// Kinds of records that change with each task, or that nothing watches, are not told: their watches wake from time to time.
var untold = map[string]bool{"EXECUTION": true, "LEASE": true, "INDEX": true, "DATAFLOW": true, "WORKSPACE": true}

// Kinds that somebody waits for are told at once, others with what changes a moment later.
var urgent = map[string]bool{"QUEUE": true, "CANCEL": true}

// moment is the time for which changes are gathered.
const moment = 20 * time.Millisecond

// hub tells, and listens.
type hub struct {
	store *Store

	mu        sync.Mutex
	watches   map[subject]map[chan struct{}]struct{}
	changes   map[subject]struct{} // not told yet
	telling   chan struct{}        // closed once nobody tells; nil: nobody does
	hurry     chan struct{}        // has a value if changes are to be told at once
	stop      context.CancelFunc   // ends the listener; nil: there is none
	listening bool
}

// Watch implements [refstore.Watcher].
func (s *Store) Watch(ctx context.Context, partition string) (<-chan struct{}, error) {
	return s.hub.watch(ctx, partition, "")
}

// WatchStreams implements [refstore.Streams].
func (s *Store) WatchStreams(ctx context.Context, partition string) (<-chan struct{}, error) {
	return s.hub.watch(ctx, partition, streamPrefix)
}

// pause is how long a watch waits for a notification.
func (s *Store) pause() time.Duration {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.hub.listening {
		return 10 * s.o.Poll
	}
	return s.o.Poll
}

func (h *hub) watch(ctx context.Context, partition, prefix string) (<-chan struct{}, error) {
	if err := check(ctx, refstore.Query{Partition: partition}.Validate()); err != nil {
		return nil, err
	}
	what, c := h.store.subject(prefix, partition), make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watches == nil {
		h.watches = make(map[subject]map[chan struct{}]struct{})
	}
	if h.watches[what] == nil {
		h.watches[what] = make(map[chan struct{}]struct{})
	}
	h.watches[what][c] = struct{}{}
	if h.stop == nil {
		listen, stop := context.WithCancel(context.Background())
		h.stop = stop
		go h.listen(listen)
	}
	go func() {
		for ctx.Err() == nil {
			_ = backoff.Wait(ctx, h.store.pause())
			wake(c)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watches[what], c)
		if len(h.watches[what]) == 0 {
			delete(h.watches, what)
		}
		close(c)
	}()
	return c, nil
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one wake-up is waiting already
	}
}

// subjectOf is what a write of a partition changes.
func (h *hub) subjectOf(operation, partition string) subject {
	if operation == "put" || operation == "delete" {
		return h.store.subject("", partition)
	}
	return h.store.subject(streamPrefix, partition)
}

// hurries returns the notification that goes to the server behind a write, "" if it need not hurry.
func (h *hub) hurries(operation string, partitions []string) string {
	kind, _, _ := strings.Cut(partitions[0], "/")
	if !urgent[kind] || len(partitions) > mostTold {
		return ""
	}
	var text []byte
	for _, partition := range partitions {
		what := h.subjectOf(operation, partition)
		text = base64.RawStdEncoding.AppendEncode(text, what[:])
	}
	return string(text)
}

// wake wakes the watches of a subject, or all.
func (h *hub) wake(what *subject) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for of, watches := range h.watches {
		if what == nil || of == *what {
			for c := range watches {
				wake(c)
			}
		}
	}
}

// changed wakes the watches of a partition, here and, unless they were told, soon elsewhere.
func (h *hub) changed(operation, partition string, told bool) {
	what := h.subjectOf(operation, partition)
	h.wake(&what)
	kind, _, _ := strings.Cut(partition, "/")
	if untold[kind] || told {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changes == nil {
		h.changes = make(map[subject]struct{})
	}
	h.changes[what] = struct{}{}
	if h.telling == nil {
		h.telling = make(chan struct{})
		go h.tell(h.telling)
	}
	if urgent[kind] {
		wake(h.hurry)
	}
}

// mostTold bounds the subjects of a notification, whose text has at most 8000 bytes.
const mostTold = 600

// tell tells all changes, also those that come meanwhile. What cannot be told is found later.
func (h *hub) tell(done chan struct{}) {
	defer close(done)
	for {
		select {
		case <-h.hurry:
		case <-time.After(moment):
		}
		var text []byte
		h.mu.Lock()
		for what := range h.changes {
			text = base64.RawStdEncoding.AppendEncode(text, what[:])
			delete(h.changes, what)
			if len(text) >= mostTold*encoded {
				break
			}
		}
		h.mu.Unlock()
		_ = h.notify(string(text))
		h.mu.Lock()
		over := len(h.changes) == 0
		if over {
			h.telling = nil
		}
		h.mu.Unlock()
		if over {
			return
		}
	}
}

// encoded is the length of a subject in a notification.
var encoded = base64.RawStdEncoding.EncodedLen(len(subject{}))

// notify is the statement of a notification, which need not be durable.
const notify = "SELECT FROM set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"

func (h *hub) notify(text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), h.store.o.Attempt)
	defer cancel()
	began := time.Now()
	_, err := collect(ctx, h.store, notify, []any{h.store.channel(), text}, func(pgx.CollectableRow) (struct{}, error) { return struct{}{}, nil })
	if o := h.store.o.Observe; o != nil {
		o("notify", time.Since(began), err)
	}
	return err
}

// close ends the listener and waits a moment until the last changes are told.
func (h *hub) close() {
	h.mu.Lock()
	telling, stop := h.telling, h.stop
	h.mu.Unlock()
	if telling != nil {
		wake(h.hurry)
		select {
		case <-telling:
		case <-time.After(time.Second):
		}
	}
	if stop != nil {
		stop()
	}
}

// listen keeps a connection that listens, until ctx ends.
func (h *hub) listen(ctx context.Context) {
	for try := 1; ctx.Err() == nil; try++ {
		began := time.Now()
		deaf := h.hear(ctx)
		h.mu.Lock()
		h.listening = false
		h.mu.Unlock()
		if deaf {
			return
		}
		if time.Since(began) > time.Minute {
			try = 1
		}
		_ = backoff.Wait(ctx, backoff.Pause(h.store.o.Backoff, maxBackoff, try))
	}
}

// hear listens on a connection of its own until that breaks. deaf says that nothing arrives on it.
func (h *hub) hear(ctx context.Context) (deaf bool) {
	c, err := pgx.ConnectConfig(ctx, h.store.pool.Config().ConnConfig)
	if err != nil {
		return false
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	}()
	if _, err := c.Exec(ctx, "LISTEN "+h.store.channel(), pgx.QueryExecModeSimpleProtocol); err != nil {
		return false
	}
	test := "test " + newVersion()
	if h.notify(test) != nil {
		return false
	}
	first, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for waiting := first; ; {
		n, err := c.WaitForNotification(waiting)
		if err != nil {
			return waiting == first && ctx.Err() == nil && first.Err() != nil && h.store.pooled.Load()
		}
		if n.Payload == test {
			waiting = ctx
			h.mu.Lock()
			h.listening = true
			h.mu.Unlock()
			h.wake(nil) // for changes that came before
			continue
		}
		for text := n.Payload; len(text) >= encoded; text = text[encoded:] {
			var what subject
			if _, err := base64.RawStdEncoding.Decode(what[:], []byte(text[:encoded])); err == nil {
				h.wake(&what)
			}
		}
	}
}
