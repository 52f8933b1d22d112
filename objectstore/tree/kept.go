package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"e3/internal/format/beast2"
	"e3/internal/host/beneath"
	"e3/internal/host/stamp"
	"e3/internal/parallel"
	"e3/objectstore"
)

// A Kept is a checkout that commands use one after another: its state before the latest command began. Renew compares
// this state with the directory, so that it writes only what differs.
type Kept struct {
	root  keptEntry
	bytes int64
	usage Usage
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

// count sets bytes and usage.
func (k *Kept) count() {
	k.bytes, k.usage = 0, Usage{}
	k.root.each(func(e *keptEntry) {
		k.usage.Files++
		switch e.Kind {
		case KindDir:
			k.usage.Bytes += folderBytes
		case KindFile:
			k.bytes += e.Size
			k.usage.Bytes += e.space
		}
	})
}

// Folders lists the folders in it, relative to it: first "", which is the checkout itself.
func (k *Kept) Folders() []string { return k.root.folders("", nil) }

func (e *keptEntry) folders(path string, all []string) []string {
	all = append(all, path)
	for i := range e.entries {
		if sub := &e.entries[i]; sub.Kind == KindDir {
			all = sub.folders(filepath.Join(path, sub.Name), all)
		}
	}
	return all
}

// Doubt makes the next Renew read every file again. It is for a checkout that may have lost bytes while its times
// stayed, because the machine has been restarted.
func (k *Kept) Doubt() { k.doubt(true) }

// Trust makes the next Renew rely on the files that the latest Renew wrote, if their times have not changed, without
// another read. It is for a folder that no other process can have had open meanwhile.
func (k *Kept) Trust() { k.doubt(false) }

func (k *Kept) doubt(doubtful bool) {
	k.root.each(func(e *keptEntry) { e.doubtful = doubtful && e.Kind == KindFile })
}

// A keptEntry is an entry of a tree that is checked out.
type keptEntry struct {
	Entry
	entries []keptEntry // of a folder, in tree order

	// Of a file, whose content was written, and checked, by this package:
	space    int64     // of its blocks, when it was written
	stamp    fileStamp // what it had then
	doubtful bool      // the stamp is too young to show every later change
}

// each calls do with the entry and all below.
func (e *keptEntry) each(do func(*keptEntry)) {
	do(e)
	for i := range e.entries {
		e.entries[i].each(do)
	}
}

// fileStamp holds attributes of a file that change when its content changes. The zero value is no state.
type fileStamp struct {
	inode        uint64
	mtime, ctime int64 // nanoseconds since 1970
}

func stampOf(s *beneath.Stamp) fileStamp { return fileStamp{s.Inode, s.Modified, s.Changed} }

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
	var before *keptEntry
	if old != nil {
		before = &old.root
	}
	g, groupCtx := errgroup.WithContext(ctx)
	g.SetLimit(workers(o.Workers, s))
	r := &renewer{ctx: groupCtx, store: s, o: o, group: g, links: links{}}
	k := &Kept{root: keptEntry{Entry: Entry{Kind: KindDir, Hash: h}}}
	root, err := r.enter(in, dir)
	if err == nil {
		defer root.release()
		root.users.Add(1) // for the making of links
		err = r.walk(root, "", 0, before, &k.root)
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
	k.root.each(func(e *keptEntry) { // find the files whose times do not show every change after seen
		e.doubtful = e.Kind == KindFile && !stamp.Settled(seen, e.stamp.mtime, e.stamp.ctime)
	})
	k.count()
	return k, nil
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
	links   links    // links of the whole tree
	missing []string // links that are still to be made
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

// walk makes a folder a checkout of the tree now.Hash, and counts as a user of the folder. old describes its former content,
// and is nil if that is not known; now gets the new content.
func (r *renewer) walk(d *renewedDir, rel string, depth int, old, now *keptEntry) error {
	defer d.release()
	if depth > MaxDepth {
		return tooDeep(rel)
	}
	if old != nil && old.Hash == now.Hash {
		now.entries = old.entries // as the object says, which need not be read
	} else if err := r.read(rel, now); err != nil {
		return err
	}
	if r.entries += int64(len(now.entries)); r.entries > r.o.MaxEntries {
		return &Error{Path: orRoot(rel), Msg: fmt.Sprintf("there are more than %d entries", r.o.MaxEntries)}
	}
	found, err := r.look(d, old, now)
	for i := range found {
		if err = cmp.Or(err, r.ctx.Err()); err != nil {
			return err
		}
		e := &now.entries[i]
		if !filepath.IsLocal(e.Name) || filepath.Base(e.Name) != e.Name {
			return &Error{Path: path.Join(rel, e.Name), Msg: "this system cannot have such a name"}
		}
		switch e.Kind {
		case KindDir:
			sub, err := r.enter(d.Dir, e.Name)
			if err != nil {
				return err
			}
			if err := r.walk(sub, path.Join(rel, e.Name), depth+1, found[i].before, e); err != nil {
				return err
			}
		case KindFile:
			r.file(d, rel, found[i], e)
		case KindLink:
			at := path.Join(rel, e.Name)
			r.links[at] = e.Target
			if found[i].there {
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
	return err
}

// read gives a folder the entries of its directory object.
func (r *renewer) read(rel string, now *keptEntry) error {
	t, err := r.o.read(r.ctx, r.store, now.Hash)
	if err != nil {
		return fmt.Errorf("directory %q: %w", orRoot(rel), err)
	}
	now.entries = make([]keptEntry, len(t))
	for i, e := range t {
		now.entries[i].Entry = e
	}
	return nil
}

// A foundEntry is what there is of an entry before Renew changes anything in the folder.
type foundEntry struct {
	before    *keptEntry // nil if there was no entry of this kind
	there     bool       // the name is taken
	untouched bool       // the file is as before describes it
}

// look looks for the entries of a folder, and removes those that the tree does not have.
func (r *renewer) look(d *renewedDir, old, now *keptEntry) ([]foundEntry, error) {
	found := make([]foundEntry, len(now.entries))
	if old != nil {
		known := old.entries
		for i := range found {
			e := &now.entries[i]
			for len(known) > 0 && beast2.CompareStrings(known[0].Name, e.Name) < 0 {
				known = known[1:]
			}
			if len(known) > 0 && known[0].Name == e.Name && known[0].Kind == e.Kind {
				found[i].before = &known[0]
			}
		}
	}
	var missing atomic.Int64
	if err := parallel.Each(r.ctx, len(found), func(_ context.Context, i int) error {
		f, e := &found[i], &now.entries[i]
		here, err := d.Stamp(e.Name)
		if f.there = !errors.Is(err, fs.ErrNotExist); !f.there {
			missing.Add(1)
		}
		f.untouched = err == nil && f.before != nil && f.before.Kind == KindFile && f.before.is(&here, &r.o)
		return nil
	}); err != nil || d.HasEntries(len(found)-int(missing.Load())) {
		return found, err
	}
	there, err := prune(d, now.entries)
	for i := range found { // the system may take two names for one
		found[i].there = there[now.entries[i].Name]
		found[i].untouched = found[i].untouched && found[i].there
	}
	return found, err
}

// prune removes the entries of a folder that the tree does not have, and returns the names of the others.
func prune(d *renewedDir, t []keptEntry) (map[string]bool, error) {
	list, err := d.ReadDir()
	if err != nil || len(list) == 0 {
		return nil, err
	}
	there := make(map[string]bool, len(t))
	for i := range t {
		there[t[i].Name] = false
	}
	for _, e := range list {
		if _, wanted := there[e.Name()]; wanted {
			there[e.Name()] = true
		} else if err := d.RemoveAll(e.Name()); err != nil {
			return nil, err
		}
	}
	return there, nil
}

// file makes the file e in d, the folder at rel.
func (r *renewer) file(d *renewedDir, rel string, found foundEntry, e *keptEntry) {
	same, doubtful := found.untouched && found.before.Entry == e.Entry, found.untouched && found.before.doubtful
	if same && !doubtful {
		*e = *found.before
		return
	}
	d.users.Add(1)
	r.group.Go(func() error {
		defer d.release()
		if err := r.write(d.Dir, e, found.there, found.untouched && !same && !doubtful, same); err != nil {
			return fmt.Errorf("%s: %w", path.Join(rel, e.Name), err)
		}
		return nil
	})
}

// is tells whether a file that was written has not changed.
func (e *keptEntry) is(now *beneath.Stamp, o *CheckoutOptions) bool {
	return e.stamp == stampOf(now) && now.Mode == o.perm(e.Executable) && now.Size == e.Size && now.Links == 1
}

// write writes a file. there tells whether the file exists: it may have the same content after all; otherwise its
// inode, if untouched, can take the new content.
func (r *renewer) write(d *beneath.Dir, e *keptEntry, there, untouched, same bool) error {
	perm := r.o.perm(e.Executable)
	if same && !attributed(d, e.Name) && objectstore.Holds(r.ctx, d, e.Name, e.Hash) {
		return e.made(d)
	}
	if untouched {
		n, err := objectstore.Rewrite(r.ctx, r.store, e.Hash, d, e.Name, perm)
		if err == nil && n != e.Size {
			err = &objectstore.CorruptError{Want: e.Hash, Size: n}
		}
		if err == nil {
			return e.made(d)
		}
		if !errors.Is(err, objectstore.ErrInUse) {
			return err
		}
	}
	if there {
		if err := d.RemoveAll(e.Name); err != nil {
			return err
		}
	}
	_, err := objectstore.Materialize(r.ctx, r.store, e.Hash, d, e.Name, perm)
	if err == nil && r.o.Strips {
		err = d.Chmod(e.Name, perm)
	}
	if err != nil {
		return err
	}
	return e.made(d)
}

// made describes a file that was just written.
func (e *keptEntry) made(d *beneath.Dir) error {
	now, err := d.Stamp(e.Name)
	if err != nil {
		return err
	}
	if now.Size != e.Size {
		return &objectstore.CorruptError{Want: e.Hash, Size: now.Size}
	}
	e.space, e.stamp = now.Space, stampOf(&now)
	return nil
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
