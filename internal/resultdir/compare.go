package resultdir

import (
	"context"
	"errors"
	"io/fs"
)

// A Comparison says how files in a folder stand to outputs. Paths are in the folder, with slashes.
type Comparison struct {
	Same      int      `json:"same"` // files
	Different []string `json:"different"`
	Absent    []string `json:"absent"`
	Unmade    []string `json:"unmade"` // outputs without a result
}

// Compare compares the files in the folder with the items, and changes nothing. Whether a file may be executed does not
// count.
func (f *Folder) Compare(ctx context.Context, items []Item) (*Comparison, error) {
	wants, err := f.flatten(ctx, items)
	if err != nil {
		return nil, err
	}
	c := &Comparison{Different: []string{}, Absent: []string{}, Unmade: []string{}}
	w := &writer{Folder: f}
	for i := range wants {
		p := wants[i].path
		info, err := f.Root.Lstat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist) || isInTheWay(err):
			c.Absent = append(c.Absent, p)
			continue
		case err != nil: // a link on the way leads out
			c.Different = append(c.Different, p)
			continue
		}
		is, _, err := w.look(ctx, p, info)
		if err != nil {
			return nil, err
		}
		if is.known && is.kind.sameForm(wants[i].kind) && (is.kind == aFolder || is.hash == wants[i].hash) {
			c.Same++
		} else {
			c.Different = append(c.Different, p)
		}
	}
	return c, nil
}
