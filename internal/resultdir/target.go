package resultdir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"e3/internal/host/atomicfile"
	"e3/internal/human"
	"e3/internal/repo"
)

// A Target is a file or folder that a person names for one thing. It appears there complete or not at all.
type Target struct {
	Path  string // as the person named it
	Force bool   // replaces what is there
}

// WriteFile writes a file.
func (t *Target) WriteFile(executable bool, write func(io.Writer) error) error {
	return t.beside(func(aside, dst string) error {
		if err := t.refuseFile(dst); err != nil {
			return err
		}
		if err := newFile(aside, executable, write); err != nil {
			return fmt.Errorf("write %s: %w", t.Path, err)
		}
		if t.Force {
			return os.Rename(aside, dst)
		}
		return existsAlready(atomicfile.RenameExclusive(aside, dst), dst)
	})
}

// WriteFolder lets write make a folder beside its place. It replaces no folder that holds r or the working folder.
func (t *Target) WriteFolder(r *repo.Repo, write func(aside string) error) error {
	return t.beside(func(aside, dst string) error {
		if err := t.refuseFolder(r, dst); err != nil {
			return err
		}
		if err := write(aside); err != nil {
			return err
		}
		return t.moveFolder(aside, dst)
	})
}

// beside calls write with a path beside the destination, where it may leave remains of a failure, and with the
// destination.
func (t *Target) beside(write func(aside, dst string) error) error {
	dst, err := filepath.Abs(t.Path)
	if err != nil {
		return err
	}
	if err := CheckParent(t.Path); err != nil {
		return err
	}
	aside := filepath.Join(filepath.Dir(dst), "."+filepath.Base(dst)+"."+uuid.NewString()[:8]+".e3")
	defer os.RemoveAll(aside)
	return write(aside, dst)
}

func newFile(path string, executable bool, write func(io.Writer) error) error {
	perm := fs.FileMode(0o666)
	if executable {
		perm = 0o777
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// CheckParent refuses a file or folder to write whose own folder does not exist.
func CheckParent(path string) error {
	dir := filepath.Dir(filepath.Clean(path))
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return refused("cannot write %s: there is no folder %s; make it with: mkdir -p %s", path, dir, human.Quoted(dir))
	}
	return nil
}

// CheckFile refuses a destination that is neither a file nor a link: to rename a file onto a device, as /dev/null,
// would remove the device for every process.
func CheckFile(dst string) error {
	info, err := os.Lstat(dst)
	switch {
	case err != nil: // nothing is there, or the write will fail with the reason
		return nil
	case info.IsDir():
		return refused("%s is a folder: name the file", dst)
	case !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink:
		return refused("%s is not a file, so it is not replaced", dst)
	}
	return nil
}

// existsAlready adds advice to the error of a destination that exists.
func existsAlready(err error, dst string) error {
	if errors.Is(err, fs.ErrExist) {
		return refused("%s exists already; --force replaces it", dst)
	}
	return err
}

func (t *Target) refuseFile(dst string) error {
	info, err := os.Lstat(dst)
	switch {
	case strings.HasSuffix(t.Path, "/"), err == nil && info.IsDir():
		return refused("%s is a folder, and the dataset is a single file: name the file", dst)
	case err == nil && !t.Force:
		return existsAlready(fs.ErrExist, dst)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return CheckFile(dst)
}

// refuseFolder allows a directory to replace nothing, or an empty folder. With Force it may replace any folder that
// is not a working folder.
func (t *Target) refuseFolder(r *repo.Repo, dst string) error {
	info, err := os.Lstat(dst)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return refused("%s is not a folder, and the dataset is a directory", dst)
	}
	names, err := os.ReadDir(dst)
	if err != nil || len(names) == 0 {
		return err
	}
	if !t.Force {
		return existsAlready(fs.ErrExist, dst)
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	places := []string{here}
	if !repo.IsURL(r.Root) {
		places = append(places, r.Root)
	}
	for _, inside := range places {
		if holds, err := holdsFolder(dst, inside); err != nil {
			return err
		} else if holds {
			return refused("%s holds %s and is not replaced", dst, inside)
		}
	}
	if _, err := repo.Find(dst); err == nil {
		return refused("%s holds a repository and is not replaced", dst)
	}
	return nil
}

// holdsFolder reports whether inside is dir or lies below it, after resolving links.
func holdsFolder(dir, inside string) (bool, error) {
	want, err := os.Stat(dir)
	if err != nil {
		return false, err
	}
	if inside, err = filepath.EvalSymlinks(inside); err != nil {
		return false, err
	}
	for {
		if have, err := os.Stat(inside); err == nil && os.SameFile(want, have) {
			return true, nil
		}
		up := filepath.Dir(inside)
		if up == inside {
			return false, nil
		}
		inside = up
	}
}

// moveFolder moves a directory to its destination. It removes a previous one only once the new one is there.
func (t *Target) moveFolder(aside, dst string) error {
	if err := os.Remove(dst); err == nil || errors.Is(err, fs.ErrNotExist) { // it was empty, or did not exist
		return existsAlready(atomicfile.RenameExclusive(aside, dst), dst)
	} else if !t.Force {
		return existsAlready(fs.ErrExist, dst)
	}
	old := aside + "-old"
	if err := os.Rename(dst, old); err != nil {
		return err
	}
	if err := atomicfile.RenameExclusive(aside, dst); err != nil {
		return errors.Join(err, atomicfile.RenameExclusive(old, dst))
	}
	return os.RemoveAll(old)
}
