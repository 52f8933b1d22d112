package compare

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"e3/internal/format/record"
	"e3/internal/insight/figures"
	"e3/internal/parallel"
	"e3/objectstore"
)

// Bounds of files that are read into memory.
const (
	maxMetrics = 4 << 20 // bytes
	maxFiles   = 200     // of one view
)

// A viewed is a file that a view selects, or the reason why there is none.
type viewed struct {
	*record.View
	figures.File
	lost string // "": it is there
}

// file is the path of the file in an output that is a directory; "" if the output is the file.
func (v *viewed) file() string {
	if v.Inner {
		return v.File.Path
	}
	return ""
}

// name names the file beside others of its task.
func (v *viewed) name() string {
	if v.Inner {
		return path.Join(v.Entry, v.File.Path)
	}
	return cmp.Or(v.File.Path, v.View.Path)
}

// A viewedOf is a file of a task.
type viewedOf struct {
	task string // with its label
	viewed
}

// views finds the files of a side that its package marks as of a kind, in the order of its tasks.
func (d *side) views(ctx context.Context, kind record.ViewKind) ([]viewedOf, error) {
	if d.pkg == nil {
		return nil, nil
	}
	var all []viewedOf // at first one for each view
	for i := range d.pkg.Tasks {
		t := &d.pkg.Tasks[i]
		for k := range t.Policy.Views {
			if v := &t.Policy.Views[k]; v.Kind == kind {
				all = append(all, viewedOf{t.Name, viewed{View: v}})
			}
		}
	}
	files := make([][]viewed, len(all))
	err := parallel.Each(ctx, len(all), func(ctx context.Context, i int) (err error) {
		at := &all[i]
		files[i], err = find(ctx, d.objects, at.View, d.outputs.leaves[at.task])
		if err == nil && len(files[i]) == 0 {
			at.lost = fmt.Sprintf("there is no %s", cmp.Or(at.View.Path, "file"))
			files[i] = []viewed{at.viewed}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var list []viewedOf
	for i := range all {
		for _, f := range files[i] {
			list = append(list, viewedOf{all[i].task, f})
		}
	}
	return list, nil
}

// find finds the files that a view selects in an output.
func find(ctx context.Context, objects objectstore.Store, v *record.View, output record.Leaf) ([]viewed, error) {
	if output.Kind == record.LeafUnassigned || output.Hash == "" {
		return []viewed{{View: v, lost: "it has no output"}}, nil
	}
	h, err := objectstore.ParseHash(output.Hash)
	if err != nil {
		return nil, err
	}
	files, more, err := figures.Find(ctx, objects, v, h, output.Kind == record.LeafDir, maxFiles)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return []viewed{{View: v, lost: "an output is no longer here"}}, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	list := make([]viewed, len(files))
	for i, f := range files {
		list[i] = viewed{View: v, File: f}
	}
	if more {
		list = append(list, viewed{View: v, lost: fmt.Sprintf("of %s only the first %d files are read", v, maxFiles)})
	}
	return list, nil
}

// read returns the bytes of the file; lost says why it has none.
func (v *viewed) read(ctx context.Context, objects objectstore.Store) ([]byte, error) {
	if v.lost != "" || v.View == nil {
		return nil, nil
	}
	data, err := objectstore.ReadAll(ctx, objects, v.Hash, maxMetrics)
	var large *objectstore.TooLargeError
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		v.lost = "an output is no longer here"
	case errors.As(err, &large):
		v.lost = fmt.Sprintf("it is larger than %d MiB", maxMetrics>>20)
	default:
		return data, err
	}
	return nil, nil
}

// values returns the metrics of the file by their keys; lost says why there are none. A side without the file has no values.
func (v *viewed) values(ctx context.Context, objects objectstore.Store) (map[string]json.RawMessage, error) {
	values := map[string]json.RawMessage{}
	data, err := v.read(ctx, objects)
	if err != nil || v.lost != "" || v.View == nil {
		return values, err
	}
	doc, err := figures.Read(v.File.Path, data)
	var list []figures.Value
	if err == nil {
		list, err = doc.Values(false)
	}
	if err != nil {
		v.lost = err.Error()
		return values, nil
	}
	for _, m := range list {
		values[m.Key] = m.JSON
	}
	return values, nil
}
