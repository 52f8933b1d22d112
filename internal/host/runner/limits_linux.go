package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"e3/internal/host/cgroup"

	"golang.org/x/sys/unix"
)

// limits is the control group of the supervisor's commands, made for the first command that has limits.
type limits struct {
	mu    sync.Mutex
	group *cgroup.Group
}

// open returns the group.
func (l *limits) open() (*cgroup.Group, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.group != nil {
		return l.group, nil
	}
	var err error
	l.group, err = cgroup.Open()
	return l.group, err
}

// close removes the group once no command is left.
func (l *limits) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.group != nil {
		l.group.Close()
	}
}

// A limitError says that the limits of a command could not be set.
type limitError struct{ err error }

func (e *limitError) Error() string { return fmt.Sprintf("set limits: %v", e.err) }
func (e *limitError) Unwrap() error { return e.err }

// limit makes the control group of a command that has limits.
func (l *laneServer) limit(t *task, r *spawnRequest) error {
	if r.limits == "" {
		return nil
	}
	var limits cgroup.Limits
	if err := json.Unmarshal([]byte(r.limits), &limits); err != nil {
		return unix.EINVAL
	}
	g, err := l.limits.open()
	if err == nil {
		t.leaf, err = g.Leaf(limits)
	}
	if err != nil {
		return &limitError{err}
	}
	return nil
}

// group is the folder of the task's control group for room.Spec; 0 if it has none.
func (t *task) group() int {
	if t.leaf == nil {
		return 0
	}
	return t.leaf.FD()
}

// count adds to a task's end the total use of its processes, which have ended.
func (l *laneServer) count(t *task, status syscall.WaitStatus) {
	if t.leaf == nil {
		return
	}
	u := t.leaf.Usage()
	t.end.userCPU, t.end.systemCPU = u.User, u.System
	if u.Peak > 0 {
		t.end.peakRSS = u.Peak
	}
	if t.leaf.Counts() && t.flags == 0 { // the leaf's counter is exact, unlike the counter of all commands
		t.end.flags &^= flagOOM
		if u.Killed {
			t.end.flags |= flagOOM
		}
		if u.Killed && u.Limit {
			t.end.flags |= flagLimit
		}
	}
	l.dropLeaf(t)
}

// dropLeaf removes the task's control group, at once or when its last processes have ended.
func (l *laneServer) dropLeaf(t *task) {
	if t.leaf != nil && !t.leaf.Remove() {
		l.leaves = append(l.leaves, t.leaf)
	}
	t.leaf = nil
}

// removeLeaves removes control groups of ended commands.
func (l *laneServer) removeLeaves() {
	l.leaves = slices.DeleteFunc(l.leaves, (*cgroup.Leaf).Remove)
}

// isLimitError reports whether a command's limits could not be set.
func isLimitError(err error) bool {
	_, ok := errors.AsType[*limitError](err)
	return ok
}
