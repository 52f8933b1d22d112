package executions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/beneath"
	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// Bounds of kept checkouts. A search for processes that use a checkout costs as much as writing some hundred files.
const (
	minKeptFiles = 256
	maxIdle      = 4 // with more in this process, even an unlike one is renewed
)

// checkouts keeps checkouts of large folders. A command gets one for itself, by a rename into its sandbox, and may
// write into it. Afterwards the checkout is taken back, and what the command has touched is made anew before the next
// command gets it (tree.Renew). So a folder of which one file has changed costs the comparison of the others, and no
// file is made and deleted for each command: ext4 becomes slow for minutes by that.
//
// An idle checkout lies in the folder of this process, or, between processes, in a folder of this user.
type checkouts struct {
	objects objectstore.Store
	scratch func() (string, error)
	folder  func() (string, error)     // for the next process; nil: there is none
	limit   func() (tree.Usage, error) // what all may take of the disk; nil: the default
	mu      sync.Mutex
	idle    []*checkout // the latest last
	count   int         // made or taken by this process
	sizes   sync.Map    // objectstore.Hash → treeSize
	layers  layers
}

// A checkout is a folder with three entries: tree, the checked-out tree while it is idle; tree.clock, which
// tree.Renew needs; and about, while the checkout belongs to no process.
type checkout struct {
	dir   *beneath.Dir
	label string // of the input that it serves, to find the most similar
	hash  string // of the tree
	kept  *tree.Kept
	info  fs.FileInfo // of tree
	at    string      // where a command has it, below its working directory
	made  bool        // for the present command: nothing of an earlier one was used
}

// treeFolder is the name of the checked-out tree in the checkout's folder.
const treeFolder = "tree"

func (c *checkout) tree() string { return filepath.Join(c.dir.Name(), treeFolder) }

// remove closes the folder and removes it.
func (c *checkout) remove() error {
	c.dir.Close()
	return beneath.Discard(c.dir.Name())
}

// short shortens a hash for a file's name.
func short(h string) string { return h[:min(16, len(h))] }

// A treeSize is the size of a tree. Counting stops at minKeptFiles.
type treeSize struct {
	files int
	bytes int64
}

// size measures a tree.
func (p *checkouts) size(ctx context.Context, h objectstore.Hash) (treeSize, error) {
	if known, ok := p.sizes.Load(h); ok {
		return known.(treeSize), nil
	}
	var size treeSize
	err := tree.Walk(ctx, p.objects, h, func(_ string, e tree.Entry) error {
		if e.Kind != tree.KindDir {
			size.files, size.bytes = size.files+1, size.bytes+e.Size
		}
		if size.files == minKeptFiles {
			return fs.SkipAll
		}
		return nil
	})
	if err == nil {
		p.sizes.Store(h, size)
	}
	return size, err
}

// moveTo puts a checkout of the tree h at dst, a path in a working directory that does not exist yet.
func (p *checkouts) moveTo(ctx context.Context, label string, h objectstore.Hash, work *beneath.Dir, dst string, strips bool) (*checkout, error) {
	c, err := p.checkOut(ctx, short(label), h, tree.CheckoutOptions{Strips: strips})
	if err != nil {
		return nil, err
	}
	c.at = dst
	if c.info, err = c.dir.Lstat(treeFolder); err != nil {
		return nil, err
	}
	if err := c.dir.Rename(treeFolder, work, dst); err != nil {
		return nil, err
	}
	return c, nil
}

// checkOut takes the most similar checkout that no process uses, and renews it to the tree h.
func (p *checkouts) checkOut(ctx context.Context, label string, h objectstore.Hash, o tree.CheckoutOptions) (*checkout, error) {
	c, err := p.pickUnused(label, short(h.String()))
	for err == nil {
		used := c.kept != nil
		c.kept, err = tree.Renew(ctx, p.objects, c.dir, treeFolder, h, c.kept, o)
		if err == nil {
			c.label, c.hash, c.made = label, short(h.String()), !used
			return c, nil
		}
		if !used || ctx.Err() != nil {
			return nil, errors.Join(err, c.remove())
		}
		c, err = p.makeCheckout(label) // it may be damaged
	}
	return nil, err
}

// bound is what all checkouts that are kept may take. One of them may take half of it.
func (p *checkouts) bound() tree.Usage {
	bound, _ := p.setBound() // leaveIdle returns the error
	return bound
}

// setBound is the user's bound, or the default beside an error.
func (p *checkouts) setBound() (tree.Usage, error) {
	if p.limit == nil {
		return DefaultCheckouts, nil
	}
	bound, err := p.limit()
	if err != nil {
		bound = DefaultCheckouts
	}
	return bound, err
}

// giveBack takes a checkout back from a command. As far as the supervisor knows, no process has anything in it open.
func (p *checkouts) giveBack(c *checkout, work *beneath.Dir) {
	info, err := work.Lstat(c.at)
	if err != nil || !info.IsDir() || !beneath.SameFile(info, c.info) || !c.kept.Usage().Within(p.bound().Half()) ||
		work.Rename(c.at, c.dir, treeFolder) != nil {
		c.dir.Close() // removed with this process's folder
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
}

// pickUnused returns the most similar checkout in which no process has anything open, else a new one.
func (p *checkouts) pickUnused(label, hash string) (*checkout, error) {
	p.mu.Lock()
	c := p.pickIdle(label, hash)
	p.mu.Unlock()
	if c == nil {
		c = p.takeStored(label, hash)
	}
	if c != nil {
		dir := c.dir.Name()
		occupied, known := runner.Occupied(filepath.Dir(dir))
		if known && !occupied[filepath.Base(dir)] {
			return c, nil
		}
		c.dir.Close()
	}
	return p.makeCheckout(label)
}

// likeness orders checkouts by what the next Renew has to write.
func likeness(c *checkout, label, hash string) int {
	switch {
	case c.hash == hash:
		return 2
	case c.label == label:
		return 1
	}
	return 0
}

// pickIdle takes an idle checkout out of the list; nil if a new one would be no worse.
func (p *checkouts) pickIdle(label, hash string) *checkout {
	best, found := -1, 0
	for i, c := range p.idle {
		if n := likeness(c, label, hash); n > found {
			best, found = i, n
		}
	}
	if best < 0 && len(p.idle) > maxIdle {
		best = 0
	}
	if best < 0 {
		return nil
	}
	c := p.idle[best]
	p.idle = slices.Delete(p.idle, best, best+1)
	return c
}

// path is where a checkout can lie in this process's folder.
func (p *checkouts) path() (string, error) {
	dir, err := p.scratch()
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	return filepath.Join(dir, "k"+strconv.Itoa(p.count)), nil
}

func (p *checkouts) makeCheckout(label string) (*checkout, error) {
	dir, err := p.path()
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		err = os.Chmod(dir, 0o700) // the folder's group is not inherited
	}
	c := &checkout{label: label}
	if err == nil {
		c.dir, err = openCheckout(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("make checkout: %w", err)
	}
	return c, nil
}

// openCheckout opens the folder of a checkout, in which mounts are foreign.
func openCheckout(path string) (*beneath.Dir, error) {
	d, err := beneath.Open(path)
	if err != nil {
		return nil, err
	}
	return d.Confine(), nil
}

// takeStored takes the most similar checkout of an earlier process; nil if there is none. Anything unexpected is left alone.
func (p *checkouts) takeStored(label, hash string) *checkout {
	folder, err := p.kept()
	if err != nil {
		return nil
	}
	var best storedCheckout
	found := 0
	for _, s := range StoredCheckouts(folder).list() {
		if n := likeness(&checkout{label: s.label, hash: s.hash}, label, hash); n > found {
			best, found = s, n
		}
	}
	if found == 0 {
		return nil
	}
	dir, err := p.path()
	if err != nil || os.Rename(best.path, dir) != nil { // another process was faster
		return nil
	}
	c := &checkout{label: best.label, hash: best.hash}
	if c.dir, err = openCheckout(dir); err != nil {
		return nil
	}
	if !c.describe() {
		c.dir.Close()
		return nil
	}
	return c
}

// describe reads what the process that left the checkout says about it. It returns false if other processes may use it.
func (c *checkout) describe() bool {
	f, _, err := objectstore.OpenFileIn(c.dir, aboutFile)
	if err != nil {
		return false
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return false
	}
	where, text, _ := bytes.Cut(text, []byte{'\n'})
	boot, known := strings.CutPrefix(string(where), hereNow().Name+" ")
	if !known {
		return false // processes of another machine may use it
	}
	if c.kept, err = tree.DecodeKept(text); err != nil {
		return false
	}
	if boot != bootNow() {
		if strings.HasPrefix(boot, hereNow().BootID+" ") {
			return false // processes that this one does not see may use it
		}
		c.kept.Doubt()
	}
	return true
}

// aboutFile describes a checkout that belongs to no process.
const aboutFile = "about"

func hereNow() process.Host { return process.LocalHost() }

// bootNow identifies the processes that this one sees.
func bootNow() string { return hereNow().BootID + " " + hereNow().PIDNamespace }

// kept is the folder for the next process.
func (p *checkouts) kept() (string, error) {
	if p.folder == nil || hereNow().BootID == "" {
		return "", errors.ErrUnsupported
	}
	return p.folder()
}

// leaveIdle leaves the idle checkouts to the next process, and removes what exceeds the bounds.
func (p *checkouts) leaveIdle(now time.Time) error {
	errs := []error{p.takeBackAll()}
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	if len(idle) == 0 {
		return errs[0]
	}
	folder, err := p.kept()
	if err != nil { // there is no next process
		return errs[0]
	}
	bound, err := p.setBound()
	errs = append(errs, err)
	for _, c := range idle {
		dir := c.dir.Name()
		about := append([]byte(hereNow().Name+" "+bootNow()+"\n"), c.kept.Encode()...)
		err := c.dir.RemoveAll(aboutFile)
		if err == nil {
			err = writeFile(c.dir, aboutFile, about)
		}
		c.dir.Close()
		if err == nil {
			err = os.Chtimes(dir, time.Time{}, now)
		}
		if err == nil {
			err = os.Rename(dir, filepath.Join(folder, storedName(c)))
		}
		errs = append(errs, err)
	}
	_, err = StoredCheckouts(folder).Trim(now, bound, false, false)
	return errors.Join(append(errs, err)...)
}

// Rest leaves what the next process can use, after the last request.
func (x *Executor) Rest() error {
	err := x.checkouts.leaveIdle(x.opts.Now())
	if err != nil {
		err = fmt.Errorf("keep checkouts of folders: %w", err)
	}
	if e := x.environments.closeAll(x.opts.Now()); e != nil {
		err = errors.Join(err, e)
	}
	if e := x.images.closeAll(x.opts.Now()); e != nil {
		err = errors.Join(err, fmt.Errorf("keep unpacked images: %w", e))
	}
	return err
}

// stageKept stages a large folder as a checkout of its own. It returns false if the folder must be staged like any
// other input: it is small, or another input or an output lies in it, around it or at its path.
func (b *box) stageKept(ctx context.Context, in record.Input, h objectstore.Hash, rel string) (bool, error) {
	if rel == "." || b.ownsInput(in) || !b.alone(in, rel) { // the folder of an item moves
		return false, nil
	}
	size, err := b.x.checkouts.size(ctx, h)
	if err != nil || size.files < minKeptFiles {
		return false, err
	}
	if err := b.mkdir(filepath.Dir(rel)); err != nil {
		return false, err
	}
	if err := b.clearFolder(rel); err != nil {
		return false, err
	}
	label := objectstore.Sum([]byte(b.req.Workspace + "\x00" + in.Path)).String()
	c, err := b.x.checkouts.moveTo(ctx, label, h, b.work, rel, b.strips)
	if err != nil {
		return false, err
	}
	b.kept = append(b.kept, c)
	if c.made && !b.spec.Room.Closed && !b.x.objects.Shares() {
		b.x.copies.add(h, c.kept.Bytes())
	}
	return true, nil
}

// alone tells whether no other declared path is rel, or below or above it.
func (b *box) alone(in record.Input, rel string) bool {
	within := func(inner, outer string) bool {
		return outer == "." || inner == outer || strings.HasPrefix(inner, outer+string(filepath.Separator))
	}
	apart := func(path string, isDir bool) bool {
		other, err := local(path)
		return err == nil && !within(other, rel) && !(isDir && within(rel, other))
	}
	for _, other := range b.spec.Inputs {
		if other.Name != in.Name && other.Path != "" && !apart(other.Path, other.Kind == record.KindDir) {
			return false
		}
	}
	for _, out := range b.spec.Output.Entries {
		if !apart(out.Path, out.Kind == record.KindDir) {
			return false
		}
	}
	return !within(".e3-values", rel) && !within(rel, ".e3-values")
}
