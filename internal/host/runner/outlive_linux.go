package runner

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// masksInSupervisor: the supervisor masks the output of commands that may outlive this process.
const masksInSupervisor = true

const (
	socketPrefix = "runs-"
	newPrefix    = ".new-" // of a socket that does not listen yet
)

// Elapsed is the time since boot, including time asleep.
func Elapsed() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		// only before Linux 2.6.39; Go needs a later kernel
		panic("runner: this kernel has no CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(t.Nano())
}

// keeping is what the supervisor process needs to outlive its client.
type keeping struct {
	until  time.Duration // first deadline of commands, by Elapsed
	retain time.Duration // Outlive.Retain
	name   string        // name of the socket in its folder
	keeps  int           // number of files to keep open
	client int           // the client's pid; in the supervisor only

	files []*os.File // in the client only: the listening socket, its folder, and the files to keep open
}

// newKeeping makes the socket. Its name appears once it listens, so a socket without a listener is dead.
func newKeeping(o *Outlive, until time.Duration) (k *keeping, err error) {
	for range 5 {
		if k, err = tryKeeping(o, until); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		// The empty folder was removed in between.
	}
	return k, err
}

func tryKeeping(o *Outlive, until time.Duration) (*keeping, error) {
	dir, err := privateDir(o.Dir)
	if err != nil {
		return nil, err
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // the call never fails
	id := hex.EncodeToString(random[:])
	k := &keeping{until: until, retain: o.Retain, name: socketPrefix + id, keeps: len(o.Keep), files: []*os.File{nil, dir}}
	socket, err := listen(dir, newPrefix+id, k.name)
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("make a socket in %s: %w", o.Dir, err)
	}
	k.files[0] = socket
	k.files = append(k.files, o.Keep...)
	return k, nil
}

// privateDir opens the folder of the sockets, and makes it if it is missing.
func privateDir(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	dir, err := openPrivate(path)
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	if err = unix.Fstat(int(dir.Fd()), &stat); err == nil && stat.Mode&0o777 != 0o700 {
		err = unix.Fchmod(int(dir.Fd()), 0o700)
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("make %s private: %w", path, err)
	}
	return dir, nil
}

// openPrivate opens a folder that belongs to this user.
func openPrivate(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		dir.Close()
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if int(stat.Uid) != os.Geteuid() {
		dir.Close()
		return nil, fmt.Errorf("the folder of the supervisors' sockets, %s, belongs to user %d and not to this user, %d: remove it, or name another", path, stat.Uid, os.Geteuid())
	}
	return dir, nil
}

// socketAddress names a socket by the descriptor of its folder: an address holds 108 bytes only.
func socketAddress(dir *os.File, name string) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + name}
}

func listen(dir *os.File, temporary, name string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err = unix.Bind(fd, socketAddress(dir, temporary)); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	if err = unix.Listen(fd, 16); err == nil {
		at := int(dir.Fd())
		err = unix.Renameat(at, temporary, at, name)
	}
	if err != nil {
		_ = unix.Unlinkat(int(dir.Fd()), temporary, 0)
		unix.Close(fd)
		return nil, os.NewSyscallError("listen", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// closeFiles closes the files that the supervisor has inherited.
func (k *keeping) closeFiles() {
	k.files[0].Close()
	k.files[1].Close()
}

// removeSocket cleans up if the supervisor could not start.
func (k *keeping) removeSocket() { _ = unix.Unlinkat(int(k.files[1].Fd()), k.name, 0) }

// descriptors is the number of descriptors that the supervisor inherits for keeping.
func (k *keeping) descriptors() int {
	if k == nil {
		return 0
	}
	return 2 + k.keeps
}

// args are the supervisor's arguments for keeping.
func (k *keeping) args() []string {
	if k == nil {
		return nil
	}
	return []string{"outliving", k.name, strconv.FormatInt(int64(k.until), 10), strconv.FormatInt(int64(k.retain), 10), strconv.Itoa(k.keeps)}
}

// parseKeeping reads the arguments of a supervisor.
func parseKeeping(args []string) (k *keeping, ok bool) {
	const before = 4
	if len(args) <= before {
		return nil, true
	}
	if len(args) != before+5 {
		return nil, false
	}
	client, err0 := strconv.Atoi(args[before-1])
	until, err1 := strconv.ParseInt(args[before+2], 10, 64)
	retain, err2 := strconv.ParseInt(args[before+3], 10, 64)
	keeps, err3 := strconv.Atoi(args[before+4])
	return &keeping{name: args[before+1], until: time.Duration(until), retain: time.Duration(retain), keeps: keeps, client: client},
		errors.Join(err0, err1, err2, err3) == nil && keeps >= 0
}

// maskOutput puts a pipe and a MaskWriter before each of the task's output files.
func (t *task) maskOutput(r *spawnRequest, stdout, stderr int) (newStdout, newStderr int, refused *reply) {
	var err error
	open := func(fd int) int {
		if err != nil {
			return fd
		}
		var to int
		if to, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return fd
		}
		file := os.NewFile(uintptr(to), "output")
		p, pumpErr := newPump(file, r.mask)
		if err = pumpErr; err != nil {
			file.Close()
			return fd
		}
		p.to = file
		t.pumps = append(t.pumps, p)
		go p.copy()
		return int(p.w.Fd())
	}
	newStdout, newStderr = stdout, stderr
	if r.flags&flagStdout != 0 {
		newStdout = open(stdout)
	}
	switch {
	case r.flags&flagStderr != 0:
		newStderr = open(stderr)
	case r.flags&flagMerged != 0:
		newStderr = newStdout
	}
	if err == nil {
		return newStdout, newStderr, nil
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		errno = unix.EMFILE
	}
	return stdout, stderr, &reply{kind: kindFailed, id: r.id, status: uint32(errno)}
}

func (b *backend) extend(until, most time.Duration) {
	_ = b.lanes[0].sendFrame(appendExtend(b.released(), extension{until: until, most: most}))
}

// releaseKept delays the release until the next message. If this process dies first, an adopter finds an end that is
// already recorded.
func (b *backend) releaseKept(identity string) {
	b.mu.Lock()
	b.release = appendRelease(b.release, identity)
	many := len(b.release) >= 4<<10
	b.mu.Unlock()
	if many {
		_ = b.lanes[0].sendFrame(b.released())
	}
}

// released returns the waiting release frames, and forgets them.
func (b *backend) released() (frames []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	frames, b.release = b.release, nil
	return frames
}

func (b *backend) socketName() string {
	if b.keeping == nil {
		return ""
	}
	return b.keeping.name
}
