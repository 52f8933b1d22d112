package runner

import (
	"bytes"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"e3/internal/host/cgroup"
)

const (
	// oomFresh is the greatest age of a reading of the counter when a command starts, so that starts at nearly the same
	// time share a reading.
	oomFresh = 10 * time.Millisecond

	// oomTeardown bounds the time that a killed process takes to end: the kernel counts the kill before it frees the
	// memory.
	oomTeardown = 10 * time.Second

	// oomExit is the exit code of a shell whose last child was ended by SIGKILL.
	oomExit = 128 + int(unix.SIGKILL)
)

// oomCounter reports whether the kernel killed processes because memory ran out. It reads the counter of this process's
// memory cgroup, which includes its commands, or the system's counter if no cgroup has one.
//
// The kernel does not say which process it killed. So the counter is read before a command starts and periodically
// while commands run. A command counts as killed if SIGKILL ended it and the counter rose while it ran, shortly before
// its end.
type oomCounter struct {
	fd int // -1: there is no counter

	mu     sync.Mutex
	buf    []byte
	count  uint64
	readAt time.Time // time of the latest reading; zero: never
	roseAt time.Time // time of the latest reading above its predecessor; zero: never
}

func newOOMCounter() *oomCounter {
	cgroups, _ := os.ReadFile("/proc/self/cgroup")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	return openOOMCounter(append(oomFiles(cgroups, mounts), "/proc/vmstat"))
}

// openOOMCounter opens the first of the files that has a counter.
func openOOMCounter(files []string) *oomCounter {
	c := &oomCounter{fd: -1, buf: make([]byte, 8<<10)}
	for _, file := range files {
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		c.fd = fd
		if _, ok := c.read(); ok {
			return c
		}
		unix.Close(fd)
		c.fd = -1
	}
	return c
}

// refresh reads the counter unless the last reading is fresh.
func (c *oomCounter) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readAt.IsZero() || time.Since(c.readAt) >= oomFresh {
		c.update()
	}
}

// update reads the counter. The caller holds mu.
func (c *oomCounter) update() {
	count, ok := c.read()
	if !ok {
		return
	}
	now := time.Now()
	if count > c.count && !c.readAt.IsZero() {
		c.roseAt = now
	}
	c.count, c.readAt = count, now
}

// killed reports whether a command with this end was killed because memory ran out. e3 must not have stopped it.
func (c *oomCounter) killed(status syscall.WaitStatus, started time.Time) bool {
	hard := status.Signaled() && status.Signal() == unix.SIGKILL || status.Exited() && status.ExitStatus() == oomExit
	if !hard || c.fd < 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.update()
	return c.roseAt.After(started) && time.Since(c.roseAt) < oomTeardown
}

// read returns the number in the file's line "oom_kill". Lines may be split between two reads of the file.
func (c *oomCounter) read() (count uint64, ok bool) {
	if c.fd < 0 {
		return 0, false
	}
	filled := 0
	for offset := int64(0); ; {
		n, err := unix.Pread(c.fd, c.buf[filled:], offset)
		if err == unix.EINTR {
			continue
		}
		offset += int64(max(n, 0))
		text := c.buf[:filled+max(n, 0)]
		for {
			line, rest, whole := bytes.Cut(text, []byte{'\n'})
			if !whole {
				break
			}
			if number, found := bytes.CutPrefix(line, []byte("oom_kill ")); found {
				count, err := strconv.ParseUint(string(bytes.TrimSpace(number)), 10, 64)
				return count, err == nil
			}
			text = rest
		}
		if filled = copy(c.buf, text); err != nil || n <= 0 || filled == len(c.buf) {
			return 0, false
		}
	}
}

// oomFiles lists the files that may have the counter, best first, from the texts of /proc/self/cgroup and
// /proc/self/mountinfo.
func oomFiles(cgroups, mounts []byte) []string {
	v1, v2 := "", ""
	for line := range strings.Lines(string(cgroups)) {
		// hierarchy:controllers:path
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(parts) != 3:
		case parts[0] == "0" && parts[1] == "":
			v2 = parts[2]
		case hasOption(parts[1], "memory"):
			v1 = parts[2]
		}
	}
	var files []string
	for line := range strings.Lines(string(mounts)) {
		// id parent device root mount-point options [fields] - type source options
		before, after, found := strings.Cut(line, " - ")
		where, what := strings.Fields(before), strings.Fields(after)
		if !found || len(where) < 6 || len(what) < 3 {
			continue
		}
		root, point := cgroup.Unescape(where[3]), cgroup.Unescape(where[4])
		switch {
		case what[0] == "cgroup" && v1 != "" && hasOption(what[2], "memory"):
			// Processes that moved to a cgroup below are not counted.
			files = append(files, path.Join(point, below(v1, root), "memory.oom_control"))
		case what[0] == "cgroup2" && v2 != "":
			// All cgroups above count, too; the nearest cgroup with the memory controller comes first.
			for dir := below(v2, root); ; dir = path.Dir(dir) {
				files = append(files, path.Join(point, dir, "memory.events"))
				if dir == "/" {
					break
				}
			}
		}
	}
	return files
}

// below is a cgroup's path relative to the root of the mount. If the cgroup is not below the root, as in a container
// that sees only its own part, it is "/".
func below(cgroup, root string) string {
	cgroup, root = path.Clean("/"+cgroup), path.Clean("/"+root)
	if root == "/" {
		return cgroup
	}
	if rest, ok := strings.CutPrefix(cgroup, root+"/"); ok {
		return "/" + rest
	}
	return "/"
}

func hasOption(list, name string) bool {
	for option := range strings.SplitSeq(list, ",") {
		if option == name {
			return true
		}
	}
	return false
}
