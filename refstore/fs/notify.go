package fs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

type subscription struct {
	name string // of a file; "" for any
	wake chan<- struct{}
}

// subscribe wakes when something happens to the named file in dir, or with "" to anything in dir. It returns nil if it
// cannot: the folder does not exist yet, or there is no notification.
func (n *notifier) subscribe(dir, name string, wake chan<- struct{}) (cancel func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.broken {
		return nil
	}
	if n.watcher == nil {
		w, err := fsnotify.NewWatcher()
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
	sub := &subscription{name: name, wake: wake}
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
	for {
		select {
		case ev, ok := <-w.Events:
			if !ok {
				return
			}
			n.event(ev.Name)
		case _, ok := <-w.Errors: // events were lost
			if !ok {
				return
			}
			n.event("")
		}
	}
}

// event wakes the waiters for path; all for "".
func (n *notifier) event(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	dir, name := filepath.Dir(path), filepath.Base(path)
	for sub := range n.subs[dir] {
		if sub.name == "" || sub.name == name {
			signal(sub.wake)
		}
	}
	for sub := range n.subs[path] { // the folder itself
		signal(sub.wake)
	}
	if path == "" {
		for _, subs := range n.subs {
			for sub := range subs {
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
	return s.watchFolder(ctx, p.dir, false), nil
}

// watchFolder wakes by notification, and after polls: after each one if always is true, else if the folder's time has
// changed.
func (s *Store) watchFolder(ctx context.Context, dir string, always bool) <-chan struct{} {
	w := &folderWatch{store: s, dir: dir, always: always, out: make(chan struct{}, 1)}
	w.subscribe()
	w.last = folderTime(dir)
	go w.run(ctx)
	return w.out
}

type folderWatch struct {
	store  *Store
	dir    string
	always bool
	out    chan struct{}
	cancel func()
	last   time.Time
}

func (w *folderWatch) subscribe() bool {
	if w.cancel == nil && w.store.notify != nil {
		w.cancel = w.store.notify.subscribe(w.dir, "", w.out)
		return w.cancel != nil
	}
	return false
}

func (w *folderWatch) run(ctx context.Context) {
	poll := time.NewTicker(w.store.poll)
	defer func() {
		poll.Stop()
		if w.cancel != nil {
			w.cancel() // no wake-ups after this
		}
		close(w.out)
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-poll.C:
			began := w.subscribe()
			mtime := folderTime(w.dir)
			if began || w.always || !mtime.Equal(w.last) || now.Sub(mtime).Abs() < 2*time.Second {
				signal(w.out)
			}
			w.last = mtime
		}
	}
}

// folderTime returns the time of a folder's last change; zero if the folder does not exist.
func folderTime(dir string) time.Time {
	info, err := os.Stat(dir)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
