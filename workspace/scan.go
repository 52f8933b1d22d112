package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sync/errgroup"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/parallel"
	"e3/internal/projectfiles"
	"e3/objectstore"
	dirtree "e3/objectstore/tree"
)

// A scan reads the linked inputs. A file that looks as it did when it was last read is not read again. The scan
// collects every input that cannot be read, not only the first.
type scan struct {
	states *States
	base   string   // folder of the package file
	verify bool     // check that known content is stored, and read it again if it is not
	set    []string // inputs from servers that are not asked for
	// changed says that more than a file's times differed; touched says that the link must be rewritten.
	changed, touched atomic.Bool
}

// An InputError says which input could not be read.
type InputError struct {
	Input string
	Err   error
	Where string // "e3.yaml:5:3: ", or "" if that is not known
	Like  string // a file with a similar name beside a missing one, or ""
	// Advice says how to declare or change an input that cannot be stored as it is; "" if the error says enough.
	Advice string
}

func (e *InputError) Error() string {
	text := fmt.Sprintf("%s%s: %v", e.Where, record.InputLabel(e.Input), e.Err)
	if e.Advice != "" {
		text += "; " + e.Advice
	}
	if e.Like != "" {
		text += fmt.Sprintf(" (did you mean %q?)", e.Like)
	}
	return text
}

func (e *InputError) Unwrap() error { return e.Err }

// inputs brings all inputs up to date in place.
func (s *scan) inputs(ctx context.Context, inputs []record.LinkInput) error {
	var mu sync.Mutex
	var faults []error
	var far []*record.LinkInput
	read := func(ctx context.Context, in *record.LinkInput) error {
		if err := s.input(ctx, in); err != nil {
			mu.Lock()
			defer mu.Unlock()
			faults = append(faults, &InputError{Input: in.Name, Err: err})
		}
		return nil
	}
	for i := range inputs {
		if in := &inputs[i]; in.Source == record.FromURL {
			far = append(far, in)
		}
	}
	err := s.each(ctx, len(inputs), func(ctx context.Context, i int) error {
		if inputs[i].Source == record.FromURL {
			return nil
		}
		return read(ctx, &inputs[i])
	})
	if err == nil && len(faults) == 0 { // nothing is fetched for a start that fails anyway
		err = parallel.AtMost(ctx, remotes, len(far), func(ctx context.Context, i int) error { return read(ctx, far[i]) })
	}
	if len(faults) > 0 {
		return errors.Join(faults[:min(len(faults), 20)]...)
	}
	return err
}

// each calls do for the numbers below n, several at a time. The first error ends it.
func (s *scan) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	// Each goroutine takes a batch of neighbours, so that a list of many small files costs no hand-over for each.
	turn, workers := 64, 2*runtime.GOMAXPROCS(0)
	if s.states.Lookups > workers { // new content goes to a remote store
		turn, workers = 1, s.states.Lookups
	}
	var next atomic.Int64
	for range min(workers, (n+turn-1)/turn) {
		g.Go(func() error {
			for {
				from := int(next.Add(int64(turn))) - turn
				if from >= n || ctx.Err() != nil {
					return ctx.Err()
				}
				for i := from; i < min(from+turn, n); i++ {
					if err := do(ctx, i); err != nil {
						return err
					}
				}
			}
		})
	}
	return g.Wait()
}

func (s *scan) input(ctx context.Context, in *record.LinkInput) error {
	var leaf record.Leaf
	var err error
	switch in.Source {
	case record.FromFile:
		leaf, err = s.file(ctx, in)
	case record.FromDir:
		leaf, err = s.dir(ctx, in)
	case record.FromSheet:
		leaf, err = s.sheet(ctx, in)
	case record.FromGlob:
		leaf, err = s.glob(ctx, in)
	case record.FromParams:
		leaf, err = s.params(ctx, in)
	case record.FromPart:
		leaf, err = s.part(ctx, in)
	case record.FromEnvironment:
		leaf, err = s.environment(ctx, in)
	case record.FromURL:
		leaf, err = s.url(ctx, in)
	default:
		return nil // values are part of the package file
	}
	if err != nil {
		return err
	}
	if leaf != in.Leaf {
		in.Leaf = leaf
		s.changed.Store(true)
		s.touched.Store(true)
	}
	return nil
}

// attempts bounds how often a file is read again because it changed meanwhile.
const attempts = 5

// file reads one file.
func (s *scan) file(ctx context.Context, in *record.LinkInput) (record.Leaf, error) {
	var known *record.LinkFile
	if len(in.Files) == 1 {
		known = &in.Files[0]
	}
	f, info, err := s.content(ctx, filepath.Join(s.base, filepath.FromSlash(in.Location)), known)
	if err != nil {
		return record.Leaf{}, err
	}
	f.Path = in.Location
	in.Files = []record.LinkFile{f}
	return fileLeaf(info, objectstore.Info{Hash: f.Hash, Size: info.Size()}), nil
}

// content stores the content of a file unless it is the known content. A symbolic link counts as the file that it
// points to.
func (s *scan) content(ctx context.Context, path string, known *record.LinkFile) (f record.LinkFile, info fs.FileInfo, err error) {
	if info, err = os.Stat(path); err != nil {
		return f, nil, err
	}
	if known != nil && proves(known.Stat, fileStat(info)) && (!s.verify || s.refresh(ctx, known.Hash)) {
		return record.LinkFile{Stat: known.Stat, Hash: known.Hash, Executable: info.Mode()&0o111 != 0}, info, nil
	}
	if !info.Mode().IsRegular() { // opening a pipe would block
		return f, nil, &objectstore.SpecialFileError{Path: path, Mode: info.Mode().Type()}
	}
	var stored objectstore.Info
	for try := 1; ; try++ {
		seen := s.states.Now().UnixNano()
		if info, stored, err = s.read(ctx, path); err == nil {
			s.touched.Store(true)
			f = record.LinkFile{Stat: fileStat(info), Hash: stored.Hash, Executable: info.Mode()&0o111 != 0}
			f.Stat.Seen = seen
			return f, info, nil
		}
		var changed *objectstore.ChangedError
		if !errors.As(err, &changed) || try == attempts {
			return f, nil, err
		}
	}
}

func fileLeaf(info fs.FileInfo, stored objectstore.Info) record.Leaf {
	return record.Leaf{Kind: record.LeafFile, Hash: stored.Hash.String(), Size: stored.Size, Executable: info.Mode()&0o111 != 0}
}

// read stores a file's content and returns the file's stat as of the read.
func (s *scan) read(ctx context.Context, path string) (fs.FileInfo, objectstore.Info, error) {
	f, err := objectstore.OpenFile(path)
	if err != nil {
		return nil, objectstore.Info{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, objectstore.Info{}, err
	}
	stored, err := objectstore.PutFile(ctx, s.states.Objects, f, objectstore.FileOptions{})
	return info, stored, err
}

// refresh reports whether known content is stored and may be referenced again. A fault of the store is reported by
// the next read.
func (s *scan) refresh(ctx context.Context, h objectstore.Hash) bool {
	there, err := s.states.Objects.Refresh(ctx, h)
	return err == nil && there
}

// dir reads a directory.
func (s *scan) dir(ctx context.Context, in *record.LinkInput) (record.Leaf, error) {
	var usual []string
	opts := dirtree.PutOptions{Filter: takesIn(exceptOf(in), func(rel string) { usual = append(usual, in.Location+"/"+rel) })}
	path := filepath.Join(s.base, filepath.FromSlash(in.Location))
	if info, err := os.Stat(path); err != nil {
		return record.Leaf{}, err
	} else if !info.IsDir() {
		return record.Leaf{}, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	for try := 1; ; try++ {
		usual = nil
		past := dirtree.Past{Memory: in.Folder, Seen: s.states.Now().UnixNano()}
		if s.verify {
			past.Trusts = func(h objectstore.Hash) bool { return s.refresh(ctx, h) }
		}
		h, memory, _, err := dirtree.Follow(ctx, s.states.Objects, path, past, opts)
		if err == nil {
			slices.Sort(usual)
			if !bytes.Equal(memory, in.Folder) {
				s.touched.Store(true)
			}
			in.Files, in.Folder, in.Usual = nil, memory, usual
			return record.Leaf{Kind: record.LeafDir, Hash: h.String()}, nil
		}
		var changed *objectstore.ChangedError
		if !errors.As(err, &changed) || try == attempts {
			return record.Leaf{}, err
		}
	}
}

// takesIn is a filter of a directory's files: without what is left out, and without a repository, which may be that
// which stores the directory. It tells what is left out as usual.
func takesIn(except *manifest.Except, usual func(rel string)) func(string, fs.DirEntry) bool {
	return func(rel string, e fs.DirEntry) bool {
		out, as := except.Leaves(rel, e.IsDir() || e.Type()&fs.ModeSymlink != 0)
		if out && as {
			usual(rel)
		}
		return !out && !(e.IsDir() && e.Name() == ".e3")
	}
}

// usualFiles is the filter of a directory that is no input.
var usualFiles = takesIn(manifest.NewExcept(nil, ""), func(string) {})

// exceptOf knows what an input leaves out: of a directory, by paths in it; of a pattern, by paths from the package file.
func exceptOf(in *record.LinkInput) *manifest.Except {
	if in.Source == record.FromDir {
		return manifest.NewExcept(in.Except, in.Location)
	}
	return manifest.NewExcept(in.Except, "")
}

// glob reads the files of a pattern as a directory.
func (s *scan) glob(ctx context.Context, in *record.LinkInput) (record.Leaf, error) {
	found, err := projectfiles.Match(s.base, in.Location, exceptOf(in))
	if err != nil {
		return record.Leaf{}, err
	}
	known := make(map[string]*record.LinkFile, len(in.Files))
	for i := range in.Files {
		known[in.Files[i].Path] = &in.Files[i]
	}
	prefix := manifest.GlobPrefix(in.Location) + "/"
	files := make([]record.LinkFile, len(found.Files))
	placed := make([]dirtree.Placed, len(files))
	if err := s.each(ctx, len(files), func(ctx context.Context, i int) error {
		rel := strings.TrimPrefix(found.Files[i].Path, prefix)
		f, info, err := s.content(ctx, found.Files[i].At, known[rel])
		if err != nil {
			return err
		}
		f.Path = rel
		files[i] = f
		placed[i] = dirtree.Placed{Path: rel, Info: objectstore.Info{Hash: f.Hash, Size: info.Size()}, Executable: info.Mode()&0o100 != 0}
		return nil
	}); err != nil {
		return record.Leaf{}, err
	}
	h, err := dirtree.Build(ctx, s.states.Objects, placed)
	if err != nil {
		return record.Leaf{}, err
	}
	in.Files, in.Passed, in.Hidden, in.Usual = files, found.Passed, found.Hidden, found.Usual
	return record.Leaf{Kind: record.LeafDir, Hash: h.String()}, nil
}
