//go:build amd64 || arm64

package room

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memorySize bounds the arguments, the environment and the calls of a command. The kernel takes at most 6 MiB of
// arguments and environment. Pages that are not used take no memory.
const memorySize = 16 << 20

// keptMemory is the amount of memory that stays with an idle slot.
const keptMemory = 1 << 20

// A memory is shared with the forks of this process, at the same address in all of them.
type memory struct {
	all  []byte
	base unsafe.Pointer
	used uintptr
	most uintptr // the greatest use since the last trim
	full bool
}

func newMemory() (*memory, error) {
	all, err := unix.Mmap(-1, 0, memorySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map memory for a room: %w", err)
	}
	return &memory{all: all, base: unsafe.Pointer(&all[0])}, nil
}

func (m *memory) free() { _ = unix.Munmap(m.all) }

// reset frees all memory after an offset.
func (m *memory) reset(to uintptr) {
	m.most = max(m.most, m.used)
	m.used, m.full = to, false
	if m.most > keptMemory {
		_ = unix.Madvise(m.all[keptMemory:], unix.MADV_REMOVE)
		m.most = 0
	}
}

// alloc returns the offset of n aligned bytes.
func (m *memory) alloc(n uintptr) uintptr {
	at := (m.used + 7) &^ 7
	if at+n > memorySize {
		m.full = true
		return 0
	}
	m.used = at + n
	return at
}

// address is the address of an offset, for a system call.
func (m *memory) address(offset uintptr) uintptr { return uintptr(m.base) + offset }

// text stores a C string and returns its address.
func (m *memory) text(s string) uintptr {
	at := m.alloc(uintptr(len(s)) + 1)
	if !m.full {
		copy(m.all[at:], s)
		m.all[at+uintptr(len(s))] = 0
	}
	return m.address(at)
}

// bytes stores b and returns its address.
func (m *memory) bytes(b []byte) uintptr {
	at := m.alloc(uintptr(len(b)))
	if !m.full {
		copy(m.all[at:], b)
	}
	return m.address(at)
}

// vector stores a null-terminated list of C strings and returns its address.
func (m *memory) vector(list []string) uintptr {
	at := m.alloc(uintptr(len(list)+1) * unsafe.Sizeof(uintptr(0)))
	for i, s := range list {
		address := m.text(s)
		if m.full {
			return 0
		}
		*(*uintptr)(unsafe.Add(m.base, at+uintptr(i)*unsafe.Sizeof(address))) = address
	}
	if !m.full {
		*(*uintptr)(unsafe.Add(m.base, at+uintptr(len(list))*unsafe.Sizeof(at))) = 0
	}
	return m.address(at)
}

// store stores a value without pointers and returns its address.
func store[T any](m *memory, v T) uintptr {
	at := m.alloc(unsafe.Sizeof(v))
	if !m.full {
		*(*T)(unsafe.Add(m.base, at)) = v
	}
	return m.address(at)
}

// A span is a list in a memory.
type span struct{ at, n uintptr }

// storeList stores a list of values without pointers.
func storeList[T any](m *memory, list []T) span {
	var one T
	at := m.alloc(uintptr(len(list)) * unsafe.Sizeof(one))
	if !m.full && len(list) > 0 {
		copy(unsafe.Slice((*T)(unsafe.Add(m.base, at)), len(list)), list)
	}
	return span{at, uintptr(len(list))}
}
