package runner

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Occupants looks for processes that have something open. One value serves many searches, one at a time: it remembers
// the threads of the kernel, a third or more of all processes, and skips them. The zero value is ready to use.
type Occupants struct {
	all    places
	kernel map[int]thread // threads of the latest search, by process id
}

// thread is a process without a program.
type thread struct {
	number uint64 // inode of its folder in /proc: each process gets a new inode, even if its id is reused
	sure   bool   // two searches have found no program: a new thread of a program has none for microseconds
}

// In returns the entries of a folder in which a process other than this one works or has a file open, as far as this
// user can see. Processes with a private mount namespace are matched by the folder's own name, which must be unique.
// known is false if the system does not show this.
func (o *Occupants) In(folder string) (entries map[string]bool, known bool) {
	dir, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer unix.Close(dir)
	entries = map[string]bool{}
	infix := []byte("/" + filepath.Base(folder) + "/")
	self := os.Getpid()
	kernel := map[int]thread{}
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.ReadDirent(dir, buf)
		if err != nil {
			return nil, false
		}
		if n <= 0 {
			o.kernel = kernel
			return entries, known
		}
		for rest := buf[:n]; len(rest) > 0; {
			var pid int
			var number uint64
			if pid, number, rest = firstProcess(rest); pid == 0 {
				continue
			}
			known = known || pid == self
			if pid == self {
				continue
			}
			before, again := o.kernel[pid]
			again = again && before.number == number
			if again && before.sure {
				kernel[pid] = before
				continue
			}
			if o.all.visit(pid, func(path []byte) {
				if _, rest, found := bytes.Cut(path, infix); found {
					entry, _, _ := strings.Cut(string(rest), "/")
					entries[strings.TrimSuffix(entry, " (deleted)")] = true
				}
			}) {
				kernel[pid] = thread{number, again}
			}
		}
	}
}

// firstProcess cuts the first entry off the kernel's list of /proc. pid is 0 if it is no process.
func firstProcess(list []byte) (pid int, number uint64, rest []byte) {
	const inode, length, text = unsafe.Offsetof(unix.Dirent{}.Ino), unsafe.Offsetof(unix.Dirent{}.Reclen), unsafe.Offsetof(unix.Dirent{}.Name)
	end := int(binary.NativeEndian.Uint16(list[length:]))
	pid, err := strconv.Atoi(unix.ByteSliceToString(list[text:end]))
	if err != nil {
		pid = 0
	}
	return pid, binary.NativeEndian.Uint64(list[inode:]), list[end:]
}

// Occupied is In with a new Occupants.
func Occupied(folder string) (entries map[string]bool, known bool) {
	var o Occupants
	return o.In(folder)
}
