package reach

import (
	"context"
	"slices"
	"strings"

	"e3/objectstore"
	"e3/objectstore/tree"
)

// linkEntry is an entry through which the path of a link can lead elsewhere: a link, or a directory with links below
// it.
type linkEntry struct {
	name   string
	target string // of a link
	dir    objectstore.Hash
}

// linkList has the link entries of one directory, by name.
type linkList struct{ entries []linkEntry }

// find returns the link entry of a name; nil if the name has no link entry.
func (l *linkList) find(name string) *linkEntry {
	i, found := slices.BinarySearchFunc(l.entries, name, func(e linkEntry, name string) int { return strings.Compare(e.name, name) })
	if !found {
		return nil
	}
	return &l.entries[i]
}

// linkCache holds lists of the directories that links lead through.
type linkCache struct {
	lists   map[objectstore.Hash]*linkList
	entries int   // of all lists
	effort  int64 // steps of links followed, and entries read for them
}

// Bounds of links, for hostile directories; real ones stay far below.
const (
	maxLinks  = 1 << 19 // in one directory object, and in all lists that are held
	maxEffort = 1 << 28 // of a check; some 20 s
	maxHops   = 40      // links that one link leads through, as on Linux
	maxPath   = 64 << 10
)

// linksOf returns the list of a directory.
func (c *DirChecker) linksOf(ctx context.Context, h objectstore.Hash) (*linkList, error) {
	if list := c.index.lists[h]; list != nil {
		return list, nil
	}
	list, err := c.readLinks(ctx, h)
	if err != nil {
		return nil, err
	}
	if c.index.effort > maxEffort {
		return nil, treeFault(".", "its links lead through more directories than can be read")
	}
	if c.index.entries += len(list.entries); c.index.lists == nil || c.index.entries > maxLinks {
		c.index.lists, c.index.entries = map[objectstore.Hash]*linkList{}, len(list.entries)
	}
	c.index.lists[h] = list
	return list, nil
}

// readLinks reads the list of a directory.
func (c *DirChecker) readLinks(ctx context.Context, h objectstore.Hash) (*linkList, error) {
	through := func(e *tree.Entry) bool {
		return e.Kind == tree.KindLink || e.Kind == tree.KindDir && c.known[e.Hash].linked
	}
	list := &linkList{}
	n := 0
	err := c.each(ctx, h, func(e *tree.Entry) {
		c.index.effort++
		if through(e) {
			n++
		}
	})
	if n > maxLinks {
		return nil, treeFault(".", "directory object %s has more than %d links, or directories with links", h, maxLinks)
	}
	if err != nil || n == 0 {
		return list, err
	}
	list.entries = make([]linkEntry, 0, n)
	err = c.each(ctx, h, func(e *tree.Entry) {
		if through(e) && len(list.entries) < n {
			list.entries = append(list.entries, linkEntry{name: strings.Clone(e.Name), target: strings.Clone(e.Target), dir: e.Hash})
		}
	})
	slices.SortFunc(list.entries, func(a, b linkEntry) int { return strings.Compare(a.name, b.name) })
	return list, err
}

// follow follows the rest of a link from the directory h, and reports whether the link climbs out of h: then l has
// the rest to follow from the directory above. fault says what is wrong with the link. A missing entry counts as a
// directory.
func (c *DirChecker) follow(ctx context.Context, h objectstore.Hash, l *climb) (climbs bool, fault string, err error) {
	way := []objectstore.Hash{h} // the zero hash is a directory without links
	for rest := l.rest; rest != ""; {
		if c.index.effort++; c.index.effort > maxEffort {
			return false, "leads through more than can be followed", nil
		}
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			if way = way[:len(way)-1]; len(way) == 0 {
				l.rest = strings.Clone(rest)
				return true, "", nil
			}
			continue
		}
		next, err := c.step(ctx, way[len(way)-1], name)
		switch {
		case err != nil:
			return false, "", err
		case next == nil:
			way = append(way, objectstore.Hash{})
		case next.target == "":
			way = append(way, next.dir)
		default:
			if l.hops++; l.hops > maxHops || len(rest)+len(next.target) > maxPath {
				return false, "leads through too many links", nil
			}
			rest = next.target + "/" + rest
		}
	}
	return false, "", nil
}

// step returns the link entry of a name in a directory.
func (c *DirChecker) step(ctx context.Context, dir objectstore.Hash, name string) (*linkEntry, error) {
	if dir == (objectstore.Hash{}) {
		return nil, nil
	}
	list, err := c.linksOf(ctx, dir)
	if err != nil {
		return nil, err
	}
	return list.find(name), nil
}
