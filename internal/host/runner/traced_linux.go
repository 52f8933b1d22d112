package runner

import (
	"encoding/json"
	"os"
	"sync"

	"e3/internal/host/room"
	"e3/internal/host/trace"

	"golang.org/x/sys/unix"
)

// startTraced starts a command in the open room whose opens of files are traced, or which has a folder that it cannot
// change.
func startTraced(t *task, r *spawnRequest, spec *room.Spec) (pid int, err error) {
	end, err := withTracer(r, spec)
	if err != nil {
		return 0, err
	}
	pid, err = room.StartOpen(spec)
	end()
	if err != nil {
		return 0, err
	}
	if t.pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
		t.pidfd = -1
	}
	return pid, nil
}

// forbidden reports whether this process may not read the paths that its commands give to the kernel: a setting of Yama.
var forbidden = sync.OnceValue(func() bool {
	scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	return err == nil && len(scope) > 0 && scope[0] >= '2' && os.Geteuid() != 0
})

// withTracer makes the tracer of a command, and the socket through which the tracer gets the listener. The caller calls
// end once the command has started or failed to start.
func withTracer(r *spawnRequest, spec *room.Spec) (end func(), err error) {
	if r.traced == "" {
		return func() {}, nil
	}
	if forbidden() {
		return nil, &room.Error{Step: room.StepTrace, Err: unix.EPERM}
	}
	var look trace.Look
	if err := json.Unmarshal([]byte(r.traced), &look); err != nil {
		return nil, unix.EINVAL
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	tracer, err := trace.New(&look)
	if err != nil {
		unix.Close(pair[0])
		unix.Close(pair[1])
		return nil, err
	}
	spec.Trace, spec.Looks = pair[1], look.Looks
	go tracer.Await(pair[0]) // the command does not start before this
	return func() { unix.Close(pair[1]) }, nil
}
