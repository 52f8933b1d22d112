package executions

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"e3/internal/host/atomicfile"
	"e3/internal/host/room"
	"e3/internal/host/watch"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// layers lends checkouts to closed rooms, which see them below a layer of their own: what a command writes goes into its
// layer. So a lent checkout stays as it is, any number of commands may have it at once, and while its files are watched
// and nothing has touched them, it needs no other check.
type layers struct {
	mu      sync.Mutex  // also held while a checkout is renewed, so that several commands wait for one renewal
	lent    []*lending  // the latest last
	refused atomic.Bool // this machine cannot mount them
}

// A lending is a checkout that belongs to the layers.
type lending struct {
	*checkout
	of    objectstore.Hash
	users int
	watch *watch.Tree
	stale bool // touched while it was in use: it is not lent again
}

// A layer is a checkout as one command has it.
type layer struct {
	*lending
	rel string // below the working directory
	own string // the folder of what the command writes, in the sandbox
}

func (l *layer) mount() room.Mount {
	return room.Mount{Source: l.tree(), Target: room.Work + "/" + filepath.ToSlash(l.rel),
		Upper: filepath.Join(l.own, "upper"), Scratch: filepath.Join(l.own, "scratch")}
}

// stageLayer has the room show a large folder at rel.
func stageLayer(ctx context.Context, a *attempt, label string, h objectstore.Hash, rel string) error {
	if err := a.box.mkdir(rel); err != nil { // where it is mounted
		return err
	}
	own := filepath.Join(a.box.root, "u"+strconv.Itoa(len(a.box.lent)))
	if err := atomicfile.RemoveAll(own); err != nil {
		return err
	}
	if err := os.Mkdir(own, 0o700); err != nil {
		return err
	}
	for name, mode := range map[string]FileMode{"upper": stagedDir, "scratch": 0o700} {
		path := filepath.Join(own, name)
		if err := os.Mkdir(path, mode); err != nil {
			return err
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask and the folder's group
			return err
		}
	}
	l, err := a.x.checkouts.lend(ctx, label, h, a.box.strips)
	if err == nil {
		a.box.lent = append(a.box.lent, &layer{l, rel, own})
	}
	return err
}

// lend returns a checkout of the tree h that nothing has touched since it was made or checked.
func (p *checkouts) lend(ctx context.Context, label string, h objectstore.Hash, strips bool) (*lending, error) {
	p.layers.mu.Lock()
	defer p.layers.mu.Unlock()
	if l := p.layers.find(h); l != nil {
		l.users++
		return l, nil
	}
	c, err := p.choose(short(label), short(h.String()))
	if err != nil {
		return nil, err
	}
	l := &lending{checkout: c, of: h, users: 1}
	renew := func() (err error) {
		c.kept, err = tree.Renew(ctx, p.objects, c.tree(), h, c.kept, tree.CheckoutOptions{Strips: strips})
		return err
	}
	used := c.kept != nil
	if err = renew(); err != nil && used && ctx.Err() == nil { // it may be damaged
		if c, err = p.make(short(label)); err != nil {
			return nil, err
		}
		l.checkout = c
		err = renew()
	}
	if err != nil {
		return nil, err
	}
	c.label, c.hash = short(label), short(h.String())
	// A change between the renewal and the start of the watch shows in another renewal.
	var paths []string
	for _, folder := range c.kept.Folders() {
		paths = append(paths, filepath.Join(c.tree(), folder))
	}
	if l.watch, err = watch.Folders(paths); err == nil {
		err = renew()
	} else {
		l.watch, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	p.layers.lent = append(p.layers.lent, l)
	p.keepFew()
	return l, nil
}

// find returns the checkout of a tree. One that was touched is given up. Under mu.
func (s *layers) find(h objectstore.Hash) *lending {
	for _, l := range slices.Backward(s.lent) {
		if l.of != h || l.stale {
			continue
		}
		if !l.watch.Touched() {
			return l
		}
		l.stale = true
	}
	return nil
}

// keepFew hands what is not in use to the checkouts: stale ones, and all but the latest. Under mu.
func (p *checkouts) keepFew() {
	unused := 0
	for _, l := range slices.Backward(slices.Clone(p.layers.lent)) {
		if l.users > 0 {
			continue
		}
		if unused++; l.stale || unused > maxIdle {
			p.retire(l)
		}
	}
}

// retire makes a checkout an ordinary idle one. Under mu.
func (p *checkouts) retire(l *lending) {
	l.watch.Close()
	p.layers.lent = slices.DeleteFunc(p.layers.lent, func(other *lending) bool { return other == l })
	if l.kept.Bytes() > maxKeptBytes {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, l.checkout)
}

// takeBack ends the use of the layers of a sandbox, and removes what its command has written into them.
func (p *checkouts) takeBack(box *sandbox) error {
	if len(box.lent) == 0 {
		return nil
	}
	var errs []error
	for _, l := range p.leave(box) {
		errs = append(errs, atomicfile.RemoveAll(l.own))
	}
	return errors.Join(errs...)
}

// leave ends the use of the layers of a sandbox, and returns them.
func (p *checkouts) leave(box *sandbox) []*layer {
	p.layers.mu.Lock()
	defer p.layers.mu.Unlock()
	for _, l := range box.lent {
		l.users--
	}
	p.keepFew()
	left := box.lent
	box.lent = nil
	return left
}

// takeBackAll hands all checkouts that are not in use to those that stay for the next process.
func (p *checkouts) takeBackAll() {
	p.layers.mu.Lock()
	defer p.layers.mu.Unlock()
	for _, l := range slices.Clone(p.layers.lent) {
		if l.users == 0 {
			p.retire(l)
		}
	}
}

// copyLayers makes copies in the working directory where layers cannot be mounted, for example on NFS. Later commands
// get no layers.
func copyLayers(ctx context.Context, a *attempt) error {
	a.x.checkouts.layers.refused.Store(true)
	for _, l := range a.box.lent {
		path := filepath.Join(a.box.work, l.rel)
		if _, err := tree.Checkout(ctx, a.x.objects, l.of, path, tree.CheckoutOptions{Merge: true, Fixed: true, Strips: a.box.strips}); err != nil {
			return err
		}
	}
	return nil
}
