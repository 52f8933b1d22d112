package tree

import (
	"path"

	"e3/objectstore"
)

// Around describes a tree that has nothing but one entry, inside one or more folders. The folders are stored nowhere:
// Renew and Checkout make them if CheckoutOptions.Around says so.
type Around struct {
	Root   objectstore.Hash // the tree
	path   string
	levels map[objectstore.Hash]Entries
}

// At returns the tree whose only entry is e, at a path with slashes. It ignores the name of e.
func At(rel string, e Entry) (*Around, error) {
	a := &Around{path: rel, levels: map[objectstore.Hash]Entries{}}
	for {
		e.Name = path.Base(rel)
		data, err := Encode(Entries{e})
		if err != nil {
			return nil, err
		}
		a.Root = objectstore.Sum(data)
		a.levels[a.Root] = Entries{e}
		if rel = path.Dir(rel); rel == "." {
			return a, nil
		}
		e = Entry{Kind: KindDir, Hash: a.Root}
	}
}
