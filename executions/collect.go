package executions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"e3/internal/format/record"
	"e3/internal/host/beneath"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// An OutputError says that a command exited with 0 but did not produce a declared output.
type OutputError struct {
	Name string // of the output
	Path string
	Want string // what was expected
	Got  string // what was found
}

func (e *OutputError) Error() string {
	return fmt.Sprintf("output %s: expected a %s at %q, found %s", e.Name, e.Want, e.Path, e.Got)
}

// collect stores the declared outputs and returns the dataset that they form: one output as it is, several as a
// directory with an entry for each.
func (b *box) collect(ctx context.Context) (objectstore.Info, error) {
	out := b.spec.Output
	if b.req.Job.Identity != "" { // another process may have to finish the execution
		var err error
		if ctx, err = b.keepJournal(ctx); err != nil {
			return objectstore.Info{}, fmt.Errorf("store outputs: %w", err)
		}
	}
	if !out.Multi {
		e, err := b.collectEntry(ctx, out.Entries[0])
		return objectstore.Info{Hash: e.Hash, Size: e.Size}, err
	}
	entries := make(tree.Entries, 0, len(out.Entries))
	for _, entry := range out.Entries {
		e, err := b.collectEntry(ctx, entry)
		if err != nil {
			return objectstore.Info{}, err
		}
		entries = append(entries, e)
	}
	entries.Sort()
	data, err := tree.Encode(entries)
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("store outputs: %w", err)
	}
	h, err := objectstore.PutBytes(ctx, b.x.objects, data)
	return objectstore.Info{Hash: h, Size: int64(len(data))}, err
}

func (b *box) collectEntry(ctx context.Context, out record.OutputEntry) (tree.Entry, error) {
	entry := tree.Entry{Name: out.Name, Kind: tree.KindFile, Executable: out.Kind == record.KindExecutable}
	rel := filepath.FromSlash(out.Path)
	bad := &OutputError{Name: out.Name, Path: out.Path, Want: out.Kind.String()}
	if b.replaced {
		bad.Got = "another working directory: the command has moved its own away, or mounted something over it"
		return entry, bad
	}
	info, err := b.work.Lstat(rel)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		bad.Got = "nothing" + b.writtenInstead()
		return entry, bad
	case err != nil:
		return entry, b.storeError(bad, err)
	case out.Kind == record.KindDir && !info.IsDir(), out.Kind != record.KindDir && !info.Mode().IsRegular():
		bad.Got = describe(info.Mode())
		return entry, bad
	}
	if out.Kind == record.KindDir {
		entry.Kind = tree.KindDir
		dir, err := b.work.Sub(rel)
		if err != nil {
			return entry, b.storeError(bad, err)
		}
		h, _, err := tree.PutDir(ctx, b.x.objects, dir, tree.PutOptions{Adopt: true})
		if err != nil {
			return entry, b.storeError(bad, err)
		}
		entry.Hash = h
		entry.Size, err = b.x.objects.Stat(ctx, h)
		return entry, err
	}
	if out.Kind == record.KindFile && info.Mode()&0o111 != 0 && b.spec.Output.Multi {
		entry.Executable = true
	}
	stored, err := b.x.objects.Adopt(ctx, b.work, rel)
	if err != nil {
		return entry, b.storeError(bad, err)
	}
	entry.Hash, entry.Size = stored.Hash, stored.Size
	return entry, nil
}

// storeError completes bad if the command's files are to blame for err. Any other error is a fault of the store.
func (b *box) storeError(bad *OutputError, err error) error {
	var malformed *tree.Error
	var special *objectstore.SpecialFileError
	var changed *objectstore.ChangedError
	var path *fs.PathError
	switch {
	case errors.As(err, &malformed):
		bad.Got = fmt.Sprintf("%q in it, which cannot be kept: %s", malformed.Path, malformed.Msg)
	case errors.As(err, &special):
		bad.Got = fmt.Sprintf("%s at %q", describe(special.Mode), b.rel(special.Path))
	case errors.As(err, &changed):
		bad.Got = fmt.Sprintf("that %q is still being written", b.rel(changed.Path))
	case errors.Is(err, beneath.ErrLink):
		bad.Got = "a symbolic link on the way to it"
	case errors.Is(err, beneath.ErrMount):
		bad.Got = "something that is mounted there"
	case errors.Is(err, fs.ErrPermission) && errors.As(err, &path) && b.owns(path.Path):
		bad.Got = fmt.Sprintf("no permission to read %q", b.rel(path.Path))
	default:
		return fmt.Errorf("store output %s: %w", bad.Name, err)
	}
	return bad
}

// owns tells whether a path in an error is the command's, not the store's. Paths below an open folder are relative.
func (b *box) owns(path string) bool {
	return !filepath.IsAbs(path) || strings.HasPrefix(path, b.work.Name())
}

// rel returns a path relative to the command's directory.
func (b *box) rel(path string) string {
	if rel, err := filepath.Rel(b.work.Name(), path); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return path
}

func describe(mode fs.FileMode) string {
	if mode.IsRegular() {
		return "a file"
	}
	return objectstore.KindOf(mode)
}

// writtenInstead lists files that a command left in its folder where a declared output is missing: the path may be
// mistyped. It returns "" if there are none, or if they cannot be told from inputs.
func (b *box) writtenInstead() string {
	const most, looked = 5, 2000
	inputs := map[string]bool{".e3-values": true, batchFile: true}
	for i := range b.spec.Inputs {
		inputs[b.spec.Inputs[i].Path] = true
	}
	if inputs["."] { // a pattern at the top: anything may be an input
		return ""
	}
	var files []string
	n := 0
	_ = b.work.Walk(func(rel string, e fs.DirEntry, err error) error {
		rel = filepath.ToSlash(rel)
		switch n++; {
		case err != nil:
			return nil
		case n > looked || len(files) > most:
			return fs.SkipAll
		case inputs[rel] && e.IsDir():
			return fs.SkipDir
		case !inputs[rel] && !e.IsDir():
			files = append(files, rel)
		}
		return nil
	})
	switch {
	case len(files) == 0:
		return ""
	case len(files) > most:
		files[most] = "…"
	}
	return "; the command wrote " + strings.Join(files, ", ")
}
