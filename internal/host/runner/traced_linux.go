package runner

import (
	"encoding/json"
	"errors"
	"os"
	"sync"
	"syscall"

	"e3/internal/host/room"
	"e3/internal/host/trace"

	"golang.org/x/sys/unix"
)

// startOpen starts a command in the open room, as a child of this thread.
func (l *laneServer) startOpen(t *task, r *spawnRequest, files *descriptors) (pid int, err error) {
	if r.traced != "" {
		return startTraced(t, r, files)
	}
	spec := &room.Spec{Paths: []string{r.path}, Argv: r.argv, Env: r.env, Dir: r.dir}
	for i, fd := range files.standard {
		spec.Files[i] = int(fd)
	}
	spec.Group = t.group()
	if pid, t.pidfd, err = room.StartDirect(spec); !errors.Is(err, errors.ErrUnsupported) {
		return pid, err
	}
	return syscall.ForkExec(r.path, r.argv, &syscall.ProcAttr{
		Dir:   r.dir,
		Env:   r.env,
		Files: files.standard[:],
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: &t.pidfd, UseCgroupFD: t.leaf != nil, CgroupFD: t.group()},
	})
}

func startTraced(t *task, r *spawnRequest, files *descriptors) (pid int, err error) {
	spec := &room.Spec{Paths: []string{r.path}, Argv: r.argv, Env: r.env, Dir: r.dir}
	for i, fd := range files.standard {
		spec.Files[i] = int(fd)
	}
	spec.Group = t.group()
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
