package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"e3/internal/host/beneath"
)

// Kept is a folder of this user with the images that are unpacked on this machine. Each image has a folder with its
// files (tree) and their fingerprint (about). An image is made elsewhere and renamed into place whole, and nothing
// changes it later.
type Kept struct {
	Folder  string
	Scratch string // a folder of this process on the same file system
}

// maxUnused is the time for which an unused image is kept.
const maxUnused = 7 * 24 * time.Hour

const (
	treeName  = "tree"
	aboutName = "about"
)

// A Root is an unpacked image in use. While it is open, no process removes it.
type Root struct {
	Path string
	lock *os.File
}

// Close ends the use.
func (r *Root) Close() error { return r.lock.Close() }

// Open returns an unpacked image that nothing has changed since. The error wraps fs.ErrNotExist if there is none.
func (k Kept) Open(name string) (*Root, error) {
	folder := filepath.Join(k.Folder, name)
	lock, err := k.lock(folder, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	about, err := os.ReadFile(filepath.Join(folder, aboutName))
	if err == nil {
		var now string
		if now, err = fingerprint(filepath.Join(folder, treeName)); err == nil && now != string(about) {
			err = fmt.Errorf("files of the image in %s have changed: %w", folder, fs.ErrNotExist)
		}
	}
	if err == nil {
		at := time.Now()
		err = os.Chtimes(filepath.Join(folder, aboutName), at, at) // the image's last use
	}
	if err != nil {
		lock.Close()
		if errors.Is(err, fs.ErrNotExist) {
			_ = k.remove(name) // an image that a process uses stays
		}
		return nil, err
	}
	return &Root{Path: filepath.Join(folder, treeName), lock: lock}, nil
}

// lock locks a folder, and makes sure that the locked folder is still at its path.
func (k Kept) lock(folder string, how int) (*os.File, error) {
	for {
		f, err := os.Open(folder)
		if err != nil {
			return nil, err
		}
		for {
			if err = unix.Flock(int(f.Fd()), how); err != unix.EINTR {
				break
			}
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", folder, err)
		}
		held, err := f.Stat()
		there, gone := os.Stat(folder)
		if err == nil && gone == nil && os.SameFile(held, there) {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// Add calls a function that unpacks an image, and keeps the image. If another process has kept the same image
// meanwhile, that image is used.
func (k Kept) Add(name string, unpack func(folder string) error) (*Root, error) {
	aside, err := os.MkdirTemp(k.Scratch, "image-")
	if err != nil {
		return nil, err
	}
	defer beneath.Discard(aside) //nolint:errcheck // the sweep of this process's folder removes it
	tree := filepath.Join(aside, treeName)
	if err := os.Mkdir(tree, 0o755); err != nil {
		return nil, err
	}
	if err := os.Chmod(tree, 0o755); err != nil { // whatever the umask
		return nil, err
	}
	if err := unpack(tree); err != nil {
		return nil, err
	}
	about, err := fingerprint(tree)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(aside, aboutName), []byte(about), 0o600); err != nil {
		return nil, err
	}
	if err := syncAll(aside); err != nil { // a loss of power must not leave a fingerprint without the files
		return nil, err
	}
	folder := filepath.Join(k.Folder, name)
	for try := 0; ; try++ {
		lock, err := k.lock(aside, unix.LOCK_SH)
		if err != nil {
			return nil, err
		}
		err = unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, folder, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // the file system has no such call
			err = os.Rename(aside, folder)
		}
		if err == nil {
			return &Root{Path: filepath.Join(folder, treeName), lock: lock}, nil
		}
		lock.Close()
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.ENOTEMPTY) || try > 1 {
			return nil, fmt.Errorf("keep the unpacked image: %w", err)
		}
		if root, err := k.Open(name); !errors.Is(err, fs.ErrNotExist) {
			return root, err
		}
	}
}

// syncAll makes the writes durable by a sync of the whole file system.
func syncAll(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer f.Close() // nothing was written
	return unix.Syncfs(int(f.Fd()))
}

// Trim removes images that no process has used for a week.
func (k Kept) Trim(now time.Time) error {
	entries, err := os.ReadDir(k.Folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(k.Folder, e.Name(), aboutName))
		if err == nil && now.Sub(info.ModTime()) > maxUnused {
			errs = append(errs, k.remove(e.Name()))
		}
	}
	return errors.Join(errs...)
}

// remove removes an image, unless a process uses it.
func (k Kept) remove(name string) error {
	folder := filepath.Join(k.Folder, name)
	lock, err := k.lock(folder, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	aside, err := os.MkdirTemp(k.Scratch, "image-")
	if err == nil {
		err = os.Rename(folder, filepath.Join(aside, "old"))
	}
	if err == nil {
		err = beneath.Discard(aside)
	}
	return err
}
