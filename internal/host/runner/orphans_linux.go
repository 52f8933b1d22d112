package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"e3/internal/host/process"

	"golang.org/x/sys/unix"
)

// What a command starts stays a descendant of the supervisor: when its parent ends it becomes a child of the main thread, an orphan, whatever
// session it made and whatever environment it was given. So while there is no orphan, nothing is left of any command that has ended.
// Where there is one, while several commands run, the question is whose it is.

// maxPasses bounds how often orphans are listed at a time.
const maxPasses = 100

// tick is the unit of a process's start time.
const tick = 10 * time.Millisecond

// commands are those that run, of all lanes.
type commands struct {
	mu  sync.Mutex
	all map[*task]struct{}
}

func (c *commands) add(t *task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[t] = struct{}{}
}

// started says which process a command is. Until then others know its marker and its room.
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

// find returns a command of which holds is true, nil if there is none.
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

// collectOrphans reaps the adopted processes that have ended, and kills those that are of a command that has ended. It sets orphaned of the
// commands that such a process may be of, and left of those that a process may be of which is not killed, as it may be another's, that
// runs.
func (s *server) collectOrphans(ended []*task) {
	for _, t := range ended {
		t.orphaned, t.left = false, s.children < 0
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
			continue // what one of them had started may have come after the list was made
		}
		for _, pid := range orphans {
			s.dealWith(pid, ended)
		}
		if !reaped {
			return
		}
	}
	for _, t := range ended {
		t.left = true
	}
}

// dealWith finds out whose an orphan is, and kills it unless its command runs.
func (s *server) dealWith(pid int, ended []*task) {
	stat, err := process.ReadStat(pid)
	if err != nil || stat.State == 'Z' {
		for _, t := range ended {
			t.orphaned = true // it is about to be reaped
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
	// It has left everything behind by which it could be known. What started before a command is not that command's.
	began := time.Duration(stat.StartTicks+1) * tick
	older := func(t *task) bool { return t.began < began }
	if s.commands.find(older) != nil {
		for _, t := range ended {
			t.left = t.left || older(t)
		}
		return
	}
	for _, t := range ended {
		t.orphaned = true
	}
	killTree(pid)
}

// holds tells whether one of the paths is in the command's room.
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

// placesOf lists where a process works, and what it has open, as far as this user can see.
func placesOf(pid int) []string {
	base := "/proc/" + strconv.Itoa(pid)
	fd, err := unix.Open(base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	paths := appendLink(nil, fd, "cwd")
	if paths == nil {
		return nil // another user's
	}
	paths = appendLink(paths, fd, "root")
	files, err := unix.Openat(fd, "fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return paths
	}
	defer unix.Close(files)
	var buf [4096]byte
	var names []string
	for {
		n, err := unix.ReadDirent(files, buf[:])
		if err != nil || n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
	for _, name := range names {
		paths = appendLink(paths, files, name)
	}
	return paths
}

// appendLink appends what a link in /proc points to, if that is a path.
func appendLink(paths []string, dir int, name string) []string {
	var buf [4096]byte
	n, err := unix.Readlinkat(dir, name, buf[:])
	if err != nil || n == 0 || buf[0] != '/' {
		return paths
	}
	return append(paths, string(buf[:n]))
}

// killTree kills a process that is a child of this one, and its descendants. What they start meanwhile is adopted, and found again.
func killTree(pid int) {
	tree := []int{pid}
	var fds []int
	for i := 0; i < len(tree); i++ {
		for _, child := range childrenOf(tree[i]) {
			fd, err := unix.PidfdOpen(child, 0)
			if err != nil {
				continue
			}
			if stat, err := process.ReadStat(child); err != nil || stat.Parent != tree[i] { // the number is another's by now
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

// Occupied returns the entries of a folder in which a process other than this one works or has something open, as far as this user
// can see. What has a private mount namespace is known by the folder's own name, so that must be no other's. known is false where the
// system does not tell.
func Occupied(folder string) (entries map[string]bool, known bool) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, false
	}
	entries = map[string]bool{}
	infix := "/" + filepath.Base(folder) + "/"
	self := os.Getpid()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		known = known || pid == self
		if pid == self {
			continue
		}
		for _, path := range placesOf(pid) {
			if _, rest, found := strings.Cut(path, infix); found {
				entry, _, _ := strings.Cut(rest, "/")
				entries[strings.TrimSuffix(entry, " (deleted)")] = true
			}
		}
	}
	return entries, known
}
