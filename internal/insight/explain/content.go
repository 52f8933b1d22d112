package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/human"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// maxValue bounds the bytes of a value that are read, maxValueChanges the changed parts that are listed.
const (
	maxValue        = 1 << 20
	maxValueChanges = 5
)

// change finds out how the content of an input at a path differs. Content that cannot be read is stated in the change
// and is not an error.
func (x *evidence) change(kind record.Kind, path string, was, is objectstore.Hash) (*ContentChange, error) {
	switch kind {
	case record.KindDir:
		return x.dirChange(was, is)
	case record.KindValue:
		return x.valueChange(was, is)
	}
	c := &ContentChange{}
	var err error
	if c.WasSize, err = x.size(was); err != nil {
		return nil, err
	}
	if c.IsSize, err = x.size(is); err != nil {
		return nil, err
	}
	switch {
	case c.WasSize == nil:
		c.Gone = "the old content is no longer here: only its hash is known"
	case c.IsSize == nil:
		c.Gone = "the new content is not here: only its hash is known"
	case manifest.HoldsValues(path) && max(*c.WasSize, *c.IsSize) <= maxValue:
		a, errA := x.written(path, was)
		b, errB := x.written(path, is)
		if errA == nil && errB == nil { // else it is a file like any other
			diffValues("", a, b, c, 0)
		}
	}
	return c, nil
}

// written reads the value in a file.
func (x *evidence) written(path string, h objectstore.Hash) (any, error) {
	data, err := objectstore.ReadAll(x.ctx, x.objects(), h, maxValue)
	if err != nil {
		return nil, err
	}
	v, err := manifest.ParseValue(path, data)
	if err != nil {
		return nil, err
	}
	return plainJSON(manifest.AppendJSON(nil, v))
}

// size returns nil if the object is not here.
func (x *evidence) size(h objectstore.Hash) (*int64, error) {
	n, err := x.objects().Stat(x.ctx, h)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &n, nil
}

// objects returns the store of objects. For a question about the next start it also holds the objects that the start
// would store.
func (x *evidence) objects() Objects {
	if x.next != nil {
		return x.next.Objects
	}
	return x.Stores.Objects
}

func (x *evidence) dirChange(was, is objectstore.Hash) (*ContentChange, error) {
	c := &ContentChange{}
	for d, err := range tree.Diff(x.ctx, x.objects(), was, is) {
		if err != nil {
			if x.ctx.Err() != nil {
				return nil, context.Cause(x.ctx)
			}
			c.Gone = "some of its directories are no longer here: what changed in them is not known"
			if len(c.Files) == 0 {
				c.Gone = "one of the two directories is no longer here: what changed in it is not known"
			}
			break
		}
		if c.Count++; len(c.Files) < maxFiles {
			c.Files = append(c.Files, fileChange(&d))
		}
		if c.Count == maxCounted {
			break
		}
	}
	return c, nil
}

func fileChange(d *tree.Change) FileEdit {
	f := FileEdit{Path: d.Path}
	switch {
	case d.Was == nil:
		f.How, f.IsSize, f.IsDir = "added", d.Is.Size, d.Is.Kind == tree.KindDir
		return f
	case d.Is == nil:
		f.How, f.WasSize, f.IsDir = "removed", d.Was.Size, d.Was.Kind == tree.KindDir
		return f
	}
	f.How, f.WasSize, f.IsSize = "changed", d.Was.Size, d.Is.Size
	a, b := d.Was, d.Is
	switch {
	case a.Kind != b.Kind:
		f.How = [...]string{tree.KindDir: "a directory", tree.KindFile: "a file", tree.KindLink: "a link"}[b.Kind] + " now"
	case a.Kind == tree.KindFile && a.Hash == b.Hash && a.Executable != b.Executable:
		if f.How = "not executable any more"; b.Executable {
			f.How = "executable now"
		}
	}
	return f
}

// valueChange compares two values part by part.
func (x *evidence) valueChange(was, is objectstore.Hash) (*ContentChange, error) {
	a, errA := x.value(was)
	b, errB := x.value(is)
	if x.ctx.Err() != nil {
		return nil, context.Cause(x.ctx)
	}
	c := &ContentChange{}
	switch {
	case errA != nil:
		c.Gone = "the old value cannot be shown: " + errA.Error()
	case errB != nil:
		c.Gone = "the new value cannot be shown: " + errB.Error()
	default:
		diffValues("", a, b, c, 0)
		if c.Count == 0 {
			c.Gone = "the values differ in their type only"
		}
	}
	return c, nil
}

func (x *evidence) value(h objectstore.Hash) (any, error) {
	data, err := objectstore.ReadAll(x.ctx, x.objects(), h, maxValue)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, errors.New("it is not here")
	}
	if err != nil {
		return nil, err
	}
	v, err := value.Decode(data)
	if err != nil {
		return nil, err
	}
	text, err := v.JSON()
	if err != nil {
		return nil, err
	}
	if len(text) > 4*maxValue {
		return nil, fmt.Errorf("it has %s", human.Bytes(int64(len(text))))
	}
	return plainJSON(text)
}

// plainJSON reads JSON with numbers as they are written.
func plainJSON(text []byte) (plain any, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	err = dec.Decode(&plain)
	return plain, err
}

// diffValues walks two values together down to maxDepth levels; deeper levels are compared as text.
func diffValues(path string, a, b any, c *ContentChange, depth int) {
	if depth < maxDepth {
		switch a := a.(type) {
		case []any:
			if b, ok := b.([]any); ok {
				diffLists(path, a, b, c, depth)
				return
			}
		case map[string]any:
			if b, ok := b.(map[string]any); ok {
				diffObjects(path, a, b, c, depth)
				return
			}
		}
	}
	if was, is := jsonText(a), jsonText(b); was != is {
		was, is = truncateBoth(was, is, 60)
		c.addValue(path, was, is)
	}
}

func diffLists(path string, a, b []any, c *ContentChange, depth int) {
	for i := range max(len(a), len(b)) {
		at := path + "[" + strconv.Itoa(i) + "]"
		switch {
		case i >= len(a):
			c.addValue(at, "", truncate(jsonText(b[i]), 60))
		case i >= len(b):
			c.addValue(at, truncate(jsonText(a[i]), 60), "")
		default:
			diffValues(at, a[i], b[i], c, depth+1)
		}
	}
}

func diffObjects(path string, a, b map[string]any, c *ContentChange, depth int) {
	names := slices.Collect(maps.Keys(a))
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		at := name
		if path != "" {
			at = path + "." + name
		}
		was, had := a[name]
		is, has := b[name]
		switch {
		case !had:
			c.addValue(at, "", truncate(jsonText(is), 60))
		case !has:
			c.addValue(at, truncate(jsonText(was), 60), "")
		default:
			diffValues(at, was, is, c, depth+1)
		}
	}
}

func (c *ContentChange) addValue(path, was, is string) {
	if c.Count++; len(c.Values) < maxValueChanges {
		c.Values = append(c.Values, ValueChange{Path: path, Was: was, Is: is})
	}
}

func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
