package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

const (
	killed    = syscall.WaitStatus(9)
	shellSays = syscall.WaitStatus(137 << 8)
	exitOne   = syscall.WaitStatus(1 << 8)
	endedWell = syscall.WaitStatus(0)
	cut       = syscall.WaitStatus(15)
)

// counterFile is a file like memory.oom_control.
type counterFile struct {
	t    *testing.T
	path string
}

func newCounterFile(t *testing.T) counterFile {
	f := counterFile{t, filepath.Join(t.TempDir(), "memory.oom_control")}
	f.set(4)
	return f
}

func (f counterFile) set(n int) {
	f.t.Helper()
	if err := os.WriteFile(f.path, fmt.Appendf(nil, "oom_kill_disable 0\nunder_oom 0\noom_kill %d\n", n), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// A command counts as killed if the kernel's counter rose while it ran, shortly before its end.
func TestOOMCounter(t *testing.T) {
	const before = 1 // kills before the command starts, beyond the four of the past
	for _, c := range []struct {
		name   string
		status syscall.WaitStatus
		idle   time.Duration // between the kills before and the start
		lives  time.Duration // with a refresh each second
		kill   time.Duration // when the kernel kills one more; negative: never
		want   bool
	}{
		{"killed at once", killed, time.Minute, time.Millisecond, 0, true},
		{"a child of a shell was killed", shellSays, time.Minute, time.Millisecond, 0, true},
		{"killed after hours", killed, 0, 3 * time.Hour, 3 * time.Hour, true},
		{"took seconds to die", killed, 0, time.Hour, time.Hour - 5*time.Second, true},
		{"a signal from another process", killed, 0, time.Minute, -1, false},
		{"a signal from another process, right after another was killed", killed, 0, time.Millisecond, -1, false},
		{"a signal from another process, long after another was killed", killed, 0, time.Hour, time.Minute, false},
		{"failed meanwhile", exitOne, 0, time.Second, 0, false},
		{"ended well meanwhile", endedWell, 0, time.Second, 0, false},
		{"another signal meanwhile", cut, 0, time.Second, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := newCounterFile(t)
			synctest.Test(t, func(t *testing.T) {
				counter := openOOMCounter([]string{file.path})
				counter.refresh()
				time.Sleep(time.Hour)
				file.set(4 + before)
				time.Sleep(c.idle)
				time.Sleep(oomFresh)
				counter.refresh()
				started := time.Now()
				happened := false
				for at := time.Duration(0); ; at += time.Second {
					at = min(at, c.lives)
					if !happened && c.kill >= 0 && at >= c.kill {
						happened = true
						file.set(4 + before + 1)
					}
					time.Sleep(time.Until(started.Add(at)))
					if at == c.lives {
						break
					}
					counter.refresh()
				}
				time.Sleep(time.Millisecond)
				if got := counter.killed(c.status, started); got != c.want {
					t.Errorf("%v, want %v", got, c.want)
				}
			})
		})
	}
}

// Starts in quick succession share a reading.
func TestOOMReadingsAreShared(t *testing.T) {
	file := newCounterFile(t)
	synctest.Test(t, func(t *testing.T) {
		counter := openOOMCounter([]string{file.path})
		counter.refresh()
		first := counter.readAt
		time.Sleep(oomFresh / 2)
		if counter.refresh(); !counter.readAt.Equal(first) {
			t.Errorf("read again after %v", oomFresh/2)
		}
		time.Sleep(oomFresh / 2)
		if counter.refresh(); counter.readAt.Equal(first) {
			t.Errorf("not read again after %v", oomFresh)
		}
	})
}

// While commands run the supervisor reads the counter periodically, so that it knows when kills happened.
func TestOOMReadingsContinue(t *testing.T) {
	counter := openOOMCounter([]string{newCounterFile(t).path})
	l := &laneServer{server: &server{children: -1, oom: counter}, fds: make([]unix.PollFd, taskFDs+1)}
	if l.handleDue(time.Now()); !counter.readAt.IsZero() {
		t.Error("read, though nothing runs")
	}
	l.tasks = []*task{{}}
	if l.handleDue(time.Now()); counter.readAt.IsZero() {
		t.Error("not read, though a command runs")
	}
}

func TestOOMCounterChoosesAFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	long := write("vmstat", strings.Repeat("nr_free_pages 12345\n", 2000)+"oom_kill 7\nlast 1\n")
	for _, c := range []struct {
		name  string
		files []string
		want  uint64
		ok    bool
	}{
		{"the first with a counter", []string{dir + "/absent", write("old", "oom_kill_disable 0\nunder_oom 0\n"), long}, 7, true},
		{"a new kernel's", []string{write("events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"), long}, 2, true},
		{"none", []string{dir + "/absent"}, 0, false},
		{"a directory", []string{dir}, 0, false},
		{"no number", []string{write("bad", "oom_kill many\n")}, 0, false},
		{"negative", []string{write("negative", "oom_kill -1\n")}, 0, false},
		{"no end of line", []string{write("cut", "oom_kill 1")}, 0, false},
		{"a line without an end", []string{write("line", strings.Repeat("x", 100<<10)+"\noom_kill 1\n")}, 0, false},
	} {
		counter := openOOMCounter(c.files)
		if got, ok := counter.read(); got != c.want || ok != c.ok {
			t.Errorf("%s: %d, %v, want %d, %v", c.name, got, ok, c.want, c.ok)
		}
		counter.refresh()
		if counter.killed(killed, time.Now()) {
			t.Errorf("%s: a command counts as killed", c.name)
		}
	}
}

func TestOOMFiles(t *testing.T) {
	const (
		v1 = "35 31 0:32 %s /sys/fs/cgroup/memory rw,relatime shared:17 - cgroup cgroup rw,memory\n"
		v2 = "30 23 0:26 %s /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
	)
	for _, c := range []struct {
		name, cgroups, mounts string
		want                  []string
	}{
		{"version 2", "0::/system.slice/e3.service\n", fmt.Sprintf(v2, "/"), []string{
			"/sys/fs/cgroup/system.slice/e3.service/memory.events", "/sys/fs/cgroup/system.slice/memory.events", "/sys/fs/cgroup/memory.events"}},
		{"version 2 in a container that sees its part", "0::/\n", fmt.Sprintf(v2, "/"), []string{"/sys/fs/cgroup/memory.events"}},
		{"version 2 in a container that sees its part by another name", "0::/\n", fmt.Sprintf(v2, "/../.."), []string{"/sys/fs/cgroup/memory.events"}},
		{"version 1", "5:cpu,cpuacct:/other\n4:memory:/slurm/uid_0/job_3\n0::/\n", fmt.Sprintf(v1, "/"), []string{
			"/sys/fs/cgroup/memory/slurm/uid_0/job_3/memory.oom_control"}},
		{"version 1 in a container", "4:memory:/docker/4f\n", fmt.Sprintf(v1, "/docker/4f"), []string{"/sys/fs/cgroup/memory/memory.oom_control"}},
		{"version 1 below the container's", "4:memory:/docker/4f/x\n", fmt.Sprintf(v1, "/docker/4f"), []string{"/sys/fs/cgroup/memory/x/memory.oom_control"}},
		{"version 1 elsewhere", "4:memory:/docker/4fx\n", fmt.Sprintf(v1, "/docker/4f"), []string{"/sys/fs/cgroup/memory/memory.oom_control"}},
		{"a mount point with a space", "0::/\n", "30 23 0:26 / /my\\040cgroups rw - cgroup2 cgroup2 rw\n", []string{"/my cgroups/memory.events"}},
		{"a colon in the path", "0::/a:b\n", fmt.Sprintf(v2, "/"), []string{"/sys/fs/cgroup/a:b/memory.events", "/sys/fs/cgroup/memory.events"}},
		{"no memory controller", "5:cpu:/\n", fmt.Sprintf(v1, "/"), nil},
		{"nothing", "", "", nil},
		{"nonsense", "0::\n::\nx\n4:memory\n", "a b - c\n - \n1 2 3 4 5 6\n1 2 3 4 5 6 - cgroup x\n", nil},
	} {
		if got := oomFiles([]byte(c.cgroups), []byte(c.mounts)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func BenchmarkOOMRefresh(b *testing.B) {
	for name, counter := range map[string]*oomCounter{"cgroup": newOOMCounter(), "system": openOOMCounter([]string{"/proc/vmstat"})} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				counter.update()
			}
		})
	}
}
