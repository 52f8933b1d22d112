package fs

import (
	"bytes"
	"encoding/binary"
	"errors"
	iofs "io/fs"
	"slices"

	"golang.org/x/sys/unix"
)

// readDir returns the entries of a folder in no particular order; none if it does not exist.
//
// An entry that exists throughout the call must be found, even while other entries come, go and are renamed over. One
// getdents call sees the folder at one moment. Between two calls, however, some file systems move a replaced entry from
// the unread part to the part that was already read. So a folder that does not fit into a small buffer is read anew into a
// large one. If that takes several calls too, it is read twice, and the result has the entries of both passes. The caller
// opens an entry to find out whether it still exists.
func (t tree) readDir(dir string) ([]entry, error) {
	fd, err := t.Descriptor(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, t.foreign(join(dir, "."), err) // the "." asks for a folder
	}
	defer unix.Close(fd)

	entries, more, err := getdents(fd, make([]byte, 4<<10), 1, nil)
	if err == nil && more {
		large := make([]byte, 256<<10)
		again := func(most int, entries []entry) ([]entry, bool, error) {
			if _, err := unix.Seek(fd, 0, 0); err != nil {
				return nil, false, err
			}
			return getdents(fd, large, most, entries)
		}
		if entries, more, err = again(1, entries[:0]); err == nil && more {
			if entries, _, err = again(0, entries[:0]); err == nil {
				entries, _, err = again(0, entries)
			}
			entries = once(entries)
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // it was removed after it was opened
	}
	if err != nil {
		return nil, &iofs.PathError{Op: "read", Path: t.Path(dir), Err: err}
	}
	return entries, nil
}

// once returns the first entry of each name.
func once(entries []entry) []entry {
	seen := make(map[string]bool, len(entries))
	return slices.DeleteFunc(entries, func(e entry) bool {
		before := seen[e.name]
		seen[e.name] = true
		return before
	})
}

// maxDirent is the size of the longest entry.
const maxDirent = 19 + 255 + 1 + 7

// getdents reads the entries, with at most the given number of calls; 0 is no limit. more tells that there are, or may
// be, more entries.
func getdents(fd int, buf []byte, most int, entries []entry) (_ []entry, more bool, err error) {
	for calls := 1; ; calls++ {
		n, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			calls--
			continue
		}
		if err != nil || n == 0 {
			return entries, false, err
		}
		if most > 0 && calls > most {
			return entries, true, nil
		}
		// struct linux_dirent64 { u64 ino; i64 off; u16 reclen; u8 type; char name[] }
		for b := buf[:n]; len(b) >= 19; {
			size := min(max(int(binary.NativeEndian.Uint16(b[16:])), 19), len(b))
			name, _, _ := bytes.Cut(b[19:size], []byte{0})
			if s := string(name); s != "." && s != ".." {
				entries = append(entries, entry{name: s, kind: dirent(b[18])})
			}
			b = b[size:]
		}
		if most > 0 && calls == most && n > len(buf)-maxDirent { // the buffer is full
			return entries, true, nil
		}
	}
}

func dirent(t byte) entryKind {
	switch t {
	case unix.DT_REG:
		return isFile
	case unix.DT_DIR:
		return isDir
	case unix.DT_UNKNOWN:
		return isUnknown
	}
	return isOther
}
