//go:build amd64 || arm64

package room_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"e3/internal/host/room"
	"e3/internal/host/trace"
)

// A signal does not interrupt a call that the tracer has taken: with a handler that does not restart calls, the open would
// fail because it is traced.
func TestTakenCallIsNotInterrupted(t *testing.T) {
	perl, err := exec.LookPath("perl")
	switch {
	case err != nil:
		t.Skip("there is no perl: install perl")
	case !trace.Uninterrupted():
		t.Skip("this kernel interrupts traced calls: it takes Linux 5.19 or later")
	}
	dir := t.TempDir()
	marker := filepath.Join(dir, "marker")
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[0])
	defer unix.Close(ends[1])
	taken := make(chan bool, 1)
	go signalled(ends[0], marker, taken)

	runtime.LockOSThread() // the command dies with its thread
	defer runtime.UnlockOSThread()
	fd := int(out.Fd())
	pid, err := room.StartOpen(&room.Spec{
		Paths: []string{perl}, Dir: dir, Env: []string{"PATH=/usr/bin:/bin"}, Files: [3]int{fd, fd, fd}, Trace: ends[1],
		Argv: []string{"perl", "-e", `$SIG{ALRM} = sub {}; print open(my $f, "<", $ARGV[0]) ? "opened" : $!`, marker},
	})
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err = unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			break
		}
	}
	if err != nil || !<-taken {
		t.Fatalf("the command never opened its file: %v", err)
	}
	if text, err := os.ReadFile(out.Name()); err != nil || string(text) != "opened" {
		t.Errorf("the command says %q, %v", text, err)
	}
}

// signalled lets all calls go on, and sends a signal to the caller of the first one that opens a file, once it has taken it.
func signalled(socket int, marker string, taken chan<- bool) {
	defer close(taken)
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), control, 0)
	if err != nil {
		return
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) == 0 {
		return
	}
	rights, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return
	}
	listener := rights[0]
	defer unix.Close(listener)
	sent := false
	for {
		var call struct { // struct seccomp_notif
			id         uint64
			pid, flags uint32
			number     int32
			arch       uint32
			at         uint64
			args       [6]uint64
		}
		ioctl := func(request uint, at unsafe.Pointer) unix.Errno {
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), uintptr(request), uintptr(at))
			return errno
		}
		fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err == unix.EINTR {
			continue
		} else if err != nil || fds[0].Revents&unix.POLLIN == 0 {
			return
		}
		if ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&call)) != 0 {
			continue
		}
		if !sent && call.number == unix.SYS_OPENAT && textAt(call.pid, call.args[1], len(marker)) == marker {
			sent = true
			taken <- true
			_ = unix.Kill(int(call.pid), unix.SIGALRM)
			for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); { // an interrupted call is not valid any more
				if ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&call.id)) != 0 {
					break
				}
				runtime.Gosched()
			}
		}
		on := struct { // struct seccomp_notif_resp
			id           uint64
			value        int64
			fault, flags uint32
		}{id: call.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&on))
	}
}

func textAt(pid uint32, address uint64, n int) string {
	text := make([]byte, n)
	local := []unix.Iovec{{Base: &text[0], Len: uint64(n)}}
	remote := []unix.RemoteIovec{{Base: uintptr(address), Len: n}}
	got, err := unix.ProcessVMReadv(int(pid), local, remote, 0)
	if err != nil {
		return ""
	}
	return string(text[:got])
}
