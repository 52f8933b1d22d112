// Package resultdir leaves datasets in a folder where people look for them, and knows later which files there still are as
// it wrote them.
//
// A file reaches its place whole, by a rename, and only if it differs from what is there. A file that somebody edited, or
// that was there before, is kept and reported. A file whose output is gone is removed if it is unedited. Written files
// are remembered in a record of this machine; without that record, files with other content count as edited.
//
// All paths are resolved below an open folder (os.Root), so no symbolic link leads out of it.
package resultdir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// An Item is a dataset and its place: a path in the folder, with slashes. Items do not overlap.
type Item struct {
	Path string
	Leaf record.Leaf
}

// A Folder is a folder for results. Processes that write in it take turns.
type Folder struct {
	Root    *os.Root
	Objects objectstore.Store
	Records workspace.Local // of this machine
	Key     refstore.Key    // of the record about the folder
	Now     func() time.Time
}

// Options say what a call of Write is about.
type Options struct {
	// Set names the selection of outputs. Files of the same selection that are not among the items any more are removed.
	Set string
	// Source identifies what the items were made from; "" if they are not complete. While it and the files stay the same,
	// Unchanged is true.
	Source string
	// Overwrite replaces files that were edited, or that were there before.
	Overwrite bool
	// Hold reports whether a file stays although no item has its path, since it cannot be told that its output is gone. It may be nil.
	Hold func(path string) bool
	// Refuse returns why a path may not be written, "" if it may. It may be nil.
	Refuse func(path string) string
	// Plain keeps a file that a symbolic link on its way would place elsewhere in the folder.
	Plain bool
	// Ignore lets files .gitignore name the items.
	Ignore bool
}

// A Report says what Write did. Paths are in the folder, with slashes.
type Report struct {
	Written []string `json:"written"`
	Removed []string `json:"removed"`
	Same    int      `json:"same"` // files
	Held    []string `json:"-"`
	Kept    []Kept   `json:"kept"`
	Beside  []string `json:"beside,omitempty"` // files in place in a folder of an output, which no output has
}

// Kept is a file that was not written or removed, and why. Yields says that Overwrite replaces it.
type Kept struct {
	Path   string `json:"path"`
	Why    string `json:"why"`
	Yields bool   `json:"-"`
}

// tempPrefix begins the name of the folder in which files are prepared.
const tempPrefix = ".e3-results-"

// Unchanged reports whether a selection lies in the folder as it was left, and was made from source.
func (f *Folder) Unchanged(ctx context.Context, set, source string) (files int, same bool) {
	known, _, err := f.load(ctx)
	if err != nil || source == "" || !slices.Contains(known.Sets, record.ResultSet{Name: set, Source: source}) {
		return 0, false
	}
	for i := range known.Files {
		if known.Files[i].Set != set {
			continue
		}
		files++
		info, err := f.Root.Lstat(known.Files[i].Path)
		if err != nil || known.Files[i].Next != nil || !workspace.Proves(known.Files[i].Stat, workspace.Stat(info)) {
			return 0, false
		}
	}
	return files, true
}

// Write makes the folder hold the items. If it fails before the first file is in place, as when the disk is full, the
// folder is as it was.
func (f *Folder) Write(ctx context.Context, items []Item, o Options) (*Report, error) {
	unlock, err := f.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := f.sweep(); err != nil {
		return nil, err
	}
	known, version, err := f.load(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{Folder: f, o: o, report: &Report{Written: []string{}, Removed: []string{}, Kept: []Kept{}}, version: version, files: map[string]*record.ResultFile{}, sets: known.Sets, ignored: known.Ignored, links: map[string]bool{}}
	for i := range known.Files {
		w.files[known.Files[i].Path] = &known.Files[i]
	}
	wants, err := f.flatten(ctx, items)
	if err != nil {
		return nil, err
	}
	defer w.discard()
	if err := w.write(ctx, wants, items); err != nil {
		return nil, err
	}
	slices.Sort(w.report.Written)
	slices.Sort(w.report.Held)
	slices.SortFunc(w.report.Kept, func(a, b Kept) int { return cmp.Compare(a.Path, b.Path) })
	return w.report, nil
}

// writer is one Write.
type writer struct {
	*Folder
	o       Options
	report  *Report
	version refstore.Version
	files   map[string]*record.ResultFile
	sets    []record.ResultSet
	temp    *os.Root // nil until it is needed
	name    string   // of temp
	staged  int
	mute    bool // nothing can be remembered
	ignored []record.IgnoredLine
	links   map[string]bool // whether a link is on the way into a folder
}

// change is a file that is to be written.
type change struct {
	want
	staged string      // its name in temp
	seen   fs.FileInfo // what it replaces; nil: nothing
}

func (w *writer) write(ctx context.Context, wants []want, items []Item) error {
	changes, err := w.compare(ctx, wants)
	if err != nil {
		return err
	}
	for i := range changes {
		if err := w.stage(ctx, &changes[i]); err != nil {
			return fmt.Errorf("%s: %w", changes[i].path, err)
		}
	}
	gone := w.gone(wants)
	for i := range changes {
		c := &changes[i]
		if e := w.files[c.path]; e != nil && e.Hash != c.hash {
			e.Next = c.hash[:]
		} else if e == nil {
			w.files[c.path] = &record.ResultFile{Path: c.path, Set: w.o.Set, Kind: c.kind, Hash: c.hash}
		}
	}
	if len(changes) > 0 {
		if err := w.save(ctx); err != nil {
			return err
		}
	}
	fault := w.apply(ctx, changes, gone)
	if fault == nil {
		fault = w.ignore(items)
	}
	if fault == nil && w.o.Plain {
		w.beside(items)
	}
	w.sets = slices.DeleteFunc(w.sets, func(s record.ResultSet) bool { return s.Name == w.o.Set })
	if fault == nil && len(w.report.Kept) == 0 && w.o.Source != "" {
		w.sets = append(w.sets, record.ResultSet{Name: w.o.Set, Source: w.o.Source})
	}
	return errors.Join(fault, w.save(context.WithoutCancel(ctx)))
}

// apply removes and renames. The folder changes only here.
func (w *writer) apply(ctx context.Context, changes []change, gone []string) error {
	for _, p := range gone {
		if err := w.remove(ctx, p); err != nil {
			return err
		}
	}
	for i := range changes {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := w.place(&changes[i]); err != nil {
			return fmt.Errorf("%s: %w", changes[i].path, err)
		}
	}
	return nil
}

// compare finds what differs from the wanted files.
func (w *writer) compare(ctx context.Context, wants []want) ([]change, error) {
	var changes []change
	for i := range wants {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		n := &wants[i]
		if w.o.Refuse != nil {
			if why := w.o.Refuse(n.path); why != "" {
				w.keep(n.path, why)
				continue
			}
		}
		if w.o.Plain && w.linked(path.Dir(n.path)) {
			w.keep(n.path, viaLink)
			continue
		}
		info, err := w.Root.Lstat(n.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			info = nil
		case isInTheWay(err): // perhaps until a file of an output that is gone is removed
			info = nil
		case err != nil:
			w.keep(n.path, escapes(err))
			continue
		}
		if info == nil || info.IsDir() && n.kind != record.ResultFolder { // perhaps the folder is empty then, and removed
			changes = append(changes, change{want: *n, seen: info})
			continue
		}
		is, why, err := w.look(ctx, n.path, info)
		if err != nil {
			return nil, err
		}
		e := w.files[n.path]
		switch {
		case is.known && is.hash == n.hash && is.kind.sameForm(n.kind):
			if err := w.adopt(n, e, info); err != nil {
				return nil, err
			}
		case is.ours || w.o.Overwrite && !info.IsDir():
			changes = append(changes, change{want: *n, seen: info})
		default:
			w.report.Kept = append(w.report.Kept, Kept{n.path, why, true})
		}
	}
	return changes, nil
}

// adopt remembers a file that has the wanted content already.
func (w *writer) adopt(n *want, e *record.ResultFile, info fs.FileInfo) error {
	seen := w.Now().UnixNano()
	if e != nil && e.Kind != n.kind && n.kind != record.ResultLink && n.kind != record.ResultFolder {
		if err := w.Root.Chmod(n.path, chmod(info.Mode(), n.kind == record.ResultExecutable)); err != nil {
			return err
		}
		after, err := w.Root.Lstat(n.path)
		if err != nil {
			return err
		}
		info = after
	}
	if e == nil || !workspace.Proves(e.Stat, workspace.Stat(info)) {
		e = &record.ResultFile{Path: n.path, Stat: workspace.Stat(info)}
		e.Stat.Seen = seen
	}
	e.Set, e.Kind, e.Hash, e.Next = w.o.Set, n.kind, n.hash, nil
	w.files[n.path] = e
	w.report.Same++
	return nil
}

func chmod(mode fs.FileMode, executable bool) fs.FileMode {
	if executable {
		return mode.Perm() | mode.Perm()>>2&0o111
	}
	return mode.Perm() &^ 0o111
}

// gone lists the files of the selection whose output is gone. Edited ones are reported, and are the user's from now on.
func (w *writer) gone(wants []want) []string {
	wanted := make(map[string]bool, len(wants))
	for i := range wants {
		wanted[wants[i].path] = true
	}
	var gone []string
	for p, e := range w.files {
		switch {
		case e.Set != w.o.Set || wanted[p]:
		case w.o.Hold != nil && w.o.Hold(p):
			w.report.Held = append(w.report.Held, p)
		default:
			gone = append(gone, p)
		}
	}
	slices.Sort(gone)
	return gone
}

// remove removes a file if it is unedited, and the folders that are empty then.
func (w *writer) remove(ctx context.Context, p string) error {
	defer delete(w.files, p)
	info, err := w.Root.Lstat(p)
	if err != nil || w.o.Plain && w.linked(path.Dir(p)) {
		return nil // gone, or out of reach: not ours
	}
	is, why, err := w.look(ctx, p, info)
	if err != nil {
		return err
	}
	if !is.ours {
		w.keep(p, why+", and no output is left there now")
		return nil
	}
	if err := w.Root.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if info.IsDir() { // it is not empty any more
			return nil
		}
		return err
	}
	w.report.Removed = append(w.report.Removed, p)
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if w.Root.Remove(dir) != nil {
			break
		}
	}
	return nil
}

func (w *writer) keep(p, why string) { w.report.Kept = append(w.report.Kept, Kept{Path: p, Why: why}) }

// stage prepares a file beside the others.
func (w *writer) stage(ctx context.Context, c *change) error {
	if c.kind == record.ResultFolder {
		return nil
	}
	if err := w.makeTemp(); err != nil {
		return err
	}
	w.staged++
	c.staged = fmt.Sprint(w.staged)
	if c.kind == record.ResultLink {
		return w.temp.Symlink(c.target, c.staged)
	}
	perm := fs.FileMode(0o666)
	if c.kind == record.ResultExecutable {
		perm = 0o777
	}
	_, err := objectstore.Materialize(ctx, w.Objects, c.hash, w.temp, c.staged, perm)
	return err
}

// makeTemp makes the folder for prepared files.
func (w *writer) makeTemp() error {
	if w.temp != nil {
		return nil
	}
	name := tempPrefix + uuid.NewString()[:8]
	if err := w.Root.Mkdir(name, 0o700); err != nil {
		return err
	}
	w.name = name
	temp, err := w.Root.OpenRoot(name)
	w.temp = temp
	return err
}

// viaLink says that a symbolic link is on the way to a path.
const viaLink = "a symbolic link on its way leads elsewhere"

// linked reports whether the folder is a symbolic link, or is reached by one.
func (w *writer) linked(folder string) bool {
	if folder == "." {
		return false
	}
	is, known := w.links[folder]
	if !known {
		is = w.linked(path.Dir(folder))
		if !is {
			info, err := w.Root.Lstat(folder)
			is = err == nil && info.Mode()&fs.ModeSymlink != 0
		}
		w.links[folder] = is
	}
	return is
}

// place moves a prepared file to its place, unless that has changed since it was looked at.
func (w *writer) place(c *change) error {
	if dir := path.Dir(c.path); dir != "." {
		if err := w.Root.MkdirAll(dir, 0o777); err != nil {
			return w.inTheWay(c, err)
		}
	}
	now, err := w.Root.Lstat(c.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case now.IsDir() && c.kind != record.ResultFolder:
		return w.inTheWay(c, fs.ErrExist)
	case c.seen == nil, workspace.Stat(now) != workspace.Stat(c.seen):
		if c.kind != record.ResultFolder || !now.IsDir() {
			delete(w.files, c.path)
			w.keep(c.path, "it changed just now")
			return nil
		}
	}
	seen := w.Now().UnixNano()
	if c.kind == record.ResultFolder {
		if err := w.Root.Mkdir(c.path, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return w.inTheWay(c, err)
		}
	} else {
		made, err := w.temp.Lstat(c.staged)
		if err != nil {
			return err
		}
		if err := w.Root.Rename(w.name+"/"+c.staged, c.path); err != nil {
			return w.inTheWay(c, err)
		}
		now, err = w.Root.Lstat(c.path)
		if err == nil && (now.Size() != made.Size() || !now.ModTime().Equal(made.ModTime())) {
			err = fs.ErrInvalid
		}
		if err != nil { // edited in the same moment: what is there is unknown
			now = nil
		}
	}
	e := &record.ResultFile{Path: c.path, Set: w.o.Set, Kind: c.kind, Hash: c.hash}
	if now != nil {
		e.Stat = workspace.Stat(now)
		e.Stat.Seen = seen
	}
	w.files[c.path] = e
	w.report.Written = append(w.report.Written, c.path)
	return nil
}

// inTheWay keeps what is in the place of a file. Other errors are returned.
func (w *writer) inTheWay(c *change, err error) error {
	if !isInTheWay(err) && !errors.Is(err, fs.ErrExist) {
		if !strings.Contains(err.Error(), "escapes") {
			return err
		}
		w.keep(c.path, escapes(err))
	} else {
		w.keep(c.path, "a file or folder that e3 did not write is in its place")
	}
	delete(w.files, c.path)
	return nil
}

// kept are the paths of files that stay as they are.
func (w *writer) kept() map[string]bool {
	kept := make(map[string]bool, len(w.report.Kept))
	for _, k := range w.report.Kept {
		kept[k.Path] = true
	}
	return kept
}

// beside finds files in folders of outputs that are no output's. It leaves out unreadable folders: the files are only named.
func (w *writer) beside(items []Item) {
	kept := w.kept()
	for i := range items {
		if items[i].Leaf.Kind != record.LeafDir {
			continue
		}
		_ = fs.WalkDir(w.Root.FS(), items[i].Path, func(p string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && w.files[p] == nil && !kept[p] {
				w.report.Beside = append(w.report.Beside, p)
			}
			return nil
		})
	}
}

// discard removes what was prepared.
func (w *writer) discard() {
	if w.temp != nil {
		w.temp.Close()
	}
	if w.name != "" {
		_ = w.Root.RemoveAll(w.name) // the next Write tries again
	}
}

// sweep removes what dead processes had prepared: the caller has the lock.
func (f *Folder) sweep() error {
	top, err := f.Root.Open(".")
	if err != nil {
		return err
	}
	defer top.Close()
	names, err := top.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, tempPrefix) {
			if err := f.Root.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// load reads the record about the folder. A damaged one is as none.
func (f *Folder) load(ctx context.Context) (*record.Results, refstore.Version, error) {
	rec, err := f.Records.Get(ctx, f.Key)
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged) {
		return &record.Results{}, rec.Version, nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("what was left in %s: %w", f.Root.Name(), err)
	}
	known, err := record.DecodeResults(rec.Value)
	if err != nil {
		known = &record.Results{}
	}
	return known, rec.Version, nil
}

// save writes the record about the folder. Without the right to do so, nothing is remembered.
func (w *writer) save(ctx context.Context) error {
	if w.mute {
		return nil
	}
	r := &record.Results{Sets: w.sets, Ignored: w.ignored}
	for _, e := range w.files {
		r.Files = append(r.Files, *e)
	}
	slices.SortFunc(r.Files, func(a, b record.ResultFile) int { return cmp.Compare(a.Path, b.Path) })
	version, err := w.Records.Put(ctx, refstore.Record{Key: w.Key, Value: r.Encode(), Version: w.version})
	if refstore.Unprotected(err) || errors.Is(err, fs.ErrPermission) {
		w.mute = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("remember what was left in %s: %w", w.Root.Name(), err)
	}
	w.version = version
	return nil
}
