package runner

import (
	"errors"
	"syscall"

	"e3/internal/host/room"
)

// command is what a request starts, whichever way: in a closed room, traced, or as a child of this thread. paths are the
// files to execute, of which the first that exists counts.
func (t *task) command(r *spawnRequest, paths []string, dir string, files *descriptors) *room.Spec {
	spec := &room.Spec{Paths: paths, Argv: r.argv, Env: r.env, Dir: dir, Group: t.group()}
	for i, fd := range files.standard {
		spec.Files[i] = int(fd)
	}
	return spec
}

// startOpen starts a command in the open room, as a child of this thread.
func (l *laneServer) startOpen(t *task, r *spawnRequest, files *descriptors) (pid int, err error) {
	spec := t.command(r, []string{r.path}, r.dir, files)
	if spec.ReadOnly = r.readOnly; r.traced != "" || spec.ReadOnly != "" && room.MountsReadOnly() {
		return startTraced(t, r, spec)
	}
	if pid, t.pidfd, err = room.StartDirect(spec); !errors.Is(err, errors.ErrUnsupported) {
		return pid, err
	}
	return syscall.ForkExec(r.path, r.argv, &syscall.ProcAttr{ // another processor: see room.StartDirect
		Dir:   r.dir,
		Env:   r.env,
		Files: files.standard[:],
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: &t.pidfd, UseCgroupFD: t.leaf != nil, CgroupFD: t.group()},
	})
}
