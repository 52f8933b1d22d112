package git

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"e3/internal/host/beneath"
)

// Edits are the differences between a folder of a worktree and the commit that is checked out, as the index tells them.
type Edits struct {
	Modified int  // tracked files that are not as in the index, or are gone
	Staged   bool // the index was changed since it was last written as a commit's tree, by git add for example
}

// Bounds of what Modified reads.
const (
	maxIndex  = 256 << 20
	maxHashed = 256 << 20 // of the files whose times do not tell
)

var errIndex = errors.New("the index of git is in a form that e3 does not read")

// Modified compares the tracked files in a folder with the index, as "git status --untracked-files=no" does: by size and
// times, and by content where these do not tell. Filters, such as those of LFS, are not run: a file whose times changed
// and whose content goes through one counts as modified.
func Modified(dir string) (Edits, error) {
	edits, err := modified(dir)
	if path := new(fs.PathError); errors.As(err, &path) {
		err = fmt.Errorf("%s %s: %w", path.Op, filepath.Base(path.Path), path.Err)
	}
	return edits, err
}

func modified(dir string) (Edits, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Edits{}, err
	}
	gitdir, err := find(dir)
	if err != nil {
		return Edits{}, err
	}
	head, err := read(dir)
	if err != nil {
		return Edits{}, err
	}
	at, err := beneath.Open(gitdir)
	if err != nil {
		return Edits{}, err
	}
	defer at.Close()
	f, size, err := open(at, "index")
	if errors.Is(err, fs.ErrNotExist) {
		return Edits{}, nil // nothing is tracked yet
	}
	if err != nil {
		return Edits{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Edits{}, err
	}
	if size > maxIndex {
		return Edits{}, errIndex
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return Edits{}, err
	}
	top, err := topOf(dir)
	if err != nil {
		return Edits{}, err
	}
	rel, err := filepath.Rel(top, dir)
	if err != nil {
		return Edits{}, err
	}
	root, err := os.Open(top)
	if err != nil {
		return Edits{}, err
	}
	defer root.Close()
	c := comparison{top: top, root: int(root.Fd()), at: info.ModTime(), new: sha1.New, left: maxHashed}
	if len(head.Commit) == 2*sha256.Size {
		c.new = sha256.New
	}
	if c.within = filepath.ToSlash(rel) + "/"; rel == "." {
		c.within = ""
	}
	return c.index(data)
}

// topOf is the top of the worktree in which a folder lies.
func topOf(dir string) (string, error) {
	for top, last := dir, ""; top != last; top, last = filepath.Dir(top), top {
		if _, err := os.Lstat(filepath.Join(top, ".git")); err == nil {
			return top, nil
		}
	}
	return "", ErrNone
}

// A comparison compares the files below one folder of a worktree with its index.
type comparison struct {
	top    string
	root   int       // top, open
	within string    // the folder, with a slash at its end; "" is the whole worktree
	at     time.Time // when the index was written: later times of files tell nothing
	new    func() hash.Hash
	left   int64 // bytes that may still be hashed
}

// Parts of an entry of the index (gitformat-index).
const (
	entryStat      = 40 // times, device, inode, mode, owner and size, before the hash
	flagAssume     = 0x8000
	flagExtended   = 0x4000
	flagStage      = 0x3000
	flagSkip       = 0x4000 // of the extended ones
	modeType       = 0o170000
	modeRegular    = 0o100000
	modeLink       = 0o120000
	executableBits = 0o100
)

func (c *comparison) index(data []byte) (edits Edits, err error) {
	sum := c.new().Size()
	if len(data) < 12+sum || string(data[:4]) != "DIRC" {
		return edits, errIndex
	}
	version, count := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	if version < 2 || version > 4 {
		return edits, errIndex
	}
	data = data[12 : len(data)-sum]
	var name []byte
	conflict := ""
	for range count {
		head := entryStat + sum + 2
		if len(data) < head {
			return edits, errIndex
		}
		entry := data[:head]
		flags, more := binary.BigEndian.Uint16(entry[head-2:]), uint16(0)
		rest := data[head:]
		if flags&flagExtended != 0 {
			if version < 3 || len(rest) < 2 {
				return edits, errIndex
			}
			more, rest = binary.BigEndian.Uint16(rest), rest[2:]
		}
		keep := 0
		if version == 4 {
			cut, n := strip(rest)
			if n == 0 || cut > uint64(len(name)) {
				return edits, errIndex
			}
			keep, rest = len(name)-int(cut), rest[n:]
		}
		end := bytes.IndexByte(rest, 0)
		if end < 0 {
			return edits, errIndex
		}
		name = append(name[:keep], rest[:end]...)
		used := len(data) - len(rest) + end + 1
		if version < 4 { // padded with zeros to a multiple of eight
			used = (used + 7) &^ 7
		}
		if used > len(data) {
			return edits, errIndex
		}
		data = data[used:]
		if !bytes.HasPrefix(name, []byte(c.within)) || flags&flagAssume != 0 || more&flagSkip != 0 {
			continue
		}
		switch {
		case flags&flagStage != 0: // of a merge: up to three entries for one file
			if conflict != string(name) {
				conflict = string(name)
				edits.Modified++
			}
		case c.differs(string(name), entry, entry[entryStat:entryStat+sum]):
			edits.Modified++
		}
	}
	edits.Staged, err = staged(data)
	return edits, err
}

// strip reads how many bytes the name of an entry leaves out of the one before, and the number of bytes that say so; 0 if
// they are none.
func strip(data []byte) (value uint64, n int) {
	for n < len(data) && n < 5 {
		b := data[n]
		if n > 0 {
			value++
		}
		value = value<<7 | uint64(b&0x7f)
		if n++; b&0x80 == 0 {
			return value, n
		}
	}
	return 0, 0
}

// differs tells whether a file is not as its entry says.
func (c *comparison) differs(name string, entry, want []byte) bool {
	field := func(i int) uint32 { return binary.BigEndian.Uint32(entry[4*i:]) }
	mode, size := field(6), field(9)
	if mode&modeType != modeRegular && mode&modeType != modeLink {
		return false // a submodule, or a folder that is not checked out
	}
	var st unix.Stat_t // of which there may be 100,000: os.Lstat takes twice as long
	if err := unix.Fstatat(c.root, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return true
	}
	has := uint32(st.Mode)
	if has&modeType != mode&modeType || has&modeType == modeRegular && has&executableBits != mode&executableBits {
		return true
	}
	at := time.Unix(st.Mtim.Unix())
	same := uint32(st.Size) == size && uint32(at.Unix()) == field(2) && (field(3) == 0 || uint32(at.Nanosecond()) == field(3))
	if same && at.Before(c.at) {
		return false
	}
	if size != 0 && uint32(st.Size) != size { // 0 is also what git writes if the time does not tell
		return true
	}
	return !c.hashes(name, mode&modeType == modeLink, st.Size, want)
}

// hashes tells whether the content of a file is that of an object.
func (c *comparison) hashes(name string, link bool, size int64, want []byte) bool {
	if c.left -= size; c.left < 0 {
		return false
	}
	h := c.new()
	fmt.Fprintf(h, "blob %d\x00", size)
	if link {
		target, err := os.Readlink(filepath.Join(c.top, filepath.FromSlash(name)))
		_, _ = io.WriteString(h, target)
		return err == nil && bytes.Equal(h.Sum(nil), want)
	}
	f, err := os.OpenFile(filepath.Join(c.top, filepath.FromSlash(name)), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	n, err := io.Copy(h, io.LimitReader(f, size))
	return err == nil && n == size && bytes.Equal(h.Sum(nil), want)
}

// staged reads the extensions of an index: one has the tree that was last made of it, and loses it at the root with each
// change. Without that extension nothing is known, and nothing said.
func staged(data []byte) (bool, error) {
	for len(data) >= 8 {
		name, size := string(data[:4]), binary.BigEndian.Uint32(data[4:])
		if data = data[8:]; uint64(size) > uint64(len(data)) {
			return false, errIndex
		}
		body := data[:size]
		data = data[size:]
		switch {
		case name == "link": // most entries are in another file
			return false, errIndex
		case name == "TREE":
			_, counts, ok := strings.Cut(string(body), "\x00")
			return ok && strings.HasPrefix(counts, "-"), nil
		}
	}
	return false, nil
}
