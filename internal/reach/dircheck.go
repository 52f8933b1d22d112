package reach

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"e3/internal/human"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// A DirChecker checks directories beyond what the objects say by themselves: that no link leads out of the directory,
// that files have the listed sizes, and that directories nest no deeper than e3 can check out. Each directory object
// is read once, and twice more if links that go up lead through it. No tree is held in memory. Absent and unreadable
// parts are not reported: following the references finds them.
//
// A directory is judged by itself: a link in it either stays below it, wherever the directory is, or climbs above it
// (climb). Its parent continues the climb. A link that climbs out of the top directory leads outside.
type DirChecker struct {
	// Size returns the size of an object in bytes, or objectstore.ErrNotFound.
	Size func(ctx context.Context, h objectstore.Hash) (int64, error)
	// Damaged, if it is not nil, is called for a file whose size differs from the size in the directory. It returns
	// true if the file is at fault, which another check then reports.
	Damaged func(ctx context.Context, h objectstore.Hash) bool

	objects objectstore.Store
	limit   int64 // of a directory object that is read, in bytes

	mu     sync.Mutex // held while a directory is checked
	known  map[objectstore.Hash]dirFacts
	climbs map[objectstore.Hash][]climb
	climbN int // number of all climbs
	held   int // number of names of directories on the way down
	index  linkCache
}

// NewDirChecker returns a DirChecker. It skips directory objects of more than limit bytes.
func NewDirChecker(objects objectstore.Store, limit int64, size func(context.Context, objectstore.Hash) (int64, error)) *DirChecker {
	return &DirChecker{
		Size: size, objects: objects, limit: limit,
		known: map[objectstore.Hash]dirFacts{}, climbs: map[objectstore.Hash][]climb{},
	}
}

// dirFacts are the facts about a faultless directory.
type dirFacts struct {
	height uint16 // levels of directories below it
	linked bool   // there are links in it or below
}

// steep reports whether a link goes up anywhere. Other links need not be followed: they can lead outside only through
// a steep link.
func steep(target string) bool {
	for name := range strings.SplitSeq(target, "/") {
		if name == ".." {
			return true
		}
	}
	return false
}

// A climb is a link that leads above a directory.
type climb struct {
	from string // the link
	to   string // its target, for messages
	rest string // the rest to follow from the directory above
	hops int    // links that it has led through
}

// Bounds for hostile directories.
const (
	maxHeld   = 1 << 20 // names on the way down, without those of the directory in hand
	maxClimbs = 1 << 21
)

// Check checks a directory as the top of a tree. A fault of the directory is a *tree.Error; any other error is the
// store's.
func (c *DirChecker) Check(ctx context.Context, h objectstore.Hash) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.visit(ctx, h, "", 0); err != nil {
		return err
	}
	for _, out := range c.climbs[h] {
		return treeFault(out.from, "the link points to %q, outside the directory", human.Truncate(out.to, maxShown))
	}
	return nil
}

// maxShown bounds a path in a message: a hostile one may be very long.
const maxShown = 200

func treeFault(at, format string, args ...any) error {
	return &tree.Error{Path: human.Truncate(at, maxShown), Msg: fmt.Sprintf(format, args...)}
}

// named is a directory in another.
type named struct {
	name string
	hash objectstore.Hash
}

// visit checks a directory and everything below it.
func (c *DirChecker) visit(ctx context.Context, h objectstore.Hash, rel string, depth int) (dirFacts, error) {
	if facts, known := c.known[h]; known {
		return facts, nil
	}
	if depth > tree.MaxDepth {
		return dirFacts{}, tooDeep(rel)
	}
	var facts dirFacts
	below, follow, err := c.entries(ctx, h, &facts)
	if err != nil {
		return facts, err
	}
	c.held += len(below)
	defer func() { c.held -= len(below) }()
	if c.held > max(maxHeld, len(below)) {
		return facts, treeFault(orTop(rel), "there are too many directories on the way to it")
	}
	for _, d := range below {
		child, err := c.visit(ctx, d.hash, path.Join(rel, d.name), depth+1)
		if err != nil {
			return facts, err
		}
		facts.add(child)
		follow = follow || len(c.climbs[d.hash]) > 0
	}
	if facts.height > tree.MaxDepth { // the excess lies below a directory that was checked before
		return facts, tooDeep(rel)
	}
	if follow {
		if err := c.links(ctx, h, rel); err != nil {
			return facts, err
		}
	}
	c.known[h] = facts
	return facts, nil
}

func tooDeep(rel string) error {
	return treeFault(orTop(rel), "directories nest deeper than %d levels", tree.MaxDepth)
}

func orTop(rel string) string {
	if rel == "" {
		return "."
	}
	return rel
}

func (f *dirFacts) add(below dirFacts) {
	f.height = max(f.height, below.height+1)
	f.linked = f.linked || below.linked
}

// entries returns the subdirectories that are not checked yet, and whether there are links to follow.
func (c *DirChecker) entries(ctx context.Context, h objectstore.Hash, facts *dirFacts) (below []named, follow bool, err error) {
	err = c.each(ctx, h, func(e *tree.Entry) {
		switch e.Kind {
		case tree.KindLink:
			facts.linked, follow = true, follow || steep(e.Target)
		case tree.KindDir:
			if child, known := c.known[e.Hash]; known {
				facts.add(child)
				follow = follow || len(c.climbs[e.Hash]) > 0
			} else {
				below = append(below, named{strings.Clone(e.Name), e.Hash})
			}
		}
	})
	return below, follow, err
}

// each yields the entries of a directory that can be read.
func (c *DirChecker) each(ctx context.Context, h objectstore.Hash, visit func(*tree.Entry)) error {
	data, err := objectstore.ReadAll(ctx, c.objects, h, c.limit)
	if damaged(err) || errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	_ = tree.EachEntry(data, visit) // decoding errors are reported elsewhere
	return ctx.Err()
}

// file compares the size of a file with the size in the directory. An absent file is reported elsewhere.
func (c *DirChecker) file(ctx context.Context, f *Child, size int64) error {
	if size == f.size || c.Damaged != nil && c.Damaged(ctx, f.Hash) {
		return nil
	}
	return treeFault(f.Name, "the size is said to be %d, and the file has %d bytes", f.size, size)
}

// links follows the links of a directory, and the links that climb out of its subdirectories.
func (c *DirChecker) links(ctx context.Context, h objectstore.Hash, rel string) error {
	list, err := c.linksOf(ctx, h)
	if err != nil {
		return err
	}
	var out []climb
	met := map[objectstore.Hash]bool{} // a climb does not depend on the subdirectory's name
	take := func(l climb) error {
		climbs, fault, err := c.follow(ctx, h, &l)
		switch {
		case err != nil:
			return err
		case fault != "":
			return treeFault(path.Join(rel, l.from), "the link points to %q, which %s", human.Truncate(l.to, maxShown), fault)
		case climbs:
			if c.climbN++; c.climbN > maxClimbs {
				return treeFault(orTop(rel), "more than %d links lead out of directories that are in others", maxClimbs)
			}
			out = append(out, l)
		}
		return ctx.Err()
	}
	for i := range list.entries {
		e := &list.entries[i]
		if e.target != "" {
			if !steep(e.target) {
				continue
			}
			if err := take(climb{from: e.name, to: e.target, rest: e.target, hops: 1}); err != nil {
				return err
			}
			continue
		}
		if met[e.dir] {
			continue
		}
		met[e.dir] = len(c.climbs[e.dir]) > 0
		for _, up := range c.climbs[e.dir] {
			up.from = path.Join(e.name, up.from)
			if err := take(up); err != nil {
				return err
			}
		}
	}
	if len(out) > 0 {
		c.climbs[h] = out
	}
	return nil
}
