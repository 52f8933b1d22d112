package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"e3/internal/host/atomicfile"
	"e3/internal/host/stamp"
	"e3/objectstore"
)

// A Kept is a checkout that commands use one after another, as it was before the latest one began. Renew compares it
// with the directory, so that only what differs is written again.
type Kept struct {
	folder keptFolder
	files  int
	bytes  int64
}

// Files is the number of files in it, and Bytes is their size.
func (k *Kept) Files() int   { return k.files }
func (k *Kept) Bytes() int64 { return k.bytes }

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

// Trust makes the next Renew take the files that the latest one has written for what was written, without another look, if their
// times have not changed since. It is for a folder that no other process can have had open meanwhile.
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
	executable bool
	stamp      keptStamp
	doubtful   bool // the stamp is too young to show every later change
}

// keptStamp is the state of a file that changes with its content. The zero value is no state.
type keptStamp struct {
	inode        uint64
	mtime, ctime int64 // nanoseconds since 1970
}

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

// Renew makes dir an exact checkout of the tree h, with modes as for CheckoutOptions.Fixed. dir is absent, or a
// checkout that old describes and that a command has used since. No process may work in dir or have anything in it open.
//
// A file that the command has not touched, as its times prove, stays, or its inode takes the next content. Everything
// else that differs is removed and made anew, so that nothing of the command remains. A file beside dir, named
// dir+".clock", shows the time of the file system. After an error dir is of no use.
func Renew(ctx context.Context, s objectstore.Store, dir string, h objectstore.Hash, old *Kept, o CheckoutOptions) (*Kept, error) {
	k, err := renew(ctx, s, dir, h, old, o)
	if err != nil {
		return nil, fmt.Errorf("check out directory object %s to %s: %w", h, dir, err)
	}
	return k, nil
}

func renew(ctx context.Context, s objectstore.Store, dir string, h objectstore.Hash, old *Kept, o CheckoutOptions) (*Kept, error) {
	o.Fixed = true
	if o.MaxEntries == 0 {
		o.MaxEntries = 10_000_000
	}
	if old == nil {
		old = &Kept{folder: *newKeptFolder()}
	}
	g, groupCtx := errgroup.WithContext(ctx)
	g.SetLimit(workers(o.Workers, s))
	r := &renewer{ctx: groupCtx, store: s, o: o, dir: dir, group: g, links: links{}}
	top := newKeptFolder()
	err := r.makeFolder(dir)
	if err == nil {
		err = r.walk("", 0, h, &old.folder, top)
	}
	if waitErr := g.Wait(); waitErr != nil && (err == nil || errors.Is(err, context.Canceled)) {
		err = waitErr
	}
	if err == nil {
		err = r.link()
	}
	if err != nil {
		return nil, err
	}
	seen, err := fileClock(dir + ".clock")
	if err != nil {
		return nil, err
	}
	k := &Kept{folder: *top}
	k.settle(&k.folder, seen)
	return k, nil
}

// settle finds the files whose times do not show every change after seen.
func (k *Kept) settle(f *keptFolder, seen int64) {
	for name, file := range f.files {
		k.files++
		k.bytes += file.size
		if file.doubtful = !stamp.Settled(seen, file.stamp.mtime, file.stamp.ctime); file.doubtful {
			f.files[name] = file
		}
	}
	for _, sub := range f.folders {
		k.settle(sub, seen)
	}
}

// fileClock is the present time of the file system, in nanoseconds since 1970.
func fileClock(path string) (int64, error) {
	if err := os.WriteFile(path, []byte{0}, 0o600); err != nil {
		return 0, err
	}
	info, err := os.Lstat(path)
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
	dir     string
	group   *errgroup.Group
	mu      sync.Mutex // guards the files of all folders
	links   links      // of the whole tree
	missing []string   // those that are still to be made
	entries int64
}

// makeFolder makes path a folder with the right mode and without attributes of a command.
func (r *renewer) makeFolder(path string) error {
	mode := r.o.perm(true)
	if info, err := os.Lstat(path); err == nil && info.IsDir() && info.Mode().Perm() == mode && !attributed(path) {
		return nil
	}
	if err := atomicfile.RemoveAll(path); err != nil {
		return err
	}
	err := os.Mkdir(path, mode)
	if err == nil && r.o.Strips {
		err = os.Chmod(path, mode)
	}
	return err
}

// walk makes the folder at rel a checkout of the tree h. old is what was there, and now becomes what is there.
func (r *renewer) walk(rel string, depth int, h objectstore.Hash, old, now *keptFolder) error {
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
	there, err := r.prune(rel, t)
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
			if err := r.makeFolder(r.path(at)); err != nil {
				return err
			}
			before := old.folders[e.Name]
			if before == nil {
				before = newKeptFolder()
			}
			sub := newKeptFolder()
			now.folders[e.Name] = sub
			if err := r.walk(at, depth+1, e.Hash, before, sub); err != nil {
				return err
			}
		case KindFile:
			r.file(at, e, there[e.Name], old.files[e.Name], now)
		case KindLink:
			now.links[e.Name] = e.Target
			r.links[at] = e.Target
			if there[e.Name] {
				if target, err := os.Readlink(r.path(at)); err == nil && target == filepath.FromSlash(e.Target) && !attributed(r.path(at)) {
					continue
				}
				if err := atomicfile.RemoveAll(r.path(at)); err != nil {
					return err
				}
			}
			r.missing = append(r.missing, at)
		}
	}
	return nil
}

func (r *renewer) path(rel string) string { return filepath.Join(r.dir, filepath.FromSlash(rel)) }

// prune removes what the tree does not have at rel, and returns the other names that are there.
func (r *renewer) prune(rel string, t Entries) (map[string]bool, error) {
	f, err := os.Open(r.path(rel))
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, nil
	}
	wanted := make(map[string]bool, len(t))
	for _, e := range t {
		wanted[e.Name] = true
	}
	there := make(map[string]bool, len(names))
	for _, name := range names {
		if wanted[name] {
			there[name] = true
		} else if err := atomicfile.RemoveAll(filepath.Join(r.path(rel), name)); err != nil {
			return nil, err
		}
	}
	return there, nil
}

// file makes the file at rel that e describes. there tells whether the name is taken, by what was made as old if the
// command has not touched it.
func (r *renewer) file(rel string, e Entry, there bool, old keptFile, now *keptFolder) {
	file := r.path(rel)
	untouched := false
	if there {
		untouched = old.stamp != keptStamp{} && old.is(file, r.o.perm(old.executable))
	}
	same := untouched && old.hash == e.Hash && old.executable == e.Executable && old.size == e.Size
	if same && !old.doubtful {
		r.mu.Lock()
		now.files[e.Name] = old
		r.mu.Unlock()
		return
	}
	r.group.Go(func() error {
		made, err := r.write(file, e, there, untouched && !same && !old.doubtful, same)
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		r.mu.Lock()
		now.files[e.Name] = made
		r.mu.Unlock()
		return nil
	})
}

// is tells whether the file is as it was.
func (f *keptFile) is(path string, perm fs.FileMode) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode() == perm && info.Size() == f.size && single(info) && stampOf(info) == f.stamp
}

// write writes a file. there tells whether there is one; it may have the same content after all, or else its inode can
// take the new content if it is untouched.
func (r *renewer) write(file string, e Entry, there, untouched, same bool) (keptFile, error) {
	perm := r.o.perm(e.Executable)
	if same && !attributed(file) && objectstore.Holds(r.ctx, file, e.Hash) {
		return r.made(file, e)
	}
	if untouched {
		n, err := objectstore.Rewrite(r.ctx, r.store, e.Hash, file, perm)
		if err == nil && n != e.Size {
			err = &objectstore.CorruptError{Want: e.Hash, Size: n}
		}
		if err == nil {
			return r.made(file, e)
		}
		if !errors.Is(err, objectstore.ErrInUse) {
			return keptFile{}, err
		}
	}
	if there {
		if err := atomicfile.RemoveAll(file); err != nil {
			return keptFile{}, err
		}
	}
	err := objectstore.Materialize(r.ctx, r.store, e.Hash, file, perm)
	if err == nil && r.o.Strips {
		err = os.Chmod(file, perm)
	}
	if err != nil {
		return keptFile{}, err
	}
	return r.made(file, e)
}

// made describes a file that was just written.
func (r *renewer) made(file string, e Entry) (keptFile, error) {
	info, err := os.Lstat(file)
	if err != nil {
		return keptFile{}, err
	}
	if info.Size() != e.Size {
		return keptFile{}, &objectstore.CorruptError{Want: e.Hash, Size: info.Size()}
	}
	return keptFile{hash: e.Hash, size: e.Size, executable: e.Executable, stamp: stampOf(info)}, nil
}

// link checks all links of the tree and makes those that are missing.
func (r *renewer) link() error {
	if err := r.o.checkLinks(r.links); err != nil {
		return err
	}
	for _, rel := range r.missing {
		if err := os.Symlink(filepath.FromSlash(r.links[rel]), r.path(rel)); err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
	}
	return nil
}

// foreign tells whether an extended attribute is one that a command may have set: a security module labels every file.
func foreign(attributes string) bool {
	for name := range strings.SplitSeq(strings.TrimRight(attributes, "\x00"), "\x00") {
		if name != "" && !strings.HasPrefix(name, "security.") {
			return true
		}
	}
	return false
}
