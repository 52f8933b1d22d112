package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"e3/internal/format/manifest"
	"e3/internal/format/notation"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
)

// A clone is the directory that holds a package file, told apart by the directory itself and not by the path that leads to it. This
// file alone says which clone a workspace follows, how that is written down, and which one a person stands in (doc/design.md, §11,
// Clones).

// clonePath is the path of a package file by which its clone is known: without symbolic links, but for the file's own name.
func clonePath(file string) (string, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(file)); err == nil {
		file = filepath.Join(dir, filepath.Base(file))
	}
	return file, nil
}

// sameFile tells whether two paths are the same package file of the same clone.
func sameFile(a, b string) bool {
	return a == b || filepath.Base(a) == filepath.Base(b) && sameDir(filepath.Dir(a), filepath.Dir(b))
}

// sameDir tells whether two paths lead to one directory: one may be mounted twice.
func sameDir(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// gone tells whether a clone is not on this machine any more: its package file does not exist.
func gone(file string) bool { return absent(file) }

// folderGone tells whether a clone has gone with its directory. Where only the file is missing, that is an error to be told.
func folderGone(file string) bool { return absent(filepath.Dir(file)) }

func absent(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// home is the folder in which the repository's folder lies: what is in it moves and is copied together with the repository. "" where
// machines share the repository.
func (w *links) home() string {
	if w.Folder == "" {
		return ""
	}
	return filepath.Dir(w.Folder)
}

// noted is how a package file is written down: relative to the repository's home if it lies there, so that a copy of both follows the
// copy; else by its path.
func (w *links) noted(file string) string {
	if home := w.home(); home != "" {
		if rel, err := filepath.Rel(home, file); err == nil && filepath.IsLocal(rel) {
			return filepath.ToSlash(rel)
		}
	}
	return file
}

// writeLink is a link's bytes: its file as it is written down, and the home that this means.
func (w *links) writeLink(l *record.Link) []byte {
	written := *l
	if written.File != "" {
		written.File = w.noted(l.File)
	}
	written.Home = w.home()
	return written.Encode()
}

// readLink decodes a link and finds its file.
func (w *links) readLink(ws string, data []byte) (*record.Link, error) {
	l, err := decodeLink(ws, data)
	if err != nil || l.File == "" || w.Folder == "" && l.Home == "" {
		return l, err
	}
	switch {
	case l.Home == "":
		l.File = w.convert(l.File)
	case filepath.IsAbs(l.File):
	case !filepath.IsLocal(filepath.FromSlash(l.File)):
		return nil, fmt.Errorf("link of workspace %s: its file is %q; %w", ws, l.File, errBadLink)
	case w.Folder == "", w.mountedIn(l.Home):
		l.File = filepath.Join(l.Home, filepath.FromSlash(l.File))
	default:
		l.File = filepath.Join(w.home(), filepath.FromSlash(l.File))
	}
	return l, nil
}

// mountedIn tells whether this very repository, not a copy, lies in another folder too, by a mount: then clones share it, and a link
// means the one in which it was written.
func (w *links) mountedIn(home string) bool {
	return home != w.home() && sameDir(filepath.Join(home, filepath.Base(w.Folder)), w.Folder) && !sameDir(home, w.home())
}

// convert finds the file of a link of an older e3, which holds a path. A path into the home of another repository was copied from
// there together with the repository, if the same file is in the home of this one.
func (w *links) convert(file string) string {
	for d := filepath.Dir(file); ; d = filepath.Dir(d) {
		other := filepath.Join(d, filepath.Base(w.Folder))
		if _, err := os.Lstat(filepath.Join(other, "format.json")); err == nil {
			rel, err := filepath.Rel(d, file)
			if own := filepath.Join(w.home(), rel); err == nil && !sameDir(other, w.Folder) && !gone(own) {
				return own
			}
			return file
		}
		if d == filepath.Dir(d) {
			return file
		}
	}
}

// fileKey is where it is noted which workspace "start -f" made for a package file.
func fileKey(noted string) refstore.Key {
	return refstore.Key{Partition: "INDEX/files", Sort: objectstore.Sum([]byte(noted)).String()}
}

// WorkspaceFor returns the workspace that "start -f" made for a package file before, "" if there is none that follows it now: a large file
// is not read for its name every time.
func (w *Deployer) WorkspaceFor(ctx context.Context, file string) (string, error) {
	file, err := clonePath(file)
	if err != nil {
		return "", err
	}
	for _, name := range []string{w.states.links.noted(file), file} { // older ones have noted the path
		rec, err := w.states.Local.Get(ctx, fileKey(name))
		if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged) || err == nil && len(rec.Value) == 0 { // empty: lost with the power
			continue
		}
		if err != nil {
			return "", err
		}
		if follows, err := w.Follows(ctx, string(rec.Value), file); err != nil || follows {
			return string(rec.Value), err
		}
	}
	return "", nil
}

// Follows tells whether a workspace, which need not exist, follows a package file.
func (w *Deployer) Follows(ctx context.Context, ws, file string) (bool, error) {
	linked, err := w.LinkedTo(ctx, ws)
	if err != nil || linked == "" {
		return false, err
	}
	file, err = clonePath(file)
	return err == nil && sameFile(linked, file), err
}

// heldBy says what a deployment of a package file would replace: another clone, on whatever machine, or a package that was deployed
// by its name. nil: nothing, or what follows the file already.
func (w *links) heldBy(ctx context.Context, ws string, s *State, file string) (*Elsewhere, error) {
	if !s.Deployed {
		return nil, nil
	}
	link, err := w.link(ctx, ws, s)
	switch {
	case errors.Is(err, errBadLink), err == nil && link != nil && sameFile(link.File, file):
		return nil, nil
	case err != nil:
		return nil, err
	case link != nil:
		return s.here(link), nil
	}
	other, err := w.elsewhere(ctx, ws, s)
	if err == nil && other == nil {
		other = &Elsewhere{Package: s.PackageName + "@" + s.PackageVersion, Since: s.DeployedAt}
	}
	return other, err
}

// here is a clone of this machine that a state follows.
func (s *State) here(link *record.Link) *Elsewhere {
	return &Elsewhere{File: link.File, Here: true, Gone: gone(link.File), Package: s.PackageName + "@" + s.PackageVersion, Since: s.DeployedAt}
}

// deployedElsewhere says whose the package is that a start runs without a look at any file: that of another machine's clone, of one that
// has gone, or where a clone of this machine was followed before, any other. nil: there is nothing to tell.
func (w *links) deployedElsewhere(ctx context.Context, ws string, s *State, link *record.Link) (*Elsewhere, error) {
	if link != nil {
		if folderGone(link.File) {
			return s.here(link), nil
		}
		return nil, nil
	}
	e, err := w.elsewhere(ctx, ws, s)
	if e != nil && e.Mine == "" && e.File == "" && !e.Unknown {
		e = nil
	}
	return e, err
}

// takenBy is what keeps a workspace from being deployed from a file without being named: whatever another clone follows that is there,
// and what was deployed by its name.
func (w *States) takenBy(ctx context.Context, ws, file string) (*Elsewhere, error) {
	s, err := w.State(ctx, ws)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	held, err := w.links.heldBy(ctx, ws, s, file)
	if held != nil && held.Gone {
		held = nil
	}
	return held, err
}

// ownName is the first of name, name-2, name-3, … that a package file may be deployed in without being named, and what has the name itself,
// if that is another.
func (w *States) ownName(ctx context.Context, name, file string) (own string, instead *Elsewhere, err error) {
	for n := 1; ; n++ {
		own := numbered(name, n)
		taken, err := w.takenBy(ctx, own, file)
		if err != nil || taken == nil {
			return own, instead, err
		}
		if instead == nil {
			instead = taken
		}
	}
}

func numbered(name string, n int) string {
	if n == 1 {
		return name
	}
	suffix := "-" + strconv.Itoa(n)
	return name[:min(len(name), notation.MaxName-len(suffix))] + suffix
}

// An UnfollowedError says that a workspace follows another clone than the one in which the person stands, so that an answer would be
// about files that were not meant.
type UnfollowedError struct {
	Workspace string
	Over      *Elsewhere
	Mine      string // the package file of the clone that is not followed
}

func (e *UnfollowedError) Error() string {
	return fmt.Sprintf("workspace %s %s, and not %s", e.Workspace, e.Over, e.Mine)
}

// Unfollowed says whether the person stands in a clone that a workspace does not follow, of the package that is deployed in it; nil if not.
func (w *Deployer) Unfollowed(ctx context.Context, ws string) (*UnfollowedError, error) {
	s, err := w.states.State(ctx, ws)
	if err != nil || !s.Deployed {
		return nil, err
	}
	link, err := w.states.links.link(ctx, ws, s)
	if err != nil {
		return nil, err
	}
	return w.states.links.unfollowed(ctx, ws, s, link)
}

func (w *links) unfollowed(ctx context.Context, ws string, s *State, link *record.Link) (other *UnfollowedError, err error) {
	if w.From == "" {
		return nil, nil
	}
	followed := ""
	var over *Elsewhere
	if link != nil {
		followed, over = link.File, s.here(link)
	} else if over, err = w.elsewhere(ctx, ws, s); err != nil || over == nil || over.File == "" && !over.Unknown {
		return nil, err // a package that was deployed by its name is no clone's
	}
	if mine := standsIn(w.From, followed, filepath.Base(over.File), s.PackageName); mine != "" {
		return &UnfollowedError{Workspace: ws, Over: over, Mine: mine}, nil
	}
	return nil, nil
}

// either is an error that is known by its type, or another.
func either(other *UnfollowedError, err error) error {
	if other != nil {
		return other
	}
	return err
}

// standsIn returns the package file of the clone of a package that a folder is in, "" if it is in none, or in the one that is
// followed first. A file of another package, as of a project that lies in this one's, is passed over; one that cannot be read may be any.
func standsIn(dir, followed, name, pkg string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for ; ; dir = filepath.Dir(dir) {
		for _, base := range []string{name, manifest.FileName} {
			file := filepath.Join(dir, base)
			if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
				continue
			}
			if followed != "" && sameFile(file, followed) {
				return ""
			}
			if def, err := manifest.ParseFile(file); err != nil || def.Name == pkg {
				return file
			}
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}
