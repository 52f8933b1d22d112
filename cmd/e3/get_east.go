package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/beast2"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/workspace"
)

// getEast prints or writes a dataset of a workspace of the TypeScript reference.
func getEast(ctx context.Context, a *app, r *repo.Repo, name string, d *workspace.Dataset, o *getOptions) error {
	if d.Kind == record.LeafNode {
		if o.out != "" {
			return usagef("%s holds further datasets; name one of them: e3 list <repo> %s", name, human.Quoted(name))
		}
		return describe(ctx, a, r, name, d)
	}
	v, err := readEast(ctx, r, d)
	if err != nil {
		return fmt.Errorf("dataset %s: %w", name, err)
	}
	if o.out != "" {
		if err := o.target().WriteFile(false, v.write); err != nil {
			return err
		}
		return a.Reply(savedDataset{name, d.Hash, d.Kind.String(), o.out}, func(*render.Sheet) {})
	}
	switch {
	case v.fault != nil:
		return fmt.Errorf("dataset %s: %w; with -o its bytes are written to a file", name, v.fault)
	case v.plain != nil:
		return writeValue(a, name, d.Hash, v.plain)
	case v.copy != nil && a.JSON:
		return describe(ctx, a, r, name, d)
	case v.copy != nil:
		return a.Raw(v.copy)
	}
	notation, err := beast2.ToJSON(v.data)
	if err != nil {
		return fmt.Errorf("dataset %s: %w", name, err)
	}
	if a.JSON {
		return a.Document(shownEast{name, d.Kind.String(), d.Hash, notation}, false)
	}
	return a.Raw(func(w io.Writer) error {
		_, err := w.Write(append(notation, '\n'))
		return err
	})
}

// eastValue is a dataset of the reference.
type eastValue struct {
	plain *value.Value // nil unless it is plain data
	text  []byte       // of plain
	data  []byte       // an East value that is not plain
	copy  func(io.Writer) error
	fault error // why a dataset that should be a value can only be copied
}

// write writes the content of the destination file.
func (v *eastValue) write(w io.Writer) error {
	data := v.data
	switch {
	case v.copy != nil:
		return v.copy(w)
	case v.plain != nil:
		data = v.text
	}
	_, err := w.Write(data)
	return err
}

// readEast reads a dataset. Tasks of the reference may output any bytes; those that are no value can only be copied.
func readEast(ctx context.Context, r *repo.Repo, d *workspace.Dataset) (*eastValue, error) {
	if d.Hash == "" { // null, without an object
		return newEastValue(beast2.Header(beast2.Null))
	}
	h, err := objectstore.ParseHash(d.Hash)
	if err != nil {
		return nil, err
	}
	raw := &eastValue{copy: func(w io.Writer) error {
		_, err := objectstore.CopyChecked(ctx, w, r.Objects, h)
		return err
	}}
	n, err := r.Objects.Stat(ctx, h)
	if err != nil || n > value.MaxBytes {
		raw.fault = fmt.Errorf("it has more than %s", human.Bytes(value.MaxBytes))
		return raw, err
	}
	data, err := objectstore.ReadAll(ctx, r.Objects, h, value.MaxBytes)
	if err != nil || !bytes.HasPrefix(data, []byte(beast2.Magic)) {
		return raw, err
	}
	v, err := newEastValue(data)
	if err != nil {
		raw.fault = err
		return raw, nil
	}
	return v, nil
}

func newEastValue(data []byte) (*eastValue, error) {
	v := &eastValue{data: data}
	plain, err := value.Decode(data)
	if err != nil {
		return nil, err
	}
	if text, err := valueText(plain); err == nil { // an error means that it holds functions, or itself
		v.plain, v.text = plain, text
	}
	return v, nil
}
