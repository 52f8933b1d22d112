package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"e3/internal/host/beneath"
	"e3/objectstore"
)

// CheckoutOptions adjust Checkout.
type CheckoutOptions struct {
	// MaxEntries bounds the number of files, directories and links that are made; 0 means ten million. A few small
	// directory objects that name each other many times could otherwise fill any disk.
	MaxEntries int64

	// Merge accepts an existing file if it holds the same bytes and has the same executable bit: trees that overlap
	// can be written into one directory.
	Merge bool

	// Fixed gives directories and executables the mode 0755 and other files 0644, whatever the umask is. If the umask
	// clears bits of these modes, Strips must be true; the modes are then set explicitly.
	Fixed, Strips bool

	// Workers is the number of files that are written at a time; 0 means two for each core, or the number that a remote
	// store asks for.
	Workers int

	// Around describes the folders around the tree that are not in the store. nil: all folders are in the store.
	Around *Around
}

// read returns a directory object.
func (o *CheckoutOptions) read(ctx context.Context, s objectstore.Store, h objectstore.Hash) (Entries, error) {
	if o.Around != nil {
		if t, ok := o.Around.levels[h]; ok {
			return t, nil
		}
	}
	return Read(ctx, s, h)
}

// checkLinks is links.check for the tree that is in the store.
func (o *CheckoutOptions) checkLinks(l links) error {
	if o.Around != nil {
		return l.check(o.Around.path)
	}
	return l.check(".")
}

// perm is the mode of a new directory or executable, or else of another file.
func (o *CheckoutOptions) perm(executable bool) fs.FileMode {
	perm := fs.FileMode(0o666)
	if executable {
		perm = 0o777
	}
	if o.Fixed {
		perm &= 0o755
	}
	return perm
}

// Checkout writes the tree h into the directory dst, which is made if it does not exist. Existing files stay:
// directories are merged, and any other conflict is an error that wraps fs.ErrExist and names the path. Files are the
// caller's own, as objectstore.Materialize makes them; modes are 0777 for directories and executables and 0666 for other
// files, less the umask, unless they are Fixed.
//
// A tree may be hostile. Nothing is written outside dst and no link is followed: names are checked when they are
// decoded, everything is created below open directories, and links are made last, after each has been shown to stay
// inside. After an error dst keeps the files that were written before.
func Checkout(ctx context.Context, s objectstore.Store, h objectstore.Hash, dst string, o CheckoutOptions) (Stats, error) {
	dst, err := filepath.Abs(dst)
	if err != nil {
		return Stats{}, err
	}
	in, err := beneath.Open(filepath.Dir(dst))
	if err != nil {
		return Stats{}, fmt.Errorf("check out directory object %s: %w", h, err)
	}
	defer in.Close()
	return CheckoutIn(ctx, s, h, in, filepath.Base(dst), o)
}

// CheckoutIn is Checkout for a directory in an open one, or below it.
func CheckoutIn(ctx context.Context, s objectstore.Store, h objectstore.Hash, in *beneath.Dir, dst string, o CheckoutOptions) (Stats, error) {
	stats, err := checkout(ctx, s, h, in, dst, o)
	if err != nil {
		return Stats{}, fmt.Errorf("check out directory object %s to %s: %w", h, filepath.Join(in.Name(), dst), err)
	}
	return stats, nil
}

func checkout(ctx context.Context, s objectstore.Store, h objectstore.Hash, in *beneath.Dir, dst string, o CheckoutOptions) (Stats, error) {
	o.MaxEntries = cmp.Or(o.MaxEntries, 10_000_000)
	made := in.Mkdir(dst, o.perm(true))
	if made == nil && o.Strips {
		made = in.Chmod(dst, o.perm(true))
	}
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return Stats{}, made
	}
	root, err := in.Sub(dst)
	if err != nil {
		return Stats{}, err
	}
	top := &outDir{root: root, o: &o}
	g, groupCtx := errgroup.WithContext(ctx)
	g.SetLimit(workers(o.Workers, s))
	c := &checkouter{ctx: groupCtx, store: s, o: o, group: g, links: links{}}
	top.users.Store(2) // the walk, and the making of links
	defer top.release()
	walkErr := c.walk(top, h)
	err = g.Wait()
	if err == nil || !errors.Is(walkErr, context.Canceled) {
		err = errors.Join(walkErr, err) // else the walk stopped because of a worker's error
	}
	if err != nil {
		return Stats{}, err
	}
	if err := c.o.checkLinks(c.links); err != nil {
		return Stats{}, err
	}
	for rel, target := range c.links {
		if err := ctx.Err(); err != nil {
			return Stats{}, err
		}
		if err := root.Symlink(filepath.FromSlash(target), filepath.FromSlash(rel)); err != nil {
			return Stats{}, fmt.Errorf("%s: %w", rel, err)
		}
	}
	c.stats.Links = int64(len(c.links))
	return c.stats, nil
}

// checkouter is one Checkout. One goroutine walks, makes directories and collects the links;
// workers write the files.
type checkouter struct {
	ctx   context.Context
	store objectstore.Store
	o     CheckoutOptions
	group *errgroup.Group

	links   links
	stats   Stats
	entries int64
}

// outDir is a directory that is being filled.
type outDir struct {
	root  *beneath.Dir
	rel   string
	depth int
	o     *CheckoutOptions
	users atomic.Int64 // the number of unfinished files, plus one while the walk is in the directory
}

func (d *outDir) release() {
	if d.users.Add(-1) == 0 {
		d.root.Close()
	}
}

// walk writes the tree h below d, and counts as a user of d. Files may still be in progress when it returns.
func (c *checkouter) walk(d *outDir, h objectstore.Hash) error {
	defer d.release()
	if d.depth > MaxDepth {
		return tooDeep(d.rel)
	}
	t, err := c.o.read(c.ctx, c.store, h)
	if err != nil {
		return fmt.Errorf("directory %q: %w", orRoot(d.rel), err)
	}
	if c.entries += int64(len(t)); c.entries > c.o.MaxEntries {
		return &Error{Path: orRoot(d.rel), Msg: fmt.Sprintf("there are more than %d entries", c.o.MaxEntries)}
	}
	for _, e := range t {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		rel := path.Join(d.rel, e.Name)
		if !filepath.IsLocal(e.Name) || filepath.Base(e.Name) != e.Name {
			return &Error{Path: rel, Msg: "this system cannot have such a name"}
		}
		switch e.Kind {
		case KindDir:
			sub, err := d.mkdir(e.Name)
			if err != nil {
				return err
			}
			c.stats.Dirs++
			if err := c.walk(sub, e.Hash); err != nil {
				return err
			}
		case KindFile:
			c.stats.Files++
			c.stats.Bytes += e.Size
			d.users.Add(1)
			c.group.Go(func() error {
				defer d.release()
				if err := c.file(d, e); err != nil {
					return fmt.Errorf("%s: %w", rel, err)
				}
				return nil
			})
		case KindLink:
			c.links[rel] = e.Target
		}
	}
	return nil
}

// mkdir makes a directory in d or enters the existing one.
func (d *outDir) mkdir(name string) (*outDir, error) {
	sub := &outDir{rel: path.Join(d.rel, name), depth: d.depth + 1, o: d.o}
	err := d.root.Mkdir(name, d.o.perm(true))
	if err == nil && d.o.Strips {
		err = d.root.Chmod(name, d.o.perm(true))
	}
	if errors.Is(err, fs.ErrExist) {
		// A link to a directory is a conflict like any other file.
		if fi, statErr := d.root.Lstat(name); statErr == nil && fi.IsDir() {
			err = nil
		}
	}
	if err == nil {
		sub.root, err = d.root.Sub(name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sub.rel, err)
	}
	sub.users.Store(1)
	return sub, nil
}

// file writes one file and compares its size with that in the tree.
func (c *checkouter) file(d *outDir, e Entry) error {
	perm := c.o.perm(e.Executable)
	n, err := objectstore.Materialize(c.ctx, c.store, e.Hash, d.root, e.Name, perm)
	if c.o.Merge && errors.Is(err, fs.ErrExist) && d.holds(c.ctx, e) {
		return nil
	}
	if err != nil {
		return err
	}
	if c.o.Strips {
		err = d.root.Chmod(e.Name, perm)
	}
	if err == nil && n != e.Size {
		err = &objectstore.CorruptError{Want: e.Hash, Size: n}
	}
	if err != nil {
		return errors.Join(err, d.root.Remove(e.Name))
	}
	return nil
}

// holds reports whether the directory already has the entry's file.
func (d *outDir) holds(ctx context.Context, e Entry) bool {
	fi, err := d.root.Lstat(e.Name)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() != e.Size || (fi.Mode()&0o111 != 0) != e.Executable {
		return false
	}
	return objectstore.Holds(ctx, d.root, e.Name, e.Hash)
}
