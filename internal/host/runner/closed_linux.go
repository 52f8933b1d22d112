package runner

import (
	"encoding/json"
	"syscall"
	"time"

	"e3/internal/host/room"

	"golang.org/x/sys/unix"
)

// startClosed starts a command in a closed room. Process 1 of the room adopts a process that loses its parent there, so
// the command needs no search for orphans.
func (l *laneServer) startClosed(t *task, r *spawnRequest, files *descriptors) error {
	var where room.Room
	if err := json.Unmarshal([]byte(r.closed), &where); err != nil {
		return unix.EINVAL
	}
	paths := []string{r.path}
	if r.path == "" {
		paths = room.Candidates(r.argv[0], r.env)
	}
	spec := &room.Spec{Paths: paths, Argv: r.argv, Env: r.env, Dir: room.Work}
	for i, fd := range files.standard {
		spec.Files[i] = int(fd)
	}
	spec.Group = t.group()
	end, err := withTracer(r, spec)
	if err != nil {
		return err
	}
	p, err := l.slots.Start(&where, spec)
	end()
	if err != nil {
		return err
	}
	t.closed, t.pid, t.pidfd = p, p.PID, p.End
	return nil
}

// reapClosed reports a command whose room has ended.
func (l *laneServer) reapClosed(t *task, now time.Time) {
	l.reaping.Lock()
	if t.kept != nil {
		t.kept.pid.Store(0)
	}
	result, err := t.closed.Finish()
	l.reaping.Unlock()
	if err != nil {
		l.refuse(t, err)
		return
	}
	t.end = reply{
		kind:      kindEnded,
		flags:     t.flags,
		id:        t.id,
		pid:       uint32(t.pid),
		status:    uint32(result.Status),
		userCPU:   time.Duration(result.Usage.Utime.Nano()),
		systemCPU: time.Duration(result.Usage.Stime.Nano()),
		peakRSS:   int64(result.Usage.Maxrss) << 10,
		started:   t.started.UnixNano(),
		ended:     now.UnixNano(),
	}
	if t.flags == 0 && l.oom.killed(syscall.WaitStatus(result.Status), t.started) {
		t.end.flags |= flagOOM
	}
	l.count(t, syscall.WaitStatus(result.Status))
	l.answer(t)
}
