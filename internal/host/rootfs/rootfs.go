// Package rootfs unpacks the layers of an image into a folder, as an ordinary user. A layer is not trusted: nothing outside of
// the folder is read, made or changed, whatever the layer says.
//
// All files belong to the user. Rights beyond read, write and execute are dropped: no file is set-uid. Device nodes, pipes and
// sockets are left out, because a room has devices of its own and a file of an image is read-only.
package rootfs

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// Limits bound the files that all layers of an image make together. Zero values mean the defaults.
type Limits struct {
	Bytes int64 // total size of files, as the layers declare it; default 64 GiB
	Files int   // number of entries of any kind; default 2 million
}

const (
	defaultBytes = 64 << 30
	defaultFiles = 2 << 20
	maxName      = 4096 // bytes of a path
	maxLinks     = 40   // symbolic links on the way to a path
)

// ErrLayer is wrapped by errors that a layer's content causes. Another attempt would end in the same way.
var ErrLayer = errors.New("the layer is not valid")

// An Unpacker puts layers on top of each other. Nothing else may use the folder meanwhile.
type Unpacker struct {
	root   *os.Root
	path   string
	limits Limits

	bytes int64
	files int
	times map[string]time.Time // times of folders; set once their contents are complete
	made  map[string]bool      // paths that the present layer made, and the folders above them
}

// New returns an Unpacker for an empty folder.
func New(folder string, l Limits) (*Unpacker, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Files <= 0 {
		l.Files = defaultFiles
	}
	return &Unpacker{root: root, path: folder, limits: l, times: map[string]time.Time{}}, nil
}

// Close releases the folder.
func (u *Unpacker) Close() error { return u.root.Close() }

// Layer unpacks a tar archive over the layers before it, and reads it to its end.
func (u *Unpacker) Layer(r io.Reader) error {
	u.made = map[string]bool{".": true}
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrLayer, err)
		}
		if err := u.entry(h, t); err != nil {
			return fmt.Errorf("%.200q: %w", h.Name, err)
		}
	}
	// The digest of the layer covers the bytes behind the archive, too.
	if _, err := io.Copy(io.Discard, io.LimitReader(r, u.limits.Bytes)); err != nil {
		return fmt.Errorf("%w: %w", ErrLayer, err)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLayer, fmt.Sprintf(format, args...))
}

// Names by which a layer removes files of earlier layers.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	internal = ".wh..wh."
)

func (u *Unpacker) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := cleaned(h.Name)
	if err != nil {
		return err
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return invalid("the root is no folder")
		}
		u.times["."] = h.ModTime
		return nil
	}
	if u.files++; u.files > u.limits.Files {
		return invalid("the image has more than %d files", u.limits.Files)
	}
	dir, base := path.Split(name)
	if strings.HasPrefix(base, whiteout) {
		return u.whiteout(path.Clean(dir), base)
	}
	parent, err := u.folder(path.Clean(dir))
	if err != nil {
		return err
	}
	at := path.Join(parent, base)
	switch h.Typeflag {
	case tar.TypeDir:
		err = u.makeDir(at, h)
	case tar.TypeReg, tar.TypeGNUSparse:
		err = u.makeFile(at, h, content)
	case tar.TypeSymlink:
		err = u.makeSymlink(at, h)
	case tar.TypeLink:
		err = u.makeLink(at, h)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return u.clear(at)
	default:
		err = invalid("an entry of type %q is not known", h.Typeflag)
	}
	if err == nil {
		u.made[at] = true
	}
	return err
}

// cleaned is the path of an entry below the root.
func cleaned(name string) (string, error) {
	switch {
	case name == "" || len(name) > maxName:
		return "", invalid("a path has %d bytes", len(name))
	case strings.ContainsRune(name, 0):
		return "", invalid("a path has a NUL")
	case slices.Contains(strings.Split(name, "/"), ".."):
		return "", invalid("the path goes up")
	}
	return path.Clean(strings.TrimLeft(name, "/") + "/."), nil
}

// resolve follows symbolic links in the folders of a path as the image's programs would, with the folder as their root.
// It follows the last element only if that must be a folder. With mk it makes missing parts, as folders.
func (u *Unpacker) resolve(name string, mk bool) (string, error) {
	at := "."
	rest := strings.Split(name, "/")
	links := 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		info, err := u.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist) && mk:
			if u.files++; u.files > u.limits.Files {
				return "", invalid("the image has more than %d files", u.limits.Files)
			}
			if err := u.root.Mkdir(next, 0o755); err != nil {
				return "", err
			}
			if err := u.root.Chmod(next, 0o755); err != nil { // whatever the umask
				return "", err
			}
			u.times[next] = time.Unix(0, 0)
		case err != nil:
			return "", err
		case info.Mode().Type() == fs.ModeSymlink:
			if links++; links > maxLinks {
				return "", invalid("too many links lead to %.200q", name)
			}
			target, err := u.root.Readlink(next)
			if err != nil {
				return "", err
			}
			if strings.HasPrefix(target, "/") {
				at = "."
			}
			rest = append(strings.Split(target, "/"), rest...)
			continue
		case !info.IsDir():
			return "", invalid("%.200q is no folder", next)
		}
		at = next
	}
	return at, nil
}

// folder resolves the path of a folder, and makes missing folders on it. All of them then belong to the present layer.
func (u *Unpacker) folder(name string) (string, error) {
	at, err := u.resolve(name, true)
	if err != nil {
		return "", err
	}
	for p := at; !u.made[p]; p = path.Dir(p) {
		u.made[p] = true
	}
	return at, nil
}

// clear removes the entry at a path.
func (u *Unpacker) clear(at string) error {
	info, err := u.root.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.IsDir() {
		if err := u.forget(at); err != nil {
			return err
		}
	}
	return u.root.RemoveAll(at)
}

// forget drops the times of a removed folder, and of the folders below it. It costs as much as the removal.
func (u *Unpacker) forget(at string) error {
	delete(u.times, at)
	dir, err := u.root.Open(at)
	if err != nil {
		return err
	}
	entries, err := dir.ReadDir(-1)
	dir.Close()
	for _, e := range entries {
		if err == nil && e.IsDir() {
			err = u.forget(path.Join(at, e.Name()))
		}
	}
	return err
}

func (u *Unpacker) makeDir(at string, h *tar.Header) error {
	if info, err := u.root.Lstat(at); err != nil || !info.IsDir() {
		if err := u.clear(at); err != nil {
			return err
		}
		if err := u.root.Mkdir(at, 0o700); err != nil {
			return err
		}
	}
	u.times[at] = h.ModTime
	return u.root.Chmod(at, h.FileInfo().Mode().Perm()|0o700)
}

func (u *Unpacker) makeFile(at string, h *tar.Header, content io.Reader) error {
	if h.Size < 0 || h.Size > u.limits.Bytes-u.bytes {
		return invalid("the image has more than %d bytes", u.limits.Bytes)
	}
	u.bytes += h.Size
	if err := u.clear(at); err != nil {
		return err
	}
	f, err := u.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrLayer, err)
	}
	if e := f.Chmod(h.FileInfo().Mode().Perm() | 0o400); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return u.root.Chtimes(at, h.ModTime, h.ModTime)
}

func (u *Unpacker) makeSymlink(at string, h *tar.Header) error {
	if h.Linkname == "" || len(h.Linkname) > maxName || strings.ContainsRune(h.Linkname, 0) {
		return invalid("a symbolic link to %d bytes", len(h.Linkname))
	}
	if err := u.clear(at); err != nil {
		return err
	}
	if err := u.root.Symlink(h.Linkname, at); err != nil { // a link may lead anywhere: it is followed only in a room
		return err
	}
	return setLinkTime(u.path+"/"+at, h.ModTime) // the folders on the path are no links
}

func (u *Unpacker) makeLink(at string, h *tar.Header) error {
	name, err := cleaned(h.Linkname)
	if err != nil {
		return fmt.Errorf("hard link: %w", err)
	}
	dir, err := u.resolve(path.Dir(name), false)
	if err != nil {
		return linkError(name, err)
	}
	target := path.Join(dir, path.Base(name))
	info, err := u.root.Lstat(target)
	switch {
	case err != nil:
		return linkError(name, err)
	case info.IsDir():
		return invalid("a hard link to the folder %.200q", name)
	case target == at:
		return nil
	}
	if err := u.clear(at); err != nil {
		return err
	}
	return u.root.Link(target, at)
}

// linkError tells what is wrong with the target of a hard link.
func linkError(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return invalid("a hard link to %.200q, which does not exist", name)
	}
	return err
}

// whiteout removes files of earlier layers.
func (u *Unpacker) whiteout(dir, base string) error {
	if base != opaque && strings.HasPrefix(base, internal) {
		return nil // metadata of the file system on which the layer was made
	}
	hidden := strings.TrimPrefix(base, whiteout)
	if base != opaque && (hidden == "" || hidden == "." || hidden == "..") {
		return invalid("a whiteout of %q", hidden)
	}
	at, err := u.resolve(dir, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if base == opaque {
		return u.hideChildren(at)
	}
	return u.hide(path.Join(at, hidden))
}

// hide removes the entry at a path, except what the present layer has put there.
func (u *Unpacker) hide(at string) error {
	if !u.made[at] {
		return u.clear(at)
	}
	if info, err := u.root.Lstat(at); err != nil || !info.IsDir() {
		return nil //nolint:nilerr // nothing is there
	}
	return u.hideChildren(at)
}

func (u *Unpacker) hideChildren(at string) error {
	dir, err := u.root.Open(at)
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := u.hide(path.Join(at, name)); err != nil {
			return err
		}
	}
	return nil
}

// Finish gives folders their times, after the last change.
func (u *Unpacker) Finish() error {
	for at, t := range u.times {
		if err := u.root.Chtimes(at, t, t); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
