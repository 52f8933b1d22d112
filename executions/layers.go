package executions

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"e3/internal/format/record"
	"e3/internal/host/room"
	"e3/internal/host/watch"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// minLayeredBytes is the size from which a file, or a folder with few files, is worth a layer. To mount a layer costs
// as much as to copy some hundred KiB.
const minLayeredBytes = 1 << 20

// layers lends checkouts to closed rooms, which see them below the folder of the command: what a command writes goes there.
// So a lent checkout stays as it is, any number of commands may have it at once, and while its files are watched
// and nothing has touched them, it needs no other check.
type layers struct {
	mu      sync.Mutex
	lent    []*lending  // the latest last
	large   []*checkout // too large to keep; they are to be removed
	refused atomic.Bool // this machine cannot mount them
}

// A lending is a checkout that belongs to the layers. The input lies in it at the same path as in the command's
// folder.
type lending struct {
	*checkout
	of    objectstore.Hash
	users int
	watch *watch.Tree
	stale bool          // touched while it was in use: it is not lent again
	ready chan struct{} // closed once the checkout is made, or err says why not
	err   error
}

// A layer is a checkout as one command has it.
type layer struct {
	*lending
	rel   string // below the working directory
	entry tree.Entry
}

// scratchFolder is the name of room.Room.Scratch in the sandbox.
const scratchFolder = "scratch"

// stageLayer has the room show an input at rel, as the layer below the sandbox's own folder. It returns false if the
// input must be copied.
func (b *box) stageLayer(ctx context.Context, in record.Input, h objectstore.Hash, rel string) (bool, error) {
	entry, ok, err := b.layered(ctx, in, h, rel)
	if err != nil || !ok {
		return false, err
	}
	if err := b.placeFile(rel); err != nil { // what the command may leave there is removed afterwards
		return false, err
	}
	if len(b.lent) == 0 {
		b.scratch = scratchFolder
		if err := b.renewScratch(); err != nil {
			return false, err
		}
	}
	return true, b.lendTo(ctx, in, rel, entry)
}

// renewScratch empties the scratch folder: the kernel refuses the scratch folder of an earlier room.
func (b *sandbox) renewScratch() error {
	if err := b.root.Discard(b.scratch); err != nil {
		return err
	}
	return b.root.Mkdir(b.scratch, 0o700)
}

// anotherRoom makes a sandbox fit for a second room of its command, in which the first one has started nothing.
func (b *sandbox) anotherRoom() error {
	if len(b.lent) == 0 {
		return nil
	}
	return errors.Join(b.unmark(), b.renewScratch())
}

// layered tells whether an input is to be a layer, and returns its tree's entry.
func (b *box) layered(ctx context.Context, in record.Input, h objectstore.Hash, rel string) (entry tree.Entry, ok bool, err error) {
	if !b.spec.Room.Closed || b.x.checkouts.layers.refused.Load() || len(b.lent) == room.MaxLower {
		return entry, false, nil
	}
	return b.large(ctx, in, h, rel)
}

// large tells whether an input can be a layer in a closed room, and returns its tree's entry: a folder of many files or
// a large file, at a path that no other input or output has.
func (b *box) large(ctx context.Context, in record.Input, h objectstore.Hash, rel string) (entry tree.Entry, ok bool, err error) {
	entry = tree.Entry{Kind: tree.KindDir, Hash: h}
	if rel == "." || b.ownsInput(in) { // the folder of an item moves
		return entry, false, nil
	}
	if in.Kind == record.KindDir {
		var size treeSize
		size, err = b.x.checkouts.size(ctx, h)
		ok = size.files >= minKeptFiles || size.bytes >= minLayeredBytes
	} else if all := b.req.InputBytes; all == 0 || all >= minLayeredBytes { // else none is large
		entry.Kind, entry.Executable = tree.KindFile, in.Kind == record.KindExecutable
		entry.Size, err = b.x.objects.Stat(ctx, h)
		ok = entry.Size >= minLayeredBytes
	}
	return entry, ok && err == nil && b.alone(in, rel), err
}

// lendTo lends the sandbox a checkout that holds one input.
func (b *box) lendTo(ctx context.Context, in record.Input, rel string, entry tree.Entry) error {
	around, err := tree.At("work/"+filepath.ToSlash(rel), entry)
	if err != nil {
		return err
	}
	label := objectstore.Sum([]byte(b.req.Workspace + "\x00" + in.Path + "\x00room")).String()
	l, err := b.x.checkouts.lend(ctx, label, tree.CheckoutOptions{Strips: b.strips, Around: around})
	if err == nil {
		b.lent = append(b.lent, &layer{l, rel, entry})
	}
	return err
}

// unmark makes the folders of a sandbox fit to be above layers, or to be without any.
func (b *sandbox) unmark() error {
	err := room.Unmark(b.room, ".")
	for _, rel := range append([]string{"."}, b.dirs...) {
		if err == nil {
			err = room.Unmark(b.work, rel)
		}
	}
	return err
}

// lend returns a checkout that nothing has touched since it was made or checked. Commands that want the same checkout
// wait until it is made.
func (p *checkouts) lend(ctx context.Context, label string, o tree.CheckoutOptions) (*lending, error) {
	for {
		l, mine := p.layers.addUser(o.Around.Root)
		if mine {
			return l, p.fillLending(ctx, l, label, o)
		}
		select {
		case <-l.ready:
		case <-ctx.Done():
			p.returnLayers([]*layer{{lending: l}})
			return nil, context.Cause(ctx)
		}
		if l.err == nil {
			return l, nil
		}
	}
}

// addUser adds a user to the checkout of a tree. mine: there was none, and the caller fills it.
func (s *layers) addUser(h objectstore.Hash) (l *lending, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range slices.Backward(s.lent) {
		if l.of == h && !l.touched() {
			l.users++
			return l, false
		}
	}
	l = &lending{of: h, users: 1, ready: make(chan struct{})}
	s.lent = append(s.lent, l)
	return l, true
}

// touched tells whether a checkout must not be lent again. Under layers.mu.
func (l *lending) touched() bool {
	select {
	case <-l.ready:
		l.stale = l.stale || l.watch.Touched()
		return l.stale
	default: // it is being made
		return false
	}
}

// fillLending makes the checkout of a lending. Whoever waits for it gets the error.
func (p *checkouts) fillLending(ctx context.Context, l *lending, label string, o tree.CheckoutOptions) error {
	err := p.watched(ctx, l, short(label), o)
	p.layers.mu.Lock()
	if err != nil {
		l.err = err
		p.layers.lent = slices.DeleteFunc(p.layers.lent, func(other *lending) bool { return other == l })
	} else {
		p.keepFew()
	}
	p.layers.mu.Unlock()
	close(l.ready)
	_ = p.removeLarge() // else removed with this process's folder: the command has what it needs
	return err
}

// watched makes the checkout of a lending, and watches it.
func (p *checkouts) watched(ctx context.Context, l *lending, label string, o tree.CheckoutOptions) error {
	h := o.Around.Root
	c, err := p.checkOut(ctx, label, h, o)
	if err != nil {
		return err
	}
	l.checkout = c
	// A second renewal shows changes between the first one and the start of the watch.
	var paths []string
	for _, folder := range c.kept.Folders() {
		paths = append(paths, filepath.Join(c.tree(), folder))
	}
	if l.watch, err = watch.Folders(paths); err != nil {
		l.watch = nil
		return nil // it is renewed for each command
	}
	c.kept.Trust() // so that a large file is not read again
	c.kept, err = tree.Renew(ctx, p.objects, c.dir, treeFolder, h, c.kept, o)
	return err
}

// keepFew returns lendings that are not in use to the idle checkouts: stale ones, and all but the latest. Under
// layers.mu.
func (p *checkouts) keepFew() {
	unused, all, bound := 0, tree.Usage{}, p.bound()
	for _, l := range slices.Backward(slices.Clone(p.layers.lent)) {
		if l.users > 0 {
			continue
		}
		with := all.Plus(l.kept.Usage())
		if unused++; l.stale || unused > maxIdle || unused > 1 && !with.Within(bound) {
			p.retire(l)
		} else {
			all = with
		}
	}
}

// retire makes a checkout an ordinary idle one. Under layers.mu.
func (p *checkouts) retire(l *lending) {
	l.watch.Close()
	p.layers.lent = slices.DeleteFunc(p.layers.lent, func(other *lending) bool { return other == l })
	if !l.kept.Usage().Within(p.bound().Half()) {
		p.layers.large = append(p.layers.large, l.checkout)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, l.checkout)
	var all tree.Usage
	for n, c := range slices.Backward(p.idle) {
		if all = all.Plus(c.kept.Usage()); !all.Within(p.bound()) {
			p.layers.large = append(p.layers.large, p.idle[:n+1]...)
			p.idle = slices.Delete(p.idle, 0, n+1)
			return
		}
	}
}

// removeLarge removes the checkouts that are too large to be kept.
func (p *checkouts) removeLarge() error {
	p.layers.mu.Lock()
	large := p.layers.large
	p.layers.large = nil
	p.layers.mu.Unlock()
	var errs []error
	for _, c := range large {
		errs = append(errs, c.remove())
	}
	return errors.Join(errs...)
}

// takeBack ends the use of the layers of a sandbox, in which the command may have left marks.
func (p *checkouts) takeBack(box *sandbox) error {
	if len(box.lent) == 0 {
		return nil
	}
	p.returnLayers(box.lent)
	box.lent = nil
	return errors.Join(box.unmark(), box.root.Discard(box.scratch), p.removeLarge())
}

// returnLayers ends the use of layers.
func (p *checkouts) returnLayers(list []*layer) {
	p.layers.mu.Lock()
	defer p.layers.mu.Unlock()
	for _, l := range list {
		if l.users--; l.users == 0 { // now the latest of the list
			if i := slices.Index(p.layers.lent, l.lending); i >= 0 {
				p.layers.lent = append(slices.Delete(p.layers.lent, i, i+1), l.lending)
			}
		}
	}
	p.keepFew()
}

// takeBackAll returns all lendings that are not in use to the checkouts that stay for the next process.
func (p *checkouts) takeBackAll() error {
	p.layers.mu.Lock()
	for _, l := range slices.Clone(p.layers.lent) {
		if l.users == 0 {
			p.retire(l)
		}
	}
	p.layers.mu.Unlock()
	return p.removeLarge()
}
