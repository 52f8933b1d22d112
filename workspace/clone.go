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
	"unicode/utf8"

	"e3/internal/format/manifest"
	"e3/internal/format/moment"
	"e3/internal/format/notation"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
)

// A clone is the directory that holds a package file. A clone is identified by the directory itself, not by a path
// that leads there. This source file alone decides which clone a workspace follows, how that is recorded, and in
// which clone the current folder lies (doc/design.md, §11, Clones).

// clonePath is the path of a package file that identifies its clone: symbolic links are resolved, except for the file's
// own name.
func clonePath(file string) (string, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(file)); err == nil {
		file = filepath.Join(dir, filepath.Base(file))
	}
	if !utf8.ValidString(file) {
		return "", fmt.Errorf("package file %s: %w", file, ErrPath)
	}
	return file, nil
}

// ErrPath is wrapped if the path of a package file cannot be recorded: texts in records are UTF-8.
var ErrPath = errors.New("its path is not UTF-8 text; rename the folder or the file")

// sameFile tells whether two paths are the same package file of the same clone.
func sameFile(a, b string) bool {
	return a == b || filepath.Base(a) == filepath.Base(b) && sameDir(filepath.Dir(a), filepath.Dir(b))
}

// sameDir tells whether two paths lead to one directory, which may be mounted twice.
func sameDir(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// gone tells whether a clone was removed from this machine: its package file does not exist.
func gone(file string) bool { return absent(file) }

// folderGone tells whether a clone was removed together with its directory. If only the file is missing, the caller
// reports an error.
func folderGone(file string) bool { return absent(filepath.Dir(file)) }

func absent(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// home is the folder that contains the repository's folder: everything in it moves and is copied together with the
// repository. It is "" for a shared repository.
func (w *links) home() string {
	if w.Folder == "" {
		return ""
	}
	return filepath.Dir(w.Folder)
}

// noted is the recorded path of a package file: relative to the repository's home if the file lies there, so that a
// copy of both refers to the copied file; otherwise, absolute.
func (w *links) noted(file string) string {
	if home := w.home(); home != "" {
		if rel, err := filepath.Rel(home, file); err == nil && filepath.IsLocal(rel) {
			return filepath.ToSlash(rel)
		}
	}
	return file
}

// writeLink encodes a link with its recorded path and the present home.
func (w *links) writeLink(l *record.Link) []byte {
	written := *l
	if written.File != "" {
		written.File = w.noted(l.File)
	}
	written.Home = w.home()
	return written.Encode()
}

// readLink decodes a link and resolves its file.
func (w *links) readLink(ws string, data []byte) (*record.Link, error) {
	l, err := decodeLink(ws, data)
	if err != nil || l.File == "" || filepath.IsAbs(l.File) {
		return l, err
	}
	switch {
	case l.Home == "", !filepath.IsLocal(filepath.FromSlash(l.File)):
		return nil, fmt.Errorf("link of workspace %s: its file is %q; %w", ws, l.File, errBadLink)
	case w.Folder == "", w.mountedIn(l.Home):
		l.File = filepath.Join(l.Home, filepath.FromSlash(l.File))
	default:
		l.File = filepath.Join(w.home(), filepath.FromSlash(l.File))
	}
	return l, nil
}

// mountedIn tells whether this same repository, not a copy, also lies in another folder through a mount. Clones then
// share it, and a link refers to the home in which it was written.
func (w *links) mountedIn(home string) bool {
	return home != w.home() && sameDir(filepath.Join(home, filepath.Base(w.Folder)), w.Folder) && !sameDir(home, w.home())
}

// fileKey is the key of the record of the workspace that "start -f" made for a package file.
func fileKey(noted string) refstore.Key {
	return refstore.Key{Partition: "INDEX/files", Sort: objectstore.Sum([]byte(noted)).String()}
}

// WorkspaceFor returns the workspace that "start -f" made earlier for a package file; "" if no workspace follows the
// file now. It saves reading a large file for its name every time.
func (w *Deployer) WorkspaceFor(ctx context.Context, file string) (string, error) {
	file, err := clonePath(file)
	if err != nil {
		return "", err
	}
	rec, err := w.states.Local.Get(ctx, fileKey(w.states.links.noted(file)))
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged) || err == nil && len(rec.Value) == 0 { // empty: lost in a power failure
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if follows, err := w.Follows(ctx, string(rec.Value), file); err != nil || !follows {
		return "", err
	}
	return string(rec.Value), nil
}

// Follows tells whether a workspace follows a package file. The workspace need not exist.
func (w *Deployer) Follows(ctx context.Context, ws, file string) (bool, error) {
	linked, err := w.LinkedTo(ctx, ws)
	if err != nil || linked == "" {
		return false, err
	}
	file, err = clonePath(file)
	return err == nil && sameFile(linked, file), err
}

// heldBy returns the deployment that deploying a package file would replace: of another clone, on any machine, or of
// a registered package. It is nil if there is none, or if the workspace already follows the file.
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
		other = &Elsewhere{Package: s.PackageName + "@" + s.PackageVersion, Since: moment.At(s.DeployedAt)}
	}
	return other, err
}

// here describes a clone of this machine that a state follows.
func (s *State) here(link *record.Link) *Elsewhere {
	return &Elsewhere{File: link.File, Here: true, Gone: gone(link.File), Package: s.PackageName + "@" + s.PackageVersion, Since: moment.At(s.DeployedAt)}
}

// deployedElsewhere returns the origin of a package that a start runs without reading its file, if that should be
// reported: another machine's clone, a removed clone, or any other origin if a clone of this machine was followed
// before.
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

// takenBy returns the deployment that reserves a workspace against a command that does not name it: of another
// existing clone, or of a registered package.
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

// ownName returns the first of name, name-2, name-3, … that is free for a package file if no workspace was named.
// instead is the deployment that holds name, if name is taken.
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

// An UnfollowedError says that the current folder lies in a clone that the workspace does not follow, so that an answer
// would be about other files than expected.
type UnfollowedError struct {
	Workspace string
	Over      *Elsewhere
	Mine      string // the package file of the clone that the current folder lies in
}

func (e *UnfollowedError) Error() string {
	return fmt.Sprintf("workspace %s %s, and not %s", e.Workspace, e.Over, e.Mine)
}

// Unfollowed says whether the current folder lies in a clone of the deployed package that the workspace does not
// follow; nil if not.
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
	var current *Elsewhere
	if link != nil {
		followed, current = link.File, s.here(link)
	} else if current, err = w.elsewhere(ctx, ws, s); err != nil || current == nil || current.File == "" && !current.Unknown {
		return nil, err // a registered package belongs to no clone
	}
	if mine := standsIn(w.From, followed, filepath.Base(current.File), s.PackageName); mine != "" {
		return &UnfollowedError{Workspace: ws, Over: current, Mine: mine}, nil
	}
	return nil, nil
}

// either returns the typed error if there is one, else the other. A nil *UnfollowedError becomes a nil error.
func either(other *UnfollowedError, err error) error {
	if other != nil {
		return other
	}
	return err
}

// standsIn returns the package file of the clone of a package that contains dir; "" if no clone does, or if the
// nearest clone is followed. It skips files of other packages, such as those of a nested project. An unreadable file
// may be of any package.
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
