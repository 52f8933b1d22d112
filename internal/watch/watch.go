// Package watch tells when the files of a package change: the package file, and what its inputs name. It reads no
// content: a file has changed if its size, times, mode or inode have.
package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"e3/internal/format/items"
	"e3/internal/format/manifest"
	"e3/internal/projectfiles"
)

// Options adjust a Watcher.
type Options struct {
	Quiet time.Duration // no change for so long ends a series of changes; default 100 ms
	Most  time.Duration // a series ends after so long anyway; default 2 s
	Every time.Duration // interval of looking where the system does not notify; default 1 s
	Poll  bool          // do not ask the system to notify, as for files that another machine changes
	// Polling is told once why the system does not notify; it may be nil.
	Polling func(error)
}

// A Watcher watches the files of one package file. One goroutine may use it at a time.
type Watcher struct {
	file    string
	opts    Options
	inputs  []manifest.Input // as the package file last named them
	seen    map[string]stamp // by path
	notify  *fsnotify.Watcher
	watched map[string]bool // folders
	cost    time.Duration   // of the last look
}

// stamp is what shows a change of a file.
type stamp struct {
	size  int64
	mode  fs.FileMode
	time  time.Time
	inode any
}

// New begins to watch a package file, which need not be there, and its inputs. A change from here on is returned by
// Next.
func New(file string, o Options) (*Watcher, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	for _, d := range []struct {
		at    *time.Duration
		value time.Duration
	}{{&o.Quiet, 100 * time.Millisecond}, {&o.Most, 2 * time.Second}, {&o.Every, time.Second}} {
		if *d.at == 0 {
			*d.at = d.value
		}
	}
	w := &Watcher{file: path, opts: o, watched: map[string]bool{}}
	if !o.Poll {
		if w.notify, err = fsnotify.NewWatcher(); err != nil {
			w.poll(err)
		}
	}
	w.seen = w.look()
	return w, nil
}

// Close ends the watch.
func (w *Watcher) Close() {
	if w.notify != nil {
		w.notify.Close() // nothing is left to do if that fails
	}
}

// poll gives up notifications.
func (w *Watcher) poll(why error) {
	w.Close()
	w.notify = nil
	if w.opts.Polling != nil {
		w.opts.Polling(why)
	}
}

// Files is the number of files that were there at the last look, with the package file.
func (w *Watcher) Files() int { return len(w.seen) }

// Next waits for changes, and for the end of the series that they belong to, and returns the paths of the files that
// differ from those of the last call: made, changed or removed.
func (w *Watcher) Next(ctx context.Context) ([]string, error) {
	for {
		if changed := w.take(w.look()); len(changed) > 0 {
			return w.settle(ctx, changed)
		}
		if err := w.wait(ctx, 0); err != nil {
			return nil, err
		}
	}
}

// ErrChanged is the cause of a context that has ended because a file has changed.
var ErrChanged = errors.New("a file has changed")

// During calls do with a context that ends once files have changed, with the cause ErrChanged, and returns these; nil
// if none have changed meanwhile. The error is that of do.
func (w *Watcher) During(ctx context.Context, do func(context.Context) error) ([]string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	next := make(chan []string, 1)
	go func() {
		changed, err := w.Next(watching)
		if err == nil {
			cancel(ErrChanged)
		}
		next <- changed
	}()
	err := do(ctx)
	stop()
	return <-next, err
}

// settle waits until nothing changes any more.
func (w *Watcher) settle(ctx context.Context, changed []string) ([]string, error) {
	until := time.Now().Add(w.opts.Most)
	for time.Now().Before(until) {
		if err := w.wait(ctx, w.opts.Quiet); err != nil {
			return nil, err
		}
		more := w.take(w.look())
		if len(more) == 0 {
			break
		}
		changed = append(changed, more...)
	}
	slices.Sort(changed)
	return slices.Compact(changed), nil
}

// take makes a look the latest one, and returns the paths that differ.
func (w *Watcher) take(now map[string]stamp) []string {
	var changed []string
	for path, is := range now {
		if was, ok := w.seen[path]; !ok || was != is {
			changed = append(changed, path)
		}
	}
	for path := range w.seen {
		if _, ok := now[path]; !ok {
			changed = append(changed, path)
		}
	}
	w.seen = now
	slices.Sort(changed)
	return changed
}

// wait returns when something may have changed, or after a time if that is not 0.
func (w *Watcher) wait(ctx context.Context, most time.Duration) error {
	every := most
	if w.notify == nil && every == 0 {
		every = max(w.opts.Every, 20*w.cost) // looking takes at most a twentieth of a core
	}
	var tick <-chan time.Time
	if every > 0 {
		timer := time.NewTimer(every)
		defer timer.Stop()
		tick = timer.C
	}
	if w.notify == nil || most > 0 { // in a series, the time decides
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick:
			return nil
		}
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case _, ok := <-w.notify.Events:
		if !ok {
			return fmt.Errorf("watch: %w", fs.ErrClosed)
		}
	case err := <-w.notify.Errors: // events were lost: look
		if err != nil && !errors.Is(err, fsnotify.ErrEventOverflow) {
			w.poll(err)
		}
	}
	w.drain()
	return nil
}

// drain drops the notifications that are there: one look answers them all.
func (w *Watcher) drain() {
	for w.notify != nil {
		select {
		case <-w.notify.Events:
		default:
			return
		}
	}
}

// look returns what is there now, and asks for notifications from folders that are new.
func (w *Watcher) look() map[string]stamp {
	began := time.Now()
	if def, err := manifest.ParseFile(w.file); err == nil { // a faulty file leaves the inputs of the last good one
		w.inputs = def.Inputs
	}
	for {
		l := &looker{base: filepath.Dir(w.file), found: map[string]stamp{}, folders: map[string]bool{}, real: map[string]string{}}
		l.one(w.file)
		for i := range w.inputs {
			l.input(&w.inputs[i])
		}
		if !w.follow(l.folders) { // else a file may have come before the notifications of its folder began
			w.cost = time.Since(began)
			return l.found
		}
	}
}

// follow asks for notifications from exactly these folders, and reports whether any is new. It asks again for the
// others: a folder may have been removed and made anew.
func (w *Watcher) follow(folders map[string]bool) (more bool) {
	for _, path := range slices.Sorted(maps.Keys(folders)) {
		if w.notify == nil {
			return false
		}
		err := w.notify.Add(path)
		switch {
		case err == nil:
			more = more || !w.watched[path]
			w.watched[path] = true
		case !errors.Is(err, fs.ErrNotExist): // as many watches as the system allows
			w.poll(err)
		}
	}
	if w.notify == nil {
		return false
	}
	for path := range w.watched {
		if !folders[path] {
			_ = w.notify.Remove(path) // it may be gone
			delete(w.watched, path)
		}
	}
	return more
}

// looker gathers the files of inputs, and the folders in which they can appear, or links to them can change.
type looker struct {
	base    string
	found   map[string]stamp
	folders map[string]bool
	real    map[string]string // folders without links, by their paths
}

// folder watches a folder, or the nearest one above that exists.
func (l *looker) folder(path string) {
	for {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			l.folders[path] = true
			return
		}
		above := filepath.Dir(path)
		if above == path {
			return
		}
		path = above
	}
}

// maxHops is how many links may lead on from each other, as on Linux.
const maxHops = 40

// way watches the folders that decide what a path leads to: its own, and that of each link on the way.
func (l *looker) way(path string, hops int) {
	dir := l.resolve(filepath.Dir(path), hops)
	l.folder(dir)
	if to := linked(filepath.Join(dir, filepath.Base(path))); to != "" && hops > 0 {
		l.way(to, hops-1)
	}
}

// resolve returns a folder without links, and watches the folders of the links on the way.
func (l *looker) resolve(dir string, hops int) string {
	if real, known := l.real[dir]; known {
		return real
	}
	above := filepath.Dir(dir)
	if above == dir {
		return dir
	}
	real := filepath.Join(l.resolve(above, hops), filepath.Base(dir))
	if to := linked(real); to != "" && hops > 0 {
		l.folder(filepath.Dir(real))
		real = l.resolve(to, hops-1)
	}
	l.real[dir] = real
	return real
}

// linked is what a path points to if it is a link; "" if it is none.
func linked(path string) string {
	to, err := os.Readlink(path)
	if err == nil && !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(path), to)
	}
	return to
}

// one looks at one file. A link stands for the file that it names.
func (l *looker) one(path string) {
	l.way(path, maxHops)
	if info, err := os.Stat(path); err == nil {
		l.add(path, info)
	}
}

func (l *looker) add(path string, info fs.FileInfo) {
	l.found[path] = stamp{size: info.Size(), mode: info.Mode(), time: info.ModTime(), inode: number(info)}
}

func (l *looker) input(in *manifest.Input) {
	path := filepath.Join(l.base, filepath.FromSlash(in.Path))
	switch {
	case in.Path == "" || in.Kind == manifest.URLInput: // a start asks its server
	case in.Kind == manifest.DirInput:
		l.way(path, maxHops)
		l.walk(l.resolve(path, maxHops), in.Except())
	case in.Kind == manifest.EnvironmentInput:
		for _, source := range in.Sources() {
			l.input(&source)
		}
	case in.Kind == manifest.ParamsInput, in.Kind == manifest.ParamInput:
		for _, file := range manifest.FilesOf(in.Path) {
			l.one(filepath.Join(l.base, filepath.FromSlash(file)))
		}
	case in.Kind == manifest.SheetInput:
		l.one(path)
		l.sheet(in, path)
	case in.Kind == manifest.GlobInput:
		l.way(filepath.Join(l.base, filepath.FromSlash(manifest.GlobPrefix(in.Path))), maxHops)
		found, _ := projectfiles.Match(l.base, in.Path, in.Except()) // the start says what is wrong with it
		for _, dir := range found.Folders {
			l.folder(l.resolve(dir, maxHops))
		}
		for _, link := range found.Links {
			l.way(link, maxHops)
		}
		for _, f := range found.Files {
			if info, err := os.Stat(f.At); err == nil {
				l.add(f.At, info)
			}
		}
	default: // a file, or what else is read from one
		l.one(path)
	}
}

// sheet looks at what the cells of a sheet name.
func (l *looker) sheet(in *manifest.Input, file string) {
	data, _ := os.ReadFile(file)
	cells, _ := items.Paths(in.Path, data, in.Columns) // the start says what is wrong with it
	for _, c := range cells {
		at := filepath.Join(l.base, filepath.FromSlash(c.Path))
		if !c.Folder {
			l.one(at)
			continue
		}
		l.way(at, maxHops)
		l.walk(l.resolve(at, maxHops), manifest.NewExcept(in.LeftOut, c.Path))
	}
}

// walk looks at all that is below a folder and not left out. Links in it are what they are.
func (l *looker) walk(root string, except *manifest.Except) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // gone meanwhile, or closed: the start says so
		}
		out := false
		if rel, err := filepath.Rel(root, path); err == nil && rel != "." {
			out, _ = except.Leaves(filepath.ToSlash(rel), d.IsDir() || d.Type()&fs.ModeSymlink != 0)
		}
		if d.IsDir() {
			if out || d.Name() == ".e3" {
				return fs.SkipDir
			}
			l.folders[path] = true
			return nil
		}
		if info, err := d.Info(); err == nil && !out {
			l.add(path, info)
		}
		return nil
	})
}

// number is the inode, which shows that another file has taken the path.
func number(info fs.FileInfo) any {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return nil
}
