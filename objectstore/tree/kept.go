package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"e3/internal/host/beneath"
	"e3/internal/host/stamp"
	"e3/objectstore"
)

// A Kept is a checkout that commands use one after another: its state before the latest command began. Renew compares
// this state with the directory, so that it writes only what differs.
type Kept struct {
	folder keptFolder
	bytes  int64
	usage  Usage
}

// Bytes is the size of the files in it, and Usage is what it takes on the disk.
func (k *Kept) Bytes() int64 { return k.bytes }
func (k *Kept) Usage() Usage { return k.usage }

// A Usage is what files take on a disk: many small ones take more of it than their bytes, and inodes.
type Usage struct {
	Files int64 // also folders and links
	Bytes int64 // of blocks
}

// Plus is the usage of both.
func (u Usage) Plus(o Usage) Usage { return Usage{u.Files + o.Files, u.Bytes + o.Bytes} }

// Within reports whether neither part is greater than a bound.
func (u Usage) Within(bound Usage) bool { return u.Files <= bound.Files && u.Bytes <= bound.Bytes }

// Half is half of it.
func (u Usage) Half() Usage { return Usage{u.Files / 2, u.Bytes / 2} }

// folderBytes are the blocks of a folder that has few entries.
const folderBytes = 4096

// count adds a folder to bytes and usage.
func (k *Kept) count(f *keptFolder) {
	k.usage = k.usage.Plus(Usage{int64(1 + len(f.files) + len(f.links)), folderBytes})
	for _, file := range f.files {
		k.bytes += file.size
		k.usage.Bytes += file.space
	}
	for _, sub := range f.folders {
		k.count(sub)
	}
}

// Folders lists the folders in it, relative to it: first "", which is the checkout itself.
func (k *Kept) Folders() []string { return k.folder.list("", nil) }

func (f *keptFolder) list(path string, all []string) []string {
	all = append(all, path)
	for name, sub := range f.folders {
		all = sub.list(filepath.Join(path, name), all)
	}
	return all
}

// Doubt makes the next Renew read every file again. It is for a checkout that may have lost bytes while its times
// stayed, because the machine has been restarted.
func (k *Kept) Doubt() { k.folder.doubt(true) }

// Trust makes the next Renew rely on the files that the latest Renew wrote, if their times have not changed, without
// another read. It is for a folder that no other process can have had open meanwhile.
func (k *Kept) Trust() { k.folder.doubt(false) }

type keptFolder struct {
	folders map[string]*keptFolder
	files   map[string]keptFile
	links   map[string]string
}

// keptFile is a file whose content was written, and checked, by this package.
type keptFile struct {
	hash       objectstore.Hash
	size       int64
	space      int64 // of its blocks, when it was written
	executable bool
	stamp      fileStamp
	doubtful   bool // the stamp is too young to show every later change
}

// fileStamp holds attributes of a file that change when its content changes. The zero value is no state.
type fileStamp struct {
	inode        uint64
	mtime, ctime int64 // nanoseconds since 1970
}

func stampOf(s *beneath.Stamp) fileStamp { return fileStamp{s.Inode, s.Modified, s.Changed} }

func newKeptFolder() *keptFolder {
	return &keptFolder{folders: map[string]*keptFolder{}, files: map[string]keptFile{}, links: map[string]string{}}
}

func (f *keptFolder) doubt(doubtful bool) {
	for name, file := range f.files {
		file.doubtful = doubtful
		f.files[name] = file
	}
	for _, sub := range f.folders {
		sub.doubt(doubtful)
	}
}

// Renew makes dir, in an open directory, an exact checkout of the tree h, with modes as for CheckoutOptions.Fixed. dir is
// absent, or a checkout that old describes and that a command has used since. No process may work in dir or have anything in
// it open.
//
// A file that the command has not touched, as its times prove, stays, or its inode takes the next content. Everything
// else that differs is removed and made anew, so that the command leaves nothing. A file beside dir, named
// dir+".clock", shows the time of the file system. After an error dir is of no use.
func Renew(ctx context.Context, s objectstore.Store, in *beneath.Dir, dir string, h objectstore.Hash, old *Kept, o CheckoutOptions) (*Kept, error) {
	k, err := renew(ctx, s, in, dir, h, old, o)
	if err != nil {
		return nil, fmt.Errorf("check out directory object %s to %s: %w", h, filepath.Join(in.Name(), dir), err)
	}
	return k, nil
}

func renew(ctx context.Context, s objectstore.Store, in *beneath.Dir, dir string, h objectstore.Hash, old *Kept, o CheckoutOptions) (*Kept, error) {
	o.Fixed = true
	if o.MaxEntries == 0 {
		o.MaxEntries = 10_000_000
	}
	if old == nil {
		old = &Kept{folder: *newKeptFolder()}
	}
	g, groupCtx := errgroup.WithContext(ctx)
	g.SetLimit(workers(o.Workers, s))
	r := &renewer{ctx: groupCtx, store: s, o: o, group: g, links: links{}}
	top := newKeptFolder()
	root, err := r.enter(in, dir)
	if err == nil {
		defer root.release()
		root.users.Add(1) // for the making of links
		err = r.walk(root, "", 0, h, &old.folder, top)
	}
	if waitErr := g.Wait(); waitErr != nil && (err == nil || errors.Is(err, context.Canceled)) {
		err = waitErr
	}
	if err == nil {
		err = r.link(root.Dir)
	}
	if err != nil {
		return nil, err
	}
	seen, err := fileClock(in, dir+".clock")
	if err != nil {
		return nil, err
	}
	k := &Kept{folder: *top}
	k.folder.settle(seen)
	k.count(&k.folder)
	return k, nil
}

// settle finds the files whose times do not show every change after seen.
func (f *keptFolder) settle(seen int64) {
	for name, file := range f.files {
		if file.doubtful = !stamp.Settled(seen, file.stamp.mtime, file.stamp.ctime); file.doubtful {
			f.files[name] = file
		}
	}
	for _, sub := range f.folders {
		sub.settle(seen)
	}
}

// fileClock is the present time of the file system, in nanoseconds since 1970.
func fileClock(in *beneath.Dir, name string) (int64, error) {
	f, err := in.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.Write([]byte{0}); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.ModTime().UnixNano(), nil
}

// renewer is one Renew. One goroutine compares, workers write files.
type renewer struct {
	ctx     context.Context
	store   objectstore.Store
	o       CheckoutOptions
	group   *errgroup.Group
	mu      sync.Mutex // guards the files of all folders
	links   links      // links of the whole tree
	missing []string   // links that are still to be made
	entries int64
}

// A renewedDir is an open folder of the checkout.
type renewedDir struct {
	*beneath.Dir
	users atomic.Int64 // the number of unfinished files, plus one while the walk is in the folder
}

func (d *renewedDir) release() {
	if d.users.Add(-1) == 0 {
		d.Close()
	}
}

// enter opens a folder, and makes it if need be. The folder has the right mode and no attributes set by a command.
func (r *renewer) enter(in *beneath.Dir, name string) (*renewedDir, error) {
	mode := r.o.perm(true)
	if info, err := in.Lstat(name); err != nil || !info.IsDir() || info.Mode().Perm() != mode || attributed(in, name) {
		if err := in.RemoveAll(name); err != nil {
			return nil, err
		}
		err := in.Mkdir(name, mode)
		if err == nil && r.o.Strips {
			err = in.Chmod(name, mode)
		}
		if err != nil {
			return nil, err
		}
	}
	dir, err := in.Sub(name)
	if err != nil {
		return nil, err
	}
	d := &renewedDir{Dir: dir}
	d.users.Store(1)
	return d, nil
}

// walk makes a folder a checkout of the tree h, and counts as a user of the folder. old describes its former content;
// now gets its new content.
func (r *renewer) walk(d *renewedDir, rel string, depth int, h objectstore.Hash, old, now *keptFolder) error {
	defer d.release()
	if depth > MaxDepth {
		return tooDeep(rel)
	}
	t, err := r.o.read(r.ctx, r.store, h)
	if err != nil {
		return fmt.Errorf("directory %q: %w", orRoot(rel), err)
	}
	if r.entries += int64(len(t)); r.entries > r.o.MaxEntries {
		return &Error{Path: orRoot(rel), Msg: fmt.Sprintf("there are more than %d entries", r.o.MaxEntries)}
	}
	there, err := prune(d, t)
	if err != nil {
		return err
	}
	for _, e := range t {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		at := path.Join(rel, e.Name)
		if !filepath.IsLocal(e.Name) || filepath.Base(e.Name) != e.Name {
			return &Error{Path: at, Msg: "this system cannot have such a name"}
		}
		switch e.Kind {
		case KindDir:
			sub, err := r.enter(d.Dir, e.Name)
			if err != nil {
				return err
			}
			before := old.folders[e.Name]
			if before == nil {
				before = newKeptFolder()
			}
			made := newKeptFolder()
			now.folders[e.Name] = made
			if err := r.walk(sub, at, depth+1, e.Hash, before, made); err != nil {
				return err
			}
		case KindFile:
			r.file(d, at, e, there[e.Name], old.files[e.Name], now)
		case KindLink:
			now.links[e.Name] = e.Target
			r.links[at] = e.Target
			if there[e.Name] {
				if target, err := d.Readlink(e.Name); err == nil && target == filepath.FromSlash(e.Target) && !attributed(d.Dir, e.Name) {
					continue
				}
				if err := d.RemoveAll(e.Name); err != nil {
					return err
				}
			}
			r.missing = append(r.missing, at)
		}
	}
	return nil
}

// prune removes the entries of a folder that the tree does not have, and returns the names of the others.
func prune(d *renewedDir, t Entries) (map[string]bool, error) {
	list, err := d.ReadDir()
	if err != nil || len(list) == 0 {
		return nil, err
	}
	wanted := make(map[string]bool, len(t))
	for _, e := range t {
		wanted[e.Name] = true
	}
	there := make(map[string]bool, len(list))
	for _, e := range list {
		if wanted[e.Name()] {
			there[e.Name()] = true
		} else if err := d.RemoveAll(e.Name()); err != nil {
			return nil, err
		}
	}
	return there, nil
}

// file makes the file at rel, in d, that e describes. there tells whether the name is taken: by the file that old
// describes, if the command has not touched it.
func (r *renewer) file(d *renewedDir, rel string, e Entry, there bool, old keptFile, now *keptFolder) {
	untouched := false
	if there {
		untouched = old.stamp != fileStamp{} && old.is(d.Dir, e.Name, r.o.perm(old.executable))
	}
	same := untouched && old.hash == e.Hash && old.executable == e.Executable && old.size == e.Size
	if same && !old.doubtful {
		r.mu.Lock()
		now.files[e.Name] = old
		r.mu.Unlock()
		return
	}
	d.users.Add(1)
	r.group.Go(func() error {
		defer d.release()
		made, err := r.write(d.Dir, e, there, untouched && !same && !old.doubtful, same)
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		r.mu.Lock()
		now.files[e.Name] = made
		r.mu.Unlock()
		return nil
	})
}

// is tells whether the file has not changed.
func (f *keptFile) is(in *beneath.Dir, name string, perm fs.FileMode) bool {
	now, err := in.Stamp(name)
	return err == nil && now.Mode == perm && now.Size == f.size && now.Links == 1 && stampOf(&now) == f.stamp
}

// write writes a file. there tells whether the file exists: it may have the same content after all; otherwise its
// inode, if untouched, can take the new content.
func (r *renewer) write(d *beneath.Dir, e Entry, there, untouched, same bool) (keptFile, error) {
	perm := r.o.perm(e.Executable)
	if same && !attributed(d, e.Name) && objectstore.Holds(r.ctx, d, e.Name, e.Hash) {
		return r.made(d, e)
	}
	if untouched {
		n, err := objectstore.Rewrite(r.ctx, r.store, e.Hash, d, e.Name, perm)
		if err == nil && n != e.Size {
			err = &objectstore.CorruptError{Want: e.Hash, Size: n}
		}
		if err == nil {
			return r.made(d, e)
		}
		if !errors.Is(err, objectstore.ErrInUse) {
			return keptFile{}, err
		}
	}
	if there {
		if err := d.RemoveAll(e.Name); err != nil {
			return keptFile{}, err
		}
	}
	_, err := objectstore.Materialize(r.ctx, r.store, e.Hash, d, e.Name, perm)
	if err == nil && r.o.Strips {
		err = d.Chmod(e.Name, perm)
	}
	if err != nil {
		return keptFile{}, err
	}
	return r.made(d, e)
}

// made describes a file that was just written.
func (r *renewer) made(d *beneath.Dir, e Entry) (keptFile, error) {
	now, err := d.Stamp(e.Name)
	if err != nil {
		return keptFile{}, err
	}
	if now.Size != e.Size {
		return keptFile{}, &objectstore.CorruptError{Want: e.Hash, Size: now.Size}
	}
	return keptFile{hash: e.Hash, size: e.Size, space: now.Space, executable: e.Executable, stamp: stampOf(&now)}, nil
}

// link checks all links of the tree and makes the missing ones.
func (r *renewer) link(root *beneath.Dir) error {
	if err := r.o.checkLinks(r.links); err != nil {
		return err
	}
	for _, rel := range r.missing {
		if err := root.Symlink(filepath.FromSlash(r.links[rel]), filepath.FromSlash(rel)); err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
	}
	return nil
}

// attributed tells whether an entry may have attributes or access lists that a command has set: a security module labels
// every file.
func attributed(in *beneath.Dir, name string) bool {
	names, err := in.Attributes(name)
	return err != nil || slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, "security.") })
}
