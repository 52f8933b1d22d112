package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/testing/testserver"
)

// harmed is a repository that is damaged and restored.
type harmed interface {
	location() string
	init() []string
	save(testing.TB)
	restore(testing.TB)
	targets() []target // everything that can be damaged, in its saved state
}

// A target is a file, an object in S3, or an attribute of an item.
type target struct {
	name  string
	class string // each class is damaged equally often
	data  []byte
	// write replaces the content; remove removes the target, or for an attribute its item. seal removes the write bits
	// of a file.
	write  func(data []byte) error
	remove func() error
	seal   func() error
	number bool   // it must have only digits
	least  int    // minimum number of bytes
	folder bool   // it is a folder, and can only be removed
	other  []byte // of a log: another log, that may be put in its place or behind it
}

// harm damages a target and describes the damage.
func (g *target) harm(r *rand.Rand) (string, error) {
	kind := r.IntN(20)
	switch {
	case g.folder:
		return "remove the folder", g.remove()
	case g.other != nil && kind < 14 && len(g.data) > 0:
		return g.harmLog(r)
	case g.seal != nil && kind == 0:
		return "lose its write bits", g.seal()
	case kind < 6 || len(g.data) == 0:
		return "remove", g.remove()
	case g.number:
		data := bytes.Clone(g.data)
		at := r.IntN(len(data))
		data[at] = '1' + (data[at]-'0'+byte(r.IntN(8)))%9
		return fmt.Sprintf("%s becomes %s", g.data, data), g.write(data)
	case kind < 9 && len(g.data) > 1:
		n := r.IntN(len(g.data)-1) + g.least
		return fmt.Sprintf("cut to %d of %d bytes", n, len(g.data)), g.write(g.data[:n])
	}
	at, flip := r.IntN(len(g.data)), byte(1+r.IntN(255))
	data := bytes.Clone(g.data)
	data[at] ^= flip
	return fmt.Sprintf("byte %d of %d: %02x becomes %02x", at, len(data), g.data[at], data[at]), g.write(data)
}

// harmLog damages a log of events as a whole: it loses lines, or others take their place.
func (g *target) harmLog(r *rand.Rand) (string, error) {
	lines := bytes.SplitAfter(bytes.TrimSuffix(g.data, []byte("\n")), []byte("\n"))
	switch r.IntN(6) {
	case 0:
		return "lose the last byte", g.write(g.data[:len(g.data)-1])
	case 1:
		n := r.IntN(len(lines))
		return fmt.Sprintf("cut to %d of %d lines", n, len(lines)), g.write(bytes.Join(lines[:n], nil))
	case 2:
		return "become empty", g.write(nil)
	case 3:
		return "be continued by another log", g.write(append(bytes.Clone(g.data), g.other...))
	case 4:
		return "be continued by its last line", g.write(append(append(bytes.Clone(g.data), lines[len(lines)-1]...), '\n'))
	}
	return "be replaced by another log", g.write(g.other)
}

// harmedFolders are a repository's folders on this machine.
type harmedFolders struct {
	at    string
	roots []string
	saved *savedFolders
}

func (f *harmedFolders) location() string     { return f.at }
func (f *harmedFolders) init() []string       { return []string{f.at} }
func (f *harmedFolders) save(t testing.TB)    { f.saved = saveFolders(t, f.roots...) }
func (f *harmedFolders) restore(t testing.TB) { f.saved.restore(t) }

func (f *harmedFolders) targets() []target {
	var list []target
	logs := map[string][]byte{} // one of each folder
	for _, path := range slices.Sorted(maps.Keys(f.saved.files)) {
		file := f.saved.files[path]
		if strings.Contains(path, "/scratch/") || filepath.Base(path) == "tidied" { // folders of failed commands come back with the rest
			continue
		}
		var root string
		for _, root = range f.roots {
			if strings.HasPrefix(path, root+"/") {
				break
			}
		}
		rel, _ := filepath.Rel(root, path)
		top, _, _ := strings.Cut(rel, "/")
		// Nothing else tells of a registered package, or of a pin, whose folder is removed with its witness.
		if file.info.IsDir() && slices.Contains([]string{"executions", "events", "objects", "workspaces", "dataflows", "journals"}, top) {
			list = append(list, target{
				name: filepath.Base(root) + "/" + rel + "/", class: "folder " + top, folder: true,
				remove: func() error { return os.RemoveAll(path) },
			})
		}
		if !file.info.Mode().IsRegular() {
			continue
		}
		var other []byte
		if top == "events" {
			if other = logs[filepath.Dir(path)]; other == nil {
				logs[filepath.Dir(path)] = file.data
			}
		}
		list = append(list, target{
			other: other,
			name:  filepath.Base(root) + "/" + rel, class: fileClass(rel), data: file.data,
			write:  func(data []byte) error { return rewrite(path, data, file.info) },
			remove: func() error { return os.Remove(path) },
			seal:   func() error { return os.Chmod(path, 0o444) },
		})
	}
	return list
}

// rewrite replaces the content of a file. The file may keep its time, as after damage by a disk.
func rewrite(path string, data []byte, info fs.FileInfo) error {
	return errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, data, 0o644), os.Chmod(path, info.Mode().Perm()), os.Chtimes(path, info.ModTime(), info.ModTime()))
}

// fileClass is the class of a file by its path.
func fileClass(rel string) string {
	parts := strings.Split(rel, "/")
	switch parts[0] {
	case "executions":
		return "executions " + parts[len(parts)-1]
	case "index", "locks", "queue":
		return strings.Join(parts[:min(2, len(parts)-1)], "/")
	}
	return parts[0]
}

// harmedBucket is a folder whose objects are in S3.
type harmedBucket struct {
	harmedFolders
	bucket *testserver.Bucket
	saved3 map[string][]byte
	args   []string
}

func (b *harmedBucket) init() []string { return b.args }

func (b *harmedBucket) save(t testing.TB) {
	b.harmedFolders.save(t)
	var err error
	if b.saved3, err = b.bucket.Objects(); err != nil {
		t.Fatal(err)
	}
}

func (b *harmedBucket) restore(t testing.TB) {
	b.harmedFolders.restore(t)
	if err := b.bucket.Reset(b.saved3); err != nil {
		t.Fatal(err)
	}
}

func (b *harmedBucket) targets() []target {
	list := b.harmedFolders.targets()
	for _, name := range slices.Sorted(maps.Keys(b.saved3)) {
		class := "S3 objects"
		if parts := strings.Split(name, "/"); !slices.Contains(parts, "objects") {
			class = "S3 " + parts[min(3, len(parts)-1)]
		}
		list = append(list, target{
			name: "s3://" + name, class: class, data: b.saved3[name],
			write:  func(data []byte) error { return b.bucket.Put(name, data) },
			remove: func() error { return b.bucket.Remove(name) },
		})
	}
	return list
}

// harmedTables is a repository in DynamoDB and S3.
type harmedTables struct {
	harmedBucket
	tables *testserver.Tables
	items  map[string][]testserver.Item
}

func (d *harmedTables) save(t testing.TB) {
	d.harmedBucket.save(t)
	d.items = map[string][]testserver.Item{}
	for _, name := range d.tables.Names() {
		var err error
		if d.items[name], err = d.tables.Items(name); err != nil {
			t.Fatal(err)
		}
	}
}

func (d *harmedTables) restore(t testing.TB) {
	d.harmedBucket.restore(t)
	if err := d.tables.Reset(d.items); err != nil {
		t.Fatal(err)
	}
}

func (d *harmedTables) targets() []target {
	list := d.harmedBucket.targets()
	for _, table := range slices.Sorted(maps.Keys(d.items)) {
		for _, item := range d.items[table] {
			for _, name := range slices.Sorted(maps.Keys(item)) {
				for kind, value := range item[name] {
					if g, ok := d.attribute(table, item, name, kind, value); ok {
						list = append(list, g)
					}
				}
			}
		}
	}
	return list
}

// attribute makes a target of an attribute of an item; key attributes cannot be changed.
func (d *harmedTables) attribute(table string, item testserver.Item, name, kind string, value any) (target, bool) {
	pk := fmt.Sprint(item["PK"]["S"])
	class, _, _ := strings.Cut(pk, "/")
	g := target{
		name: fmt.Sprintf("%s · %s · %s", pk, item["SK"]["S"], name), class: class + " " + name,
		remove: func() error { return d.tables.Remove(table, item) },
	}
	text, ok := value.(string)
	if !ok || name == "PK" || name == "SK" {
		return g, name == "v" // for an item without a value, this target is its removal
	}
	g.data, g.number, g.least = []byte(text), kind == "N", 1
	encode := func(data []byte) string { return string(data) }
	if kind == "B" {
		g.data, _ = base64.StdEncoding.DecodeString(text)
		encode = base64.StdEncoding.EncodeToString
	}
	g.write = func(data []byte) error {
		changed := maps.Clone(item)
		changed[name] = map[string]any{kind: encode(data)}
		return d.tables.Put(table, changed)
	}
	return g, true
}

// harmedKind makes a repository of one of the three kinds.
func harmedKind(t *testing.T, kind, work string) (harmed, map[string]string) {
	env := map[string]string{"USER": "tester", "HOME": work, "E3_CACHE_DIR": filepath.Join(work, ".cache"), "E3_STATE_DIR": filepath.Join(work, ".state")}
	folders := harmedFolders{at: work, roots: []string{filepath.Join(work, ".e3"), env["E3_CACHE_DIR"]}}
	if kind == "folder" {
		return &folders, env
	}
	bucket := testserver.NewBucket(t)
	query := url.Values{"endpoint": {bucket.URL}, "region": {testserver.Region}}
	in := harmedBucket{harmedFolders: folders, bucket: bucket, args: []string{work, "--objects", "s3://e3-objects/harm?" + query.Encode()}}
	if kind == "objects" {
		return &in, env
	}
	tables := testserver.NewTables(t)
	query = url.Values{"endpoint": {tables.URL}, "region": {testserver.Region}, "lease": {"2m"}}
	root := "dynamodb://harm/main"
	in.at, in.roots = root+"?"+query.Encode(), []string{env["E3_CACHE_DIR"], env["E3_STATE_DIR"]}
	query.Set("bucket", "e3-shared")
	query.Set("s3-endpoint", bucket.URL)
	in.args = []string{root + "?" + query.Encode()}
	return &harmedTables{harmedBucket: in, tables: tables}, env
}
