package fs

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"e3/refstore"
)

// notifier shares one file notification instance among all waiters, because the number of instances per user is small.
// It begins with the first subscription. It only speeds waiters up, since they also poll.
type notifier struct {
	mu      sync.Mutex
	watcher *fsnotify.Watcher
	broken  bool // notification does not work here, or the store is closed
	subs    map[string]map[*subscription]struct{}
}

// pendingEvents is the number of events that are taken from the system before the first is handled: else each event of
// a burst would wake a goroutine.
const pendingEvents = 512

type subscription struct {
	name string // name of a file; "" for any
	wake chan<- struct{}
	told *names // nil: the names are not wanted
}

// names are the names of files that were made. The zero value has none.
type names struct {
	mu    sync.Mutex
	files map[string]struct{}
	all   bool // other files may have been made, too
}

// maxNames bounds the names that are kept.
const maxNames = 1 << 14

// add adds a name; "" for all.
func (n *names) add(name string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if name == "" || len(n.files) >= maxNames {
		n.all = true
		return
	}
	if n.files == nil {
		n.files = make(map[string]struct{})
	}
	n.files[name] = struct{}{}
}

func (n *names) take() (files map[string]struct{}, all bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	files, all = n.files, n.all
	n.files, n.all = nil, false
	return files, all
}

// subscribe wakes when something happens to the named file in dir, or with "" to anything in dir. It returns nil if it
// cannot: the folder does not exist yet, or there is no notification.
func (n *notifier) subscribe(dir, name string, wake chan<- struct{}, told *names) (cancel func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.broken {
		return nil
	}
	if n.watcher == nil {
		w, err := fsnotify.NewBufferedWatcher(pendingEvents)
		if err != nil {
			n.broken = true
			return nil
		}
		n.watcher = w
		n.subs = make(map[string]map[*subscription]struct{})
		go n.run(w)
	}
	// Add the folder each time: a second Add does nothing, but a folder that was removed and made again must be added
	// again.
	if err := n.watcher.Add(dir); err != nil {
		return nil
	}
	if n.subs[dir] == nil {
		n.subs[dir] = make(map[*subscription]struct{})
	}
	sub := &subscription{name: name, wake: wake, told: told}
	n.subs[dir][sub] = struct{}{}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.subs[dir], sub)
		if len(n.subs[dir]) == 0 {
			delete(n.subs, dir)
			_ = n.watcher.Remove(dir) // an error says that the folder or the watcher is gone
		}
	}
}

func (n *notifier) run(w *fsnotify.Watcher) {
	// The watcher sends errors under its own lock, for which a caller of subscribe may wait. So they are received without n's.
	lost := make(chan struct{}, 1)
	go func() {
		for range w.Errors { // events were lost
			signal(lost)
		}
	}()
	for {
		select {
		case ev, ok := <-w.Events:
			if !ok {
				return
			}
			n.event(ev.Name, ev.Has(fsnotify.Create))
		case <-lost:
			n.event("", false)
		}
	}
}

// event wakes the waiters for path, which may have been made; "" wakes all.
func (n *notifier) event(path string, made bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	dir, name := filepath.Dir(path), filepath.Base(path)
	for sub := range n.subs[dir] {
		if sub.name == "" || sub.name == name {
			if made {
				sub.told.add(name)
			}
			signal(sub.wake)
		}
	}
	for sub := range n.subs[path] { // the folder itself
		sub.told.add("")
		signal(sub.wake)
	}
	if path == "" {
		for _, subs := range n.subs {
			for sub := range subs {
				sub.told.add("")
				signal(sub.wake)
			}
		}
	}
}

func (n *notifier) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken = true
	if n.watcher == nil {
		return nil
	}
	return n.watcher.Close()
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // one wake-up is waiting already
	}
}

// Watch implements [refstore.Watcher]. Changes made on this host wake at once where file notification works. Polls
// detect other changes by the folder's modification time. For two seconds after a change, each poll wakes, because a
// coarse time may hide a second change.
func (s *Store) Watch(ctx context.Context, partition string) (<-chan struct{}, error) {
	err := refstore.Query{Partition: partition}.Validate()
	var p place
	if err == nil {
		p, err = s.files.place(partition)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return watchFolder(ctx, &folderWatch{store: s, dir: p.dir}), nil
}

// WatchNames is Watch, and tells a queue which records were created. Where file notification works, a poll wakes only
// every two seconds, for changes that a notification may have missed.
func (s *Store) WatchNames(ctx context.Context, partition string) (
	c <-chan struct{}, made func() (sorts []string, all bool), err error,
) {
	err = refstore.Query{Partition: partition}.Validate()
	var p place
	if err == nil {
		p, err = s.files.place(partition)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("watch: %w", err)
	}
	told := &names{all: true}
	c = watchFolder(ctx, &folderWatch{store: s, dir: p.dir, told: told})
	return c, func() (sorts []string, all bool) {
		files, all := told.take()
		for name := range files {
			if name, ok := strings.CutSuffix(name, p.suffix); ok && !p.paired {
				if sort, ok := unescape(name); ok {
					sorts = append(sorts, sort)
				}
			} else if continues(name) || p.paired { // a deeper folder
				all = true
			}
		}
		return sorts, all
	}, nil
}

// watchFolder wakes by notification, and after polls: after each one if always is true, else if the folder's time has
// changed.
func watchFolder(ctx context.Context, w *folderWatch) <-chan struct{} {
	w.out = make(chan struct{}, 1)
	w.subscribe()
	w.last, w.woken = w.store.files.folderTime(w.dir), time.Now()
	go w.run(ctx)
	return w.out
}

type folderWatch struct {
	store  *Store
	dir    string
	always bool
	told   *names // nil: the names are not wanted
	out    chan struct{}
	cancel func()
	last   time.Time
	woken  time.Time // by the last poll, if names are wanted
}

func (w *folderWatch) subscribe() bool {
	if w.cancel == nil && w.store.notify != nil {
		w.cancel = w.store.notify.subscribe(w.store.files.absolute(w.dir), "", w.out, w.told)
		return w.cancel != nil
	}
	return false
}

// rarely tells whether a poll may be skipped, because notifications wake the waiter.
func (w *folderWatch) rarely(now time.Time) bool {
	if w.told == nil || w.cancel == nil || w.store.files.looks.network {
		return false
	}
	if now.Sub(w.woken).Abs() < coarse {
		return true
	}
	w.woken = now
	return false
}

// coarse is the time within which a second change of a folder may leave its modification time as it is.
const coarse = 2 * time.Second

func (w *folderWatch) run(ctx context.Context) {
	poll := time.NewTicker(w.store.poll)
	defer func() {
		poll.Stop()
		if w.cancel != nil {
			w.cancel() // no wake-up comes after the return
		}
		close(w.out)
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-poll.C:
			began := w.subscribe()
			mtime := w.store.files.folderTime(w.dir)
			if began || w.always || !mtime.Equal(w.last) || now.Sub(mtime).Abs() < coarse {
				if !began && w.rarely(now) {
					continue
				}
				w.told.add("")
				signal(w.out)
			}
			w.last = mtime
		}
	}
}

// folderTime returns the time of a folder's last change; zero if the folder does not exist.
func (t tree) folderTime(dir string) time.Time {
	info, err := t.Lstat(dir)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
