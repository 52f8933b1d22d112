package atomicfile

import (
	"encoding/binary"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxDepth bounds the folders that removeAll has open at once.
const maxDepth = 64

// removeAll is os.RemoveAll with a third of its system calls: an empty folder takes one. It never follows a link. A tree
// that it cannot remove is left to os.RemoveAll, which says why.
func removeAll(path string) error {
	if removeAt(unix.AT_FDCWD, path, 0) {
		return nil
	}
	return os.RemoveAll(path)
}

// removeAt removes the folder name in the open folder dir, with all that is in it.
func removeAt(dir int, name string, depth int) bool {
	err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if err == nil || err == unix.ENOENT {
		return true
	}
	if err != unix.ENOTEMPTY && err != unix.EEXIST || depth == maxDepth || !empty(dir, name, depth) {
		return false
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	return err == nil || err == unix.ENOENT
}

// empty removes what is in a folder.
func empty(dir int, name string, depth int) bool {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	buf := make([]byte, 8<<10)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err != nil {
			return false
		}
		if n <= 0 {
			return true
		}
		for rest := buf[:n]; len(rest) > 0; {
			var entry string
			var folder bool
			if entry, folder, rest = firstEntry(rest); entry == "" {
				continue
			}
			if folder {
				if !removeAt(fd, entry, depth+1) {
					return false
				}
				continue
			}
			err := unix.Unlinkat(fd, entry, 0)
			if err != nil && err != unix.ENOENT && (err != unix.EISDIR || !removeAt(fd, entry, depth+1)) {
				return false
			}
		}
	}
}

// firstEntry cuts the first entry off what the kernel has listed; its name is "" for the folder itself and the one above.
// folder is false if the file system does not tell.
func firstEntry(list []byte) (name string, folder bool, rest []byte) {
	const length, kind, text = unsafe.Offsetof(unix.Dirent{}.Reclen), unsafe.Offsetof(unix.Dirent{}.Type), unsafe.Offsetof(unix.Dirent{}.Name)
	end := int(binary.NativeEndian.Uint16(list[length:]))
	name = unix.ByteSliceToString(list[text:end])
	if name == "." || name == ".." {
		name = ""
	}
	return name, list[kind] == unix.DT_DIR, list[end:]
}
