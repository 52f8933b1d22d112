package fs

import (
	"bytes"
	"context"
	"errors"
	iofs "io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"e3/refstore"
)

// The file of an execution's value also holds its side fields, except texts, so that a short and silent execution is
// one file (doc/format.md, "Executions"):
//
//	<value> {<content of a field>} "\ne3with" {" " name "=" length} "\n"
//
// Value and fields then change together. The last line has no sum of its own: the sums of package checked cover all
// that it tells.
const withTag = "\ne3with"

// foldsField reports whether a field is in the value's file. Logs are streams too, and other texts are files for people.
func (p place) foldsField(name string) bool {
	return p.shape == dirShape && !strings.HasSuffix(name, ".txt")
}

// fold returns the content of a file for a value and its fields.
func fold(value []byte, fields []refstore.Field) []byte {
	size := len(value) + len(withTag) + 1
	for _, f := range fields {
		size += len(f.Value) + len(f.Name) + 8
	}
	file := append(make([]byte, 0, size), value...)
	for _, f := range fields {
		file = append(file, f.Value...)
	}
	file = append(file, withTag...)
	for _, f := range fields {
		file = append(append(append(file, ' '), url.QueryEscape(f.Name)...), '=')
		file = strconv.AppendInt(file, int64(len(f.Value)), 10)
	}
	return append(file, '\n')
}

// unfold returns the value and the fields in a file. If it is no such file, because it is damaged, all of it is the
// value.
func unfold(file []byte) (value []byte, fields []refstore.Field) {
	at := bytes.LastIndex(file, []byte(withTag))
	if at < 0 || file[len(file)-1] != '\n' {
		return file, nil
	}
	entries := strings.Fields(string(file[at+len(withTag) : len(file)-1]))
	rest := at
	for _, entry := range slices.Backward(entries) { // the last one ends where the line begins
		name, length, _ := strings.Cut(entry, "=")
		name, bad := url.QueryUnescape(name)
		n, err := strconv.Atoi(length)
		if bad != nil || err != nil || n < 0 || n > rest {
			return file, nil
		}
		fields = append(fields, refstore.Field{Name: name, Value: file[rest-n : rest : rest]})
		rest -= n
	}
	slices.Reverse(fields)
	return file[:rest:rest], fields
}

// fold moves the record's fields that belong into the value's file there. Fields of older that the record does not
// replace stay.
func (w *writer) fold(older []refstore.Field) {
	if w.slot.shape != dirShape {
		return
	}
	var within, apart []refstore.Field
	for _, f := range w.record.Fields {
		if w.slot.foldsField(f.Name) {
			within = append(within, f)
		} else {
			apart = append(apart, f)
		}
	}
	for _, f := range older {
		if !slices.ContainsFunc(within, func(g refstore.Field) bool { return g.Name == f.Name }) {
			within = append(within, f)
		}
	}
	w.record.Value, w.record.Fields = fold(w.record.Value, within), apart
}

// foldOnto is fold for a record that exists. It needs the shard's lock.
func (w *writer) foldOnto() error {
	if w.slot.shape != dirShape {
		return nil
	}
	file, _, err := w.store.files.read(w.slot.value(), false)
	if err != nil {
		return err
	}
	_, older := unfold(file)
	w.fold(older)
	return nil
}

// The folder of an execution appears with its first file, the record or a log, and disappears with its last one: a
// folder is made aside and renamed, or renamed away and removed. So an empty folder means that a record was removed by
// hand; a kill of a process never leaves one. Logs come and go under the lock of their execution's shard.

// emptied reports whether the folder of an execution is there, and is empty.
func (s *files) emptied(sl slot) bool {
	entries, err := s.readDir(sl.path)
	return err == nil && len(entries) == 0 && s.isFolder(sl.path) == nil
}

// executionOf returns the slot of the execution that a log belongs to; false if the stream is no log.
func executionOf(s *Store, log refstore.Key) (sl slot, ok bool, err error) {
	if !strings.HasPrefix(log.Partition, "LOG/") {
		return slot{}, false, nil
	}
	sl, err = s.files.slot(lockOf(log))
	return sl, err == nil, err
}

// makeLog has fill make the file of a log at a path in the execution's folder. If this folder is missing, fill makes
// the file in a new folder, which makeLog then puts there.
func makeLog(ctx context.Context, s *Store, sl slot, path string, fill func(path string) error) error {
	sh, err := s.lockShard(ctx, sl.key)
	if err != nil {
		return err
	}
	defer sh.Close() // nothing was written
	inFolder := func(folder string) error {
		path := folder + strings.TrimPrefix(path, sl.path)
		if sub := filepath.Dir(path); sub != folder {
			if err := s.files.mkdirs(sub); err != nil {
				return err
			}
		}
		return fill(path)
	}
	if entries, err := s.files.readDir(sl.path); err == nil && len(entries) > 0 {
		return inFolder(sl.path)
	}
	return s.aside(func(folder string) error {
		err := s.files.mkdir(folder)
		if err == nil {
			err = inFolder(folder)
		}
		if err == nil {
			err = s.files.inParent(sl.path, func() error { return s.files.rename(folder, sl.path) })
			if errors.Is(err, iofs.ErrExist) { // another process has created the record meanwhile
				err = errors.Join(inFolder(sl.path), s.files.removeAll(folder))
			}
			s.files.unsynced.note(false, filepath.Dir(sl.path))
		}
		if err != nil {
			err = errors.Join(err, s.files.removeAll(folder))
		}
		return err
	})
}

// removeLog removes a log, and the folder of its execution if nothing else is in it.
func removeLog(ctx context.Context, s *Store, sl slot, path string) error {
	sh, err := s.lockShard(ctx, sl.key)
	if err != nil {
		return err
	}
	defer sh.Close() // nothing was written
	if err := s.files.tree.exists(path); err != nil {
		return err
	}
	for folder := filepath.Dir(path); ; folder = filepath.Dir(folder) {
		entries, err := s.files.readDir(folder)
		if err != nil {
			return err
		}
		if len(entries) > 1 {
			break
		}
		if path = folder; folder == sl.path {
			return s.removeDir(path)
		}
	}
	return s.files.removeAll(path)
}
