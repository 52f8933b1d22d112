package runner

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"e3/internal/host/process"

	"golang.org/x/sys/unix"
)

// A process that a command starts stays a descendant of the supervisor: when its parent ends, it becomes a child of the
// main thread, an orphan, whatever its session and environment. So if there are no orphans, no process of an ended
// command is left. An orphan has to be matched to its command if several run.

// maxPasses bounds the number of times that one collection lists orphans.
const maxPasses = 100

// tick is the unit of a process's start time.
const tick = 10 * time.Millisecond

// commands are the running commands of all lanes.
type commands struct {
	mu  sync.Mutex
	all map[*task]struct{}
}

func (c *commands) add(t *task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[t] = struct{}{}
}

// started records the process of a command. Before that, only its marker and its room match orphans.
func (c *commands) started(t *task, pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.pid = pid
}

func (c *commands) remove(t *task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, t)
}

// find returns a command for which holds is true, nil if there is none.
func (c *commands) find(holds func(*task) bool) *task {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.all {
		if holds(t) {
			return t
		}
	}
	return nil
}

// collectOrphans reaps the adopted processes that have ended, and kills the adopted processes of ended commands. If
// a killed process may belong to an ended command, it sets the command's field orphaned. If a spared process may, it
// sets straggler.
func (s *server) collectOrphans(ended []*task) {
	for _, t := range ended {
		t.orphaned, t.straggler = false, s.children < 0
	}
	s.reaping.Lock()
	defer s.reaping.Unlock()
	for range maxPasses {
		reaped := false
		orphans := slices.DeleteFunc(s.orphans(), func(pid int) bool {
			got, _ := wait4(pid, nil, unix.WNOHANG, nil)
			reaped = reaped || got == pid
			return got == pid
		})
		if reaped && len(orphans) > 0 {
			continue // the list may lack children of a reaped process
		}
		for _, pid := range orphans {
			s.handleOrphan(pid, ended)
		}
		if !reaped {
			return
		}
	}
	for _, t := range ended {
		t.straggler = true
	}
}

// handleOrphan finds the command of an orphan, and kills the orphan unless the command still runs.
func (s *server) handleOrphan(pid int, ended []*task) {
	stat, err := process.ReadStat(pid)
	if err != nil || stat.State == 'Z' {
		for _, t := range ended {
			t.orphaned = true // the process is about to be reaped
		}
		return
	}
	environ := environOf(pid)
	marked := func(t *task) bool { return stat.Group == t.pid || t.marker != "" && environ.has(t.marker) }
	places := sync.OnceValue(func() []string { return placesOf(pid) })
	inside := func(t *task) bool { return t.room != "" && t.holds(places()) }
	for _, is := range []func(*task) bool{marked, inside} {
		if i := slices.IndexFunc(ended, is); i >= 0 {
			ended[i].orphaned = true
			killTree(pid)
			return
		}
		if s.commands.find(is) != nil {
			return
		}
	}
	// Nothing identifies its command. A process that started before a command does not belong to that command.
	began := time.Duration(stat.StartTicks+1) * tick
	older := func(t *task) bool { return t.began < began }
	if s.commands.find(older) != nil {
		for _, t := range ended {
			t.straggler = t.straggler || older(t)
		}
		return
	}
	for _, t := range ended {
		t.orphaned = true
	}
	killTree(pid)
}

// holds reports whether one of the paths is in the command's room.
func (t *task) holds(paths []string) bool {
	if t.resolved == "" {
		t.resolved = t.room
		if path, err := filepath.EvalSymlinks(t.room); err == nil {
			t.resolved = path
		}
	}
	return slices.ContainsFunc(paths, func(path string) bool {
		return path == t.resolved || strings.HasPrefix(path, t.resolved+"/")
	})
}

// placesOf lists the working directory and open files of a process, as far as this user can see.
func placesOf(pid int) []string {
	var paths []string
	var m places
	m.visit(pid, func(path []byte) { paths = append(paths, string(path)) })
	return paths
}

// places lists the working directories and open files of processes. Its buffers serve one process after the other.
type places struct {
	link  [4096]byte
	files [4096]byte
	names []string
}

// visit calls f for the working directory, the root and the open files of a process, as far as this user can see. The path
// is valid during the call.
//
// It returns true if the process has no program: it is a thread of the kernel, or is ending.
func (p *places) visit(pid int, f func(path []byte)) (empty bool) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if !p.follow(fd, "cwd", f) {
		return false // another user's process
	}
	var exe [1]byte
	if _, err := unix.Readlinkat(fd, "exe", exe[:]); err == unix.ENOENT {
		return true
	}
	p.follow(fd, "root", f)
	files, err := unix.Openat(fd, "fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(files)
	p.names = p.names[:0]
	for {
		n, err := unix.ReadDirent(files, p.files[:])
		if err != nil || n <= 0 {
			break
		}
		_, _, p.names = unix.ParseDirent(p.files[:n], -1, p.names)
	}
	for _, name := range p.names {
		p.follow(files, name, f)
	}
	return false
}

// follow calls f with the target of a link in /proc, if the target is a path.
func (p *places) follow(dir int, name string, f func(path []byte)) bool {
	n, err := unix.Readlinkat(dir, name, p.link[:])
	if err != nil || n == 0 || p.link[0] != '/' {
		return false
	}
	f(p.link[:n])
	return true
}

// killTree kills a child process and its descendants. If these processes start others meanwhile, the supervisor adopts
// the new ones, and the next pass finds them.
func killTree(pid int) {
	tree := []int{pid}
	var fds []int
	for i := 0; i < len(tree); i++ {
		for _, child := range childrenOf(tree[i]) {
			fd, err := unix.PidfdOpen(child, 0)
			if err != nil {
				continue
			}
			if stat, err := process.ReadStat(child); err != nil || stat.Parent != tree[i] { // the pid was reused
				unix.Close(fd)
				continue
			}
			tree, fds = append(tree, child), append(fds, fd)
		}
	}
	_ = unix.Kill(pid, unix.SIGKILL)
	for _, fd := range fds {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		unix.Close(fd)
	}
}
