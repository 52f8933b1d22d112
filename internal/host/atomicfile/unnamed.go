package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// CreateUnnamed makes a file without a name on dir's file system; nothing of it survives the death of this process. The
// umask applies to perm. LinkOpen gives it a name.
func CreateUnnamed(dir string, perm fs.FileMode) (*os.File, error) { return createUnnamed(dir, perm) }

// UnnamedUnsupported reports whether an error of CreateUnnamed says that the file system or the kernel has no such
// files.
func UnnamedUnsupported(err error) bool { return unnamedUnsupported(err) }

// CanLinkOpen reports whether LinkOpen can work; on Linux it needs /proc.
func CanLinkOpen() bool { return canLinkOpen() }

// LinkOpen gives the open file f the name path, even if f has been renamed. If path exists, the error matches
// [fs.ErrExist].
func LinkOpen(f *os.File, path string) error { return linkOpen(f, path) }

// NewHidden begins a file in dir that will get the given name there. Where possible it has no name until then, so that
// a crash leaves nothing; elsewhere its name is "." followed by the given one. The umask applies to perm.
func NewHidden(dir, name string, perm fs.FileMode) (*File, error) {
	if canLinkOpen() {
		f, err := createUnnamed(dir, perm)
		if err == nil {
			return &File{File: f, unnamed: true, name: name, perm: perm}, nil
		}
		if !unnamedUnsupported(err) {
			return nil, err
		}
	}
	return newHiddenNamed(dir, name, perm)
}

// NewScratch makes a file in dir without a final name, for use until it is discarded. On systems where an open file
// must have a name, it has a hidden name, and a crash leaves the file.
func NewScratch(dir, name string) (*File, error) {
	f, err := NewHidden(dir, name, 0o600)
	if err == nil && !f.unnamed {
		f.unnamed = os.Remove(f.Name()) == nil
	}
	return f, err
}

func newHiddenNamed(dir, name string, perm fs.FileMode) (*File, error) {
	var f *os.File
	err := eachHidden(dir, name, func(path string) (err error) {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &File{File: f}, nil
}

// eachHidden calls do with hidden names derived from name, until one of them is free.
func eachHidden(dir, name string, do func(path string) error) error {
	name = strings.ToValidUTF8(name[:min(len(name), 100)], "") // a file name has at most 255 bytes
	for {
		err := do(filepath.Join(dir, fmt.Sprintf(".%s.%08x.e3", name, rand.Uint32())))
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
}

// link gives a file without a name the name path. To replace an existing file, it first gives the file a hidden name,
// and then renames it.
func (f *File) link(path string, replace bool) error {
	err := linkOpen(f.File, path)
	if err == nil || errors.Is(err, fs.ErrExist) && !replace {
		return err
	}
	var hidden string
	err = eachHidden(filepath.Dir(path), f.name, func(path string) error {
		hidden = path
		return linkOpen(f.File, path)
	})
	if err != nil {
		// On some file systems unnamed files can never get a name.
		if hidden, err = f.copyNamed(filepath.Dir(path)); err != nil {
			return err
		}
	}
	if err := move(hidden, path, replace); err != nil {
		return errors.Join(err, os.Remove(hidden))
	}
	return nil
}

// copyNamed copies the file to a new file with a hidden name, and syncs that.
func (f *File) copyNamed(dir string) (path string, err error) {
	named, err := newHiddenNamed(dir, f.name, f.perm)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, named.Discard())
		}
	}()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	if _, err := io.Copy(named.File, f.File); err != nil {
		return "", err
	}
	if err := named.Sync(); err != nil {
		return "", err
	}
	return named.Name(), named.Close()
}
