//go:build amd64 || arm64

package room

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// A call is one system call of a program. Its arguments are numbers and addresses in a memory.
type call struct {
	trap uintptr
	args [6]uintptr
	step Step
	hint uint32 // an errno that does not count as a failure; 0: none
	how  how
}

// how modifies a call.
type how uint32

const (
	saves   how = 1 << iota // its result is the descriptor that later calls use
	uses                    // its first argument is that descriptor
	ignores                 // its failure does not matter
)

// A program is a list of system calls that a forked process can work off without the Go runtime.
type program struct {
	*memory
	calls []call
	step  Step // step of the calls that are added next
}

// add appends a call. The caller may set how and hint of the result before the next one.
func (p *program) add(trap uintptr, args ...uintptr) *call {
	c := call{trap: trap, step: p.step}
	copy(c.args[:], args)
	p.calls = append(p.calls, c)
	return &p.calls[len(p.calls)-1]
}

// at makes the working directory the base of relative paths.
var at = func() uintptr { n := unix.AT_FDCWD; return uintptr(n) }()

func (p *program) mkdir(path string) {
	p.add(unix.SYS_MKDIRAT, at, p.text(path), 0o755).hint = uint32(unix.EEXIST)
}

// place makes an empty file, for a mount.
func (p *program) place(path string) {
	p.add(unix.SYS_MKNODAT, at, p.text(path), unix.S_IFREG|0o644, 0).hint = uint32(unix.EEXIST)
}

func (p *program) symlink(target, path string) {
	p.add(unix.SYS_SYMLINKAT, p.text(target), at, p.text(path)).hint = uint32(unix.EEXIST)
}

func (p *program) mount(source, target, kind string, flags uintptr, data string) *call {
	var k, d uintptr
	if kind != "" {
		k = p.text(kind)
	}
	if data != "" {
		d = p.text(data)
	}
	return p.add(unix.SYS_MOUNT, p.text(source), p.text(target), k, flags, d)
}

// bind shows source, with what is mounted below it, at target.
func (p *program) bind(source, target string) *call {
	return p.mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")
}

// restrict sets attributes of the mount at path and those below it.
func (p *program) restrict(path string, attributes uint64) *call {
	attr := store(p.memory, unix.MountAttr{Attr_set: attributes})
	return p.add(unix.SYS_MOUNT_SETATTR, at, p.text(path), unix.AT_RECURSIVE, attr, unsafe.Sizeof(unix.MountAttr{}))
}

// write writes a file, and makes it if flags say so.
func (p *program) write(path, content string, flags int) {
	p.add(unix.SYS_OPENAT, at, p.text(path), uintptr(flags|unix.O_WRONLY|unix.O_CLOEXEC), 0o644).how = saves
	p.add(unix.SYS_WRITE, 0, p.text(content), uintptr(len(content))).how = uses
	p.add(unix.SYS_CLOSE, 0).how = uses
}

// hold opens a file with O_PATH, under a descriptor of its own. The result is the file's name for mounts.
func (p *program) hold(path string, number int) {
	p.add(unix.SYS_OPENAT, at, p.text(path), unix.O_PATH|unix.O_CLOEXEC, 0).how = saves
	p.add(unix.SYS_DUP3, 0, uintptr(number), unix.O_CLOEXEC).how = uses
	p.add(unix.SYS_CLOSE, 0).how = uses
}
