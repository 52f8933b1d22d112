// Package projectfiles finds the files of a project that a pattern of its package file stands for.
package projectfiles

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"e3/internal/format/manifest"
)

// A Find is what a pattern stands for now, and what has been looked at for that.
type Find struct {
	Files   []File   // in the order of their paths
	Folders []string // that were read, as they were reached; a file may appear in any of them
	Links   []string // that were followed
	Passed  []string // links to folders that only a ** stands before, which does not enter them; relative to the base
	Hidden  []string // files that would match if they were not hidden; relative to the base
	Usual   []string // files and folders that match and are left out as usual; relative to the base
}

// A File is one of the files.
type File struct {
	Path string // relative to the base, with slashes, as the pattern matches it
	At   string // where it was reached
}

// A LinkError says why a link on the way of a pattern cannot be followed. A sample whose storage is not mounted must not
// silently be left out.
type LinkError struct {
	Path   string // relative to the base
	Target string // "" if it is not known
	Loop   bool   // it leads to a folder around it
	Inside bool   // it leads into a repository, which changes with each start
	Err    error  // fs.ErrNotExist if its target is gone
}

func (e *LinkError) Error() string {
	switch {
	case e.Loop:
		return fmt.Sprintf("%s is a link to %s, a folder around it: a pattern that enters it would go round in circles", e.Path, e.Target)
	case e.Inside:
		return fmt.Sprintf("%s is a link to %s, in a repository, which each start changes", e.Path, e.Target)
	case errors.Is(e.Err, fs.ErrNotExist):
		return fmt.Sprintf("%s is a link to %s, which is not there", e.Path, e.Target)
	}
	return fmt.Sprintf("%s is a link to %s, which cannot be followed: %v", e.Path, e.Target, e.Err)
}

func (e *LinkError) Unwrap() error { return e.Err }

// Match finds the files below base that match a pattern. Links count as what they point to, within the project and out of
// it: one to a file is a file; one to a folder is entered by a part of the pattern that stands for a name, but not by **.
// The patterns of except match nothing. An error comes with the result so far.
func Match(base, pattern string, except *manifest.Except) (*Find, error) {
	w := &walker{base: base, except: except, found: &Find{}}
	at := manifest.GlobIn(pattern)
	prefix := manifest.GlobPrefix(pattern)
	top := filepath.Join(base, filepath.FromSlash(prefix))
	if prefix != "." {
		for _, name := range splitPath(prefix) {
			at = at.Enter(name)
		}
	}
	info, err := os.Stat(top)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: top, Err: syscall.ENOTDIR}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return w.found, &FolderError{Pattern: pattern, Folder: firstMissing(base, prefix), Err: err}
	}
	if err != nil {
		return w.found, err
	}
	if prefix == "." {
		prefix = ""
	}
	err = w.folder(top, prefix, at, nil)
	slices.SortFunc(w.found.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return w.found, err
}

// A FolderError says that the folder in which a pattern looks does not exist.
type FolderError struct {
	Pattern string
	Folder  string // the first part of its path that is missing
	Err     error
}

func (e *FolderError) Error() string {
	return fmt.Sprintf("no file can match %s: there is no folder %s", e.Pattern, e.Folder)
}

func (e *FolderError) Unwrap() error { return e.Err }

// firstMissing is the shortest part of a path that does not exist.
func firstMissing(base, prefix string) string {
	at := ""
	for _, name := range splitPath(prefix) {
		at = path.Join(at, name)
		if _, err := os.Stat(filepath.Join(base, filepath.FromSlash(at))); err != nil {
			break
		}
	}
	return at
}

// Below finds the files in a folder, also hidden ones. A link to a file counts as the file.
func Below(base, folder string, except *manifest.Except) ([]File, error) {
	var list []File
	top := filepath.Join(base, filepath.FromSlash(folder))
	err := filepath.WalkDir(top+string(filepath.Separator), func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, at)
		if err != nil || rel == "." {
			return err
		}
		rel = path.Join(folder, filepath.ToSlash(rel))
		link := e.Type()&fs.ModeSymlink != 0
		out, _ := except.Leaves(rel, e.IsDir() || link)
		switch {
		case e.IsDir() && (out || e.Name() == repositoryFolder):
			return fs.SkipDir
		case out || e.IsDir():
			return nil
		case link:
			info, err := os.Stat(at)
			if err == nil && info.IsDir() {
				err = syscall.EISDIR
			}
			if err != nil {
				target, _ := os.Readlink(at)
				return &LinkError{Path: rel, Target: target, Err: err}
			}
		}
		list = append(list, File{Path: rel, At: at})
		return nil
	})
	return list, err
}

func splitPath(p string) (names []string) {
	for p != "." && p != "" {
		names = append(names, path.Base(p))
		p = path.Dir(p)
	}
	slices.Reverse(names)
	return names
}

type walker struct {
	base   string
	except *manifest.Except
	found  *Find
}

// folder reads a folder. left are the real paths of the folders that links on the way to it have left.
func (w *walker) folder(dir, rel string, at manifest.GlobAt, left []string) error {
	if at.Closed() {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	w.found.Folders = append(w.found.Folders, dir)
	for _, e := range entries {
		name := e.Name()
		here, below := filepath.Join(dir, name), path.Join(rel, name)
		if out, usual := w.except.Leaves(below, e.IsDir() || e.Type()&fs.ModeSymlink != 0); out {
			if usual && (at.Match(name) || e.IsDir() && !at.Enter(name).Closed()) {
				w.found.Usual = append(w.found.Usual, below)
			}
			continue
		}
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			err = w.link(here, below, name, at, left)
		case e.IsDir():
			err = w.folder(here, below, at.Enter(name), left)
		default:
			w.file(here, below, name, at)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*LinkError)) {
			return err
		}
	}
	return nil
}

func (w *walker) file(here, below, name string, at manifest.GlobAt) {
	switch {
	case at.Match(name):
		w.found.Files = append(w.found.Files, File{Path: below, At: here})
	case at.Hides(name):
		w.found.Hidden = append(w.found.Hidden, below)
	}
}

// link follows a link if what it points to can matter.
func (w *walker) link(here, below, name string, at manifest.GlobAt, left []string) error {
	inner, passed := at.EnterLink(name)
	matters := !inner.Closed() || at.Match(name)
	if !matters && !passed {
		return nil
	}
	fault := func(err error, loop bool) error {
		if !matters {
			return nil // whatever it is, ** would not enter it
		}
		target, _ := os.Readlink(here)
		return &LinkError{Path: below, Target: target, Loop: loop, Err: err}
	}
	info, err := os.Stat(here)
	if err != nil {
		return fault(err, false)
	}
	w.found.Links = append(w.found.Links, here)
	switch {
	case !info.IsDir():
		w.file(here, below, name, at)
		return nil
	case inner.Closed():
		if passed {
			w.found.Passed = append(w.found.Passed, below)
		}
		return nil
	}
	from, err := filepath.EvalSymlinks(filepath.Dir(here))
	if err != nil {
		return fault(err, false)
	}
	to, err := filepath.EvalSymlinks(here)
	if err != nil {
		return fault(err, false)
	}
	left = append(slices.Clip(left), from)
	if slices.ContainsFunc(left, func(dir string) bool { return dir == to || strings.HasPrefix(dir, strings.TrimSuffix(to, "/")+"/") }) {
		return fault(syscall.ELOOP, true)
	}
	if slices.Contains(strings.Split(filepath.ToSlash(to), "/"), repositoryFolder) {
		target, _ := os.Readlink(here)
		return &LinkError{Path: below, Target: target, Inside: true, Err: fs.ErrInvalid}
	}
	return w.folder(here, below, inner, left)
}

// repositoryFolder is the folder of a repository in a project.
const repositoryFolder = ".e3"
