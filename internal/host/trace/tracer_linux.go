//go:build amd64 || arm64

package trace

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Tracer answers the calls of one command. Its methods are called by one goroutine.
type Tracer struct {
	places  *places
	project string
	report  *os.File
	found   int               // findings so far
	sought  int               // number of Sought findings among them
	folders map[uint32]string // working directories, by thread; emptied when a thread changes its own
	call    notification
	line    []byte
	text    [unix.PathMax]byte
	link    [unix.PathMax]byte
}

// Possible reports whether this system can trace commands. Whether this machine lets its users trace shows when a
// command is traced.
func Possible() bool { return true }

// notification is struct seccomp_notif. The kernel fills in its own form, which may be longer.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	call  int32
	arch  uint32
	ip    uint64
	args  [6]uint64
	_     [128]byte
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// New makes a tracer. Await or Discard ends it.
func New(look *Look) (*Tracer, error) {
	report, err := os.OpenFile(look.Report, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("report of opened files: %w", err)
	}
	t := &Tracer{places: newPlaces(look), report: report, folders: map[uint32]string{}}
	if len(look.Project) > 0 {
		t.project = look.Project[0]
	}
	return t, nil
}

// serve answers calls until no process has the filter any more, and closes the listener. Once its tracer has ended, a
// command cannot open files.
func (t *Tracer) serve(listener int) {
	defer t.report.Close()
	defer unix.Close(listener)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The caller and this thread take turns: the kernel need not look for an idle processor (Linux 6.6).
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	for t.answer(listener) || alive(listener) {
	}
}

// alive waits for a call, and reports whether a call has come: false once no process has the filter any more.
func alive(listener int) bool {
	fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return false
		default:
			return fds[0].Revents&unix.POLLIN != 0
		}
	}
}

// answer waits for a call and lets the call go on. It returns false if no call has come, or its caller has ended
// meanwhile.
func (t *Tracer) answer(listener int) bool {
	if !waits() && !alive(listener) {
		return false
	}
	t.call = notification{}
	// Other goroutines run meanwhile.
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&t.call))); errno != 0 {
		return false
	}
	t.look(&t.call)
	on := response{id: t.call.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	_, _, _ = unix.RawSyscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&on)))
	return true
}

// waits reports whether this kernel ends the wait for a call once no process has the filter any more (Linux 6.11). With
// earlier kernels poll tells this, which costs one more system call for each call.
var waits = sync.OnceValue(func() bool {
	var name unix.Utsname
	var major, minor int
	if unix.Uname(&name) != nil {
		return false
	}
	n, _ := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return n == 2 && (major > 6 || major == 6 && minor >= 11)
})

// look reports what a call opens or looks for.
func (t *Tracer) look(n *notification) {
	at, name, looks := int32(n.args[0]), n.args[1], false
	switch n.call {
	case unix.SYS_FCHDIR:
		clear(t.folders)
		return
	case unix.SYS_CHDIR:
		defer clear(t.folders)
		at, name = unix.AT_FDCWD, n.args[0]
	case unix.SYS_EXECVE:
		delete(t.folders, n.pid) // the number may belong to another process by now
		at, name = unix.AT_FDCWD, n.args[0]
	case oldOpen:
		at, name = unix.AT_FDCWD, n.args[0]
	case unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2:
		looks = true
	default:
		if slices.Contains(oldLooks, uint32(n.call)) {
			at, name, looks = unix.AT_FDCWD, n.args[0], true
		}
	}
	text := t.read(int(n.pid), uintptr(name))
	if len(text) == 0 || text[0] == '/' && !t.places.relevant(unsafe.String(&text[0], len(text))) {
		return
	}
	if n.call == unix.SYS_OPENAT2 && !t.reads(n) {
		return
	}
	full := string(text)
	if text[0] != '/' {
		folder := t.folder(n.pid, at)
		if folder == "" {
			return
		}
		full = folder + "/" + full
	}
	exists := func(name string) bool {
		var stat unix.Stat_t
		return unix.Lstat("/proc/"+strconv.Itoa(int(n.pid))+"/root"+name, &stat) == nil
	}
	if looks {
		t.add(t.places.sought(path.Clean(full), exists, t.kind))
		return
	}
	found := t.places.find(path.Clean(full), exists, t.kind)
	if n.call == unix.SYS_CHDIR {
		found = slices.DeleteFunc(found, func(f Finding) bool { return f.Kind == File })
	}
	t.add(found)
}

// folder is the path of a folder that a thread has open, or of its working directory; "" if there is none.
func (t *Tracer) folder(thread uint32, fd int32) string {
	if fd == unix.AT_FDCWD {
		if folder, ok := t.folders[thread]; ok {
			return folder
		}
	}
	link := "/proc/" + strconv.Itoa(int(thread)) + "/cwd"
	if fd != unix.AT_FDCWD {
		link = "/proc/" + strconv.Itoa(int(thread)) + "/fd/" + strconv.Itoa(int(fd))
	}
	k, err := unix.Readlink(link, t.link[:])
	if err != nil || k == 0 || k == len(t.link) || t.link[0] != '/' {
		return ""
	}
	folder := string(t.link[:k])
	if fd == unix.AT_FDCWD {
		if len(t.folders) == mostFolders {
			clear(t.folders)
		}
		t.folders[thread] = folder
	}
	return folder
}

// mostFolders bounds the memory of working directories. It is far below the number of threads after which the kernel uses their
// numbers again.
const mostFolders = 256

// add reports findings, up to a bound.
func (t *Tracer) add(found []Finding) {
	for _, f := range found {
		if f.Kind == Sought {
			if t.sought++; t.sought > mostSought {
				return
			}
		}
		if t.found++; t.found > MostFindings {
			return
		}
		t.line = f.Append(t.line[:0])
		_, _ = t.report.Write(t.line)
	}
}

// kind tells what a path of the project is; 0: neither a file nor a folder.
func (t *Tracer) kind(rel string) Kind {
	if t.project == "" {
		return 0
	}
	var stat unix.Stat_t
	if unix.Stat(t.project+"/"+rel, &stat) != nil {
		return 0
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Folder
	}
	return 0
}

// reads reports whether an openat2 reads existing content. Its flags are the first field of struct open_how.
func (t *Tracer) reads(n *notification) bool {
	var flags [8]byte
	if !copyFrom(int(n.pid), uintptr(n.args[2]), flags[:]) {
		return false
	}
	f := *(*uint64)(unsafe.Pointer(&flags))
	return f&notReading == 0 && f&unix.O_ACCMODE != unix.O_WRONLY
}

// read reads a C string of a process; nil if there is no string, or the process's memory cannot be read.
func (t *Tracer) read(pid int, address uintptr) []byte {
	const page = 4096 // reading does not cross into a page that may not exist
	for n := 0; n < len(t.text); {
		size := min(256, page-int(address+uintptr(n))%page, len(t.text)-n)
		if !copyFrom(pid, address+uintptr(n), t.text[n:n+size]) {
			return nil
		}
		if end := bytes.IndexByte(t.text[n:n+size], 0); end >= 0 {
			return t.text[:n+end]
		}
		n += size
	}
	return nil
}

// copyFrom fills b from the memory of a process.
func copyFrom(pid int, address uintptr, b []byte) bool {
	local := unix.Iovec{Base: &b[0]}
	local.SetLen(len(b))
	remote := unix.RemoteIovec{Base: address, Len: len(b)}
	n, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	return errno == 0 && int(n) == len(b)
}

// Discard ends a tracer that will not serve.
func (t *Tracer) Discard() { t.report.Close() }

// Await serves the listener that arrives through a socket, which it closes.
func (t *Tracer) Await(socket int) {
	var data [1]byte
	control := make([]byte, unix.CmsgSpace(4))
	n, listener := -1, -1
	err := error(unix.EINTR)
	for err == unix.EINTR {
		n, _, _, _, err = unix.Recvmsg(socket, data[:], control, unix.MSG_CMSG_CLOEXEC)
	}
	unix.Close(socket)
	if err == nil && n == 1 {
		if messages, err := unix.ParseSocketControlMessage(control); err == nil && len(messages) == 1 {
			if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
				listener = fds[0]
			}
		}
	}
	if listener < 0 { // the command has not started
		t.Discard()
		return
	}
	t.serve(listener)
}
