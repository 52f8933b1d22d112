package reach

import (
	"context"
	"slices"
	"strings"

	"e3/objectstore"
)

// linkEntry is an entry of a directory that a link can lead through to where its path does not say: a link, or a directory with links
// below it.
type linkEntry struct {
	name   string
	target string // of a link
	dir    objectstore.Hash
}

// linkList are those of one directory, by name.
type linkList struct{ entries []linkEntry }

// find returns the entry of a name; nil is something else, or nothing.
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
	effort  int64 // steps that links were followed, and entries that were read for that
}

// Bounds of links: no file system has such directories, and somebody may have made them to be waited for.
const (
	maxLinks  = 1 << 19 // in one directory object, and in all lists that are held
	maxEffort = 1 << 28 // of a check; some 20 s
	maxHops   = 40      // links that one leads through, as Linux has it
	maxPath   = 64 << 10
)

// linksOf returns the list of a directory whose content is known.
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
	through := func(e *objectstore.TreeEntry) bool {
		return e.Kind == objectstore.KindLink || e.Kind == objectstore.KindDir && c.known[e.Hash].linked
	}
	list := &linkList{}
	n := 0
	err := c.each(ctx, h, func(e *objectstore.TreeEntry) {
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
	err = c.each(ctx, h, func(e *objectstore.TreeEntry) {
		if through(e) && len(list.entries) < n {
			list.entries = append(list.entries, linkEntry{name: strings.Clone(e.Name), target: strings.Clone(e.Target), dir: e.Hash})
		}
	})
	slices.SortFunc(list.entries, func(a, b linkEntry) int { return strings.Compare(a.name, b.name) })
	return list, err
}

// follow follows what is left of a link from the directory h, and tells whether that leads out of it: then l has what is left to follow
// from the directory above. A fault is what is wrong with it, in words. What is not there is taken for a directory.
func (c *DirChecker) follow(ctx context.Context, h objectstore.Hash, l *climb) (climbs bool, fault string, err error) {
	way := []objectstore.Hash{h} // the zero hash is a directory in which no link is met
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

// step returns what a name in a directory is to a link that leads through it.
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
