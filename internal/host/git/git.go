// Package git reads which commit and which branch of git a folder stands at, from the files of its repository. It runs
// no program, because git would: a repository's configuration may name programs, and any user can leave one above a
// folder.
//
// It follows what git itself writes: the file ".git" of a worktree or a submodule, and the file "commondir". All else
// is read without following links, up to a bound, and nothing but the names of commits and branches is handed on.
package git

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"

	"e3/internal/host/beneath"
)

// Head is what is checked out.
type Head struct {
	Commit string // hexadecimal; "" before the first commit
	Branch string // "" if no branch is checked out
}

// Errors of Read. Any other error, too, means that the commit is not known.
var (
	ErrNone     = errors.New("the folder lies in no repository of git")
	ErrReftable = errors.New("the repository's references are a reftable, which e3 does not read")
	ErrOwner    = errors.New("the repository belongs to another user than the project")
)

// Bounds of what is read. A reference has one line; git bounds names of references by those of files.
const (
	maxLine = 8 << 10
	maxLink = 5 // references from one to the next, as in git
)

// Read returns what is checked out where a folder lies. The folder is that of a project, and may be any folder below
// the top of the worktree. Errors name files without the path of the project.
func Read(dir string) (Head, error) {
	head, err := read(dir)
	if path := new(fs.PathError); errors.As(err, &path) {
		err = fmt.Errorf("%s %s: %w", path.Op, filepath.Base(path.Path), path.Err)
	}
	return head, err
}

func read(dir string) (Head, error) {
	gitdir, err := find(dir)
	if err != nil {
		return Head{}, err
	}
	own, err := beneath.Open(gitdir)
	if err != nil {
		return Head{}, err
	}
	defer own.Close()
	r := repository{own: own, common: own}
	switch path, err := line(own, "commondir"); {
	case err == nil:
		if r.common, err = beneath.Open(under(gitdir, path)); err != nil {
			return Head{}, err
		}
		defer r.common.Close()
	case !errors.Is(err, fs.ErrNotExist):
		return Head{}, err
	}
	return r.head()
}

// find looks upwards for ".git", as git does, and returns the repository. A ".git" without a HEAD is none.
func find(dir string) (string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	user, err := owner(os.Stat(dir))
	if err != nil {
		return "", err
	}
	for top, last := dir, ""; top != last; top, last = filepath.Dir(top), top {
		gitdir := filepath.Join(top, ".git")
		info, err := os.Lstat(gitdir)
		if err != nil {
			continue
		}
		if by, err := owner(info, nil); err != nil || by != user && by != os.Geteuid() {
			return "", ErrOwner
		}
		if info.Mode().IsRegular() {
			return pointed(top)
		}
		if _, err := os.Lstat(filepath.Join(gitdir, "HEAD")); err == nil {
			return gitdir, nil
		}
	}
	return "", ErrNone
}

// owner is the user that a file belongs to.
func owner(info fs.FileInfo, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return int(st.Uid), nil
}

// pointed is the folder that the file ".git" of a worktree or a submodule names.
func pointed(top string) (string, error) {
	d, err := beneath.Open(top)
	if err != nil {
		return "", err
	}
	defer d.Close()
	text, err := line(d, ".git")
	if err != nil {
		return "", err
	}
	path, ok := strings.CutPrefix(text, "gitdir: ")
	if !ok || path == "" {
		return "", errors.New(".git is a file without gitdir")
	}
	return under(top, path), nil
}

// under is a path that may be relative to a folder.
func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// line reads a file of one line, without its end.
func line(d *beneath.Dir, name string) (string, error) {
	f, _, err := open(d, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxLine+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxLine {
		return "", fmt.Errorf("%s is longer than %d bytes", name, maxLine)
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

// open opens a regular file, and does not wait for anything else.
func open(d *beneath.Dir, name string) (*os.File, int64, error) {
	f, err := d.OpenFile(name, os.O_RDONLY|beneath.Nonblock, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", name)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// A repository has two folders: one of the worktree, and one that all worktrees share.
type repository struct{ own, common *beneath.Dir }

func (r *repository) head() (Head, error) {
	text, err := line(r.own, "HEAD")
	if err != nil {
		return Head{}, err
	}
	ref, linked := strings.CutPrefix(text, "ref:")
	if !linked {
		id, err := commit(text)
		return Head{Commit: id}, err
	}
	ref = strings.TrimSpace(ref)
	switch {
	case ref == "refs/heads/.invalid":
		return Head{}, ErrReftable
	case !sound(ref):
		return Head{}, errors.New("HEAD names no reference")
	}
	return r.resolve(ref)
}

// resolve returns the branch of a reference, and its commit; "" if it has none yet.
func (r *repository) resolve(ref string) (Head, error) {
	for range maxLink {
		text, err := line(r.home(ref), ref)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || r.home(ref).IsDir(ref) {
			id, err := r.packed(ref) // git leaves empty folders of references that it has packed
			return at(ref, id, err)
		}
		if err != nil {
			return Head{}, err
		}
		next, linked := strings.CutPrefix(text, "ref:")
		if !linked {
			id, err := commit(text)
			return at(ref, id, err)
		}
		if ref = strings.TrimSpace(next); !sound(ref) {
			return Head{}, errors.New("a reference names no other one")
		}
	}
	return Head{}, errors.New("too many references from one to the next")
}

func at(ref, commit string, err error) (Head, error) {
	if err != nil {
		return Head{}, err
	}
	return Head{Commit: commit, Branch: strings.TrimPrefix(ref, "refs/heads/")}, nil
}

// home is the folder that has a reference as a file.
func (r *repository) home(ref string) *beneath.Dir {
	for _, own := range []string{"refs/bisect/", "refs/worktree/", "refs/rewritten/"} {
		if strings.HasPrefix(ref, own) {
			return r.own
		}
	}
	return r.common
}

// packed looks a reference up in packed-refs; "" if that does not have it.
func (r *repository) packed(ref string) (string, error) {
	f, size, err := open(r.common, "packed-refs")
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	id, err := lookUp(f, size, ref)
	if err != nil || id == "" {
		return "", err
	}
	return commit(id)
}

// commit checks that a text is the name of a commit.
func commit(text string) (string, error) {
	if len(text) != 40 && len(text) != 64 || strings.Trim(text, "0123456789abcdef") != "" {
		return "", errors.New("a reference is no name of a commit")
	}
	return text, nil
}

// sound reports whether a text may be the name of a reference. It never leads out of the repository, and can be shown.
func sound(ref string) bool {
	odd := func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar || c == ' ' }
	return strings.HasPrefix(ref, "refs/") && filepath.IsLocal(ref) && filepath.Clean(ref) == ref && !strings.ContainsFunc(ref, odd)
}
