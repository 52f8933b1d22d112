package tree

import (
	"path"

	"e3/objectstore"
)

// Around describes a tree that has nothing but one entry, some folders down. The folders are stored nowhere: Renew and Checkout
// make them if CheckoutOptions.Around says so.
type Around struct {
	Root   objectstore.Hash // the tree
	path   string
	levels map[objectstore.Hash]Entries
}

// At returns the tree that has e alone, at a path with slashes. The name of e does not count.
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
