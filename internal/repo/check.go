package repo

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/objectstore"
	"e3/objectstore/cached"
	"e3/objectstore/mounted"
	"e3/objectstore/objectstoretest"
	"e3/objectstore/s3"
	"e3/refstore"
	reffs "e3/refstore/fs"
	"e3/refstore/lease"
	"e3/refstore/refstoretest"
)

// Checked is one thing that was asked of the servers of a location.
type Checked struct {
	Of      string // records, locks or objects
	Name    string
	Err     error  // why it is not done; nil if it is
	Without string // what that means, if e3 can be used all the same
}

// casesAtATime is how many cases are asked of a server at a time; many of them make many requests at a time themselves.
const casesAtATime = 4

// Check asks of the servers of a location what the stores of e3 need, by the cases that the tests of e3 pass, and tells of
// each. It works aside: in a folder, a table or a schema's rows, and below a prefix of the bucket, of its own, which it
// removes. tell is not called concurrently. The error is that the location cannot be checked.
func Check(ctx context.Context, location string, o InitOptions, tell func(Checked)) (err error) {
	name := "check-" + strings.ToLower(rand.Text()[:12])
	c := &checks{tell: tell}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		for _, end := range slices.Backward(c.ends) {
			if gone := end(ctx); err == nil && gone != nil {
				err = fmt.Errorf("remove what the check has made: %w", gone)
			}
		}
	}()
	if !IsURL(location) {
		if err := c.folder(ctx, location, name); err != nil {
			return fmt.Errorf("check %s: %w", location, err)
		}
		if o.Objects == "" {
			return ctx.Err()
		}
		l, err := parseBucket(o.Objects)
		if err == nil {
			_, err = c.place(ctx, l, name)
		}
		return cmp.Or(err, ctx.Err())
	}
	l, err := parseShared(location)
	if err != nil {
		return err
	}
	objects := l.newObjects()
	if objects.Bucket+objects.Folder == "" {
		return badLocation(l.String(), "a check needs a bucket: %s", strings.Replace(l.initCommand(), "init", "init --check", 1))
	}
	remote, err := c.place(ctx, &objects, name)
	if err == nil && remote != nil {
		err = c.database(ctx, l, remote, name)
	}
	if err != nil {
		return fmt.Errorf("check %s: %w", l, err)
	}
	return ctx.Err()
}

// checks are the cases of one Check.
type checks struct {
	mu   sync.Mutex
	tell func(Checked)
	ends []func(context.Context) error
}

func (c *checks) end(f func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends = append(c.ends, f)
}

func (c *checks) told(checked Checked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell(checked)
}

// records runs the cases of stores of records. leased says that processes do not share a kernel, so that locks are leases.
func (c *checks) records(ctx context.Context, open refstoretest.Opener, leased bool) {
	holds := map[string]bool{}
	for _, hold := range refstoretest.HoldCases() {
		holds[hold.Name] = true
	}
	var g errgroup.Group
	g.SetLimit(casesAtATime)
	for _, of := range refstoretest.Cases() {
		if of.Large || ctx.Err() != nil {
			continue // too much for a server that is paid by request
		}
		g.Go(func() error {
			what := "records"
			opener := open
			if holds[of.Name] {
				if what = "locks"; leased {
					opener = c.leased(open)
				}
			}
			err := of.Run(ctx, opener)
			if !errors.Is(err, errors.ErrUnsupported) && ctx.Err() == nil {
				c.told(Checked{Of: what, Name: of.Name, Err: err})
			}
			return nil
		})
	}
	g.Wait()
}

// leasedRecords are records with the leases on them.
type leasedRecords struct {
	refstore.Store
	*lease.Leases
}

func (c *checks) leased(open refstoretest.Opener) refstoretest.Opener {
	return func(ctx context.Context) (refstore.Store, error) {
		s, err := open(ctx)
		if err != nil {
			return nil, err
		}
		l := lease.New(s, lease.Options{})
		c.end(func(context.Context) error { return l.Close() })
		return leasedRecords{s, l}, nil
	}
}

// folder checks the file system of a folder, or of the first one above it that exists.
func (c *checks) folder(ctx context.Context, location, name string) error {
	above, err := filepath.Abs(location)
	if err != nil {
		return err
	}
	for ; ; above = filepath.Dir(above) {
		if info, err := os.Stat(above); err == nil && info.IsDir() {
			break
		} else if above == filepath.Dir(above) {
			return err
		}
	}
	dir := filepath.Join(above, "."+name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	c.end(func(context.Context) error { return os.RemoveAll(dir) })
	var n int
	c.records(ctx, func(context.Context) (refstore.Store, error) {
		c.mu.Lock()
		n++
		path := filepath.Join(dir, fmt.Sprint(n))
		c.mu.Unlock()
		if err := os.Mkdir(path, 0o700); err != nil {
			return nil, err
		}
		s, err := reffs.Open(path, reffs.Options{})
		if err == nil {
			c.end(func(context.Context) error { return s.Close() })
		}
		return s, err
	}, false)
	return c.objects(ctx, dir, func(local *objectstore.Dir, _ string) (objectstore.Store, error) { return local, nil })
}

// database checks a database of shared repositories.
func (c *checks) database(ctx context.Context, l *sharedLocation, objects remote, name string) error {
	conn, err := l.connect(ctx, &Repo{opts: Options{Getenv: os.Getenv}})
	if err != nil {
		return err
	}
	c.end(func(context.Context) error { return conn.close() })
	open, gone, err := conn.aside(ctx, name, objects)
	if err != nil {
		return err
	}
	c.end(gone)
	c.records(ctx, open, true)
	return nil
}

// place checks a place of objects, below a prefix of its own. It returns nil for one that e3 cannot use.
func (c *checks) place(ctx context.Context, l *bucketLocation, name string) (remote, error) {
	if l.Prefix = strings.Trim(l.Prefix+"/"+name, "/"); l.Folder != "" {
		l.Prefix = name // nothing above it stays
	}
	remote, err := (&Created{}).makePlace(ctx, l)
	if errors.Is(err, s3.ErrUnconditional) {
		c.told(Checked{Of: "objects", Name: "a name that is taken is not overwritten", Err: err})
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c.end(remote.Empty)
	if bucket, ok := remote.(*s3.Bucket); ok {
		for _, d := range bucket.Demands() {
			if err := d.Meets(ctx); ctx.Err() == nil {
				c.told(Checked{"objects", d.Name, err, d.Without})
			}
		}
	}
	dir, err := os.MkdirTemp("", "e3-check-")
	if err != nil {
		return nil, err
	}
	c.end(func(context.Context) error { return os.RemoveAll(dir) })
	return remote, c.objects(ctx, dir, func(local *objectstore.Dir, name string) (objectstore.Store, error) {
		below := *l
		below.Prefix += "/" + name
		remote, err := (&Repo{}).remote(ctx, &below, nil)
		if folder, ok := remote.(*mounted.Folder); ok {
			err = folder.Create(ctx)
		}
		if err != nil {
			return nil, err
		}
		s, err := cached.Open(cached.Options{Local: local, Remote: remote, Guard: alone{}})
		if err == nil {
			c.end(func(context.Context) error { return s.Close() })
		}
		return s, err
	})
}

// objects runs the cases of stores of objects, each with a store of its own, which has a folder here, and a name.
func (c *checks) objects(ctx context.Context, dir string, open func(local *objectstore.Dir, name string) (objectstore.Store, error)) error {
	for i, of := range objectstoretest.Cases() {
		name := fmt.Sprint("objects-", i)
		local, err := objectstore.OpenDir(filepath.Join(dir, name), objectstore.Options{})
		if err != nil {
			return err
		}
		s, err := open(local, name)
		if err != nil {
			return err
		}
		if err := of.Run(ctx, s); ctx.Err() == nil {
			c.told(Checked{Of: "objects", Name: of.Name, Err: err})
		}
	}
	return nil
}

// alone is the guard of objects that no other process knows.
type alone struct{}

func (alone) Rely(context.Context, objectstore.Hash) error { return nil }
func (alone) Held() error                                  { return nil }
func (alone) Condemn(_ context.Context, _ byte, hs []objectstore.Hash) ([]objectstore.Hash, func(context.Context) error, error) {
	return hs, func(context.Context) error { return nil }, nil
}
