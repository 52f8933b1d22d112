package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"e3/internal/host/process"

	"golang.org/x/sys/unix"
)

// A place is a control group below which groups can be made.
type place struct {
	dir  string
	has  []string // controllers that the place hands on
	lack error    // why it lacks some controllers; nil: it has all
}

// Check finds out whether commands of this process can have limits. It makes the place hand on its controllers, and if
// necessary moves this process into a group of its own first. The error is nil, a *LackError, or wraps ErrUnavailable.
func Check() error {
	p, err := find()
	if err != nil {
		return err
	}
	return p.lack
}

// find finds the nearest place that has all controllers, else the nearest of the places with most controllers. It looks
// once, because the place stays the same when this process moves.
var find = sync.OnceValues(func() (*place, error) {
	if _, _, errno := unix.Syscall(unix.SYS_CLONE3, 0, 0, 0); errno == unix.ENOSYS {
		return nil, fmt.Errorf("%w: the kernel, or a filter in front of it, has no clone3", ErrUnavailable)
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	own, ok := ownGroup(string(groups))
	m, mounted := findMount(string(mounts))
	if !ok || !mounted {
		return nil, fmt.Errorf("%w: no file system of type cgroup2 is mounted", ErrUnavailable)
	}
	below, err := filepath.Rel(m.root, own)
	if err != nil || below == ".." || strings.HasPrefix(below, "../") {
		return nil, fmt.Errorf("%w: the control group of this process, %s, is not below %s", ErrUnavailable, own, m.point)
	}
	return search(m.point, filepath.Join(m.point, below))
})

// search looks from a folder upwards to the top.
func search(top, own string) (*place, error) {
	all, err := os.ReadFile(filepath.Join(top, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if missing := lacking(string(all)); len(missing) == len(controllers) {
		return nil, fmt.Errorf("%w: %s/cgroup.controllers lacks %s: control groups of version 1 have them "+
			"(kernel parameter cgroup_no_v1=all, and with systemd systemd.unified_cgroup_hierarchy=1)", ErrUnavailable, top, strings.Join(missing, ", "))
	}
	var best *place
	var refusal error
	for dir := own; ; dir = filepath.Dir(dir) {
		p, err := try(dir, dir == own)
		switch {
		case err != nil:
			refusal = err
		case p.lack == nil:
			return p, nil
		case best == nil || len(p.has) > len(best.has):
			best = p
		}
		if dir == top || dir == "/" || dir == "." {
			break
		}
	}
	switch {
	case best == nil:
		return nil, fmt.Errorf("%w: %w (delegate a control group, as with systemd-run --user --scope -p Delegate=yes)", ErrUnavailable, refusal)
	case len(best.has) == 0:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, best.lack)
	}
	return best, nil
}

// try makes a group hand on its controllers. The error says that this process may not make groups there.
func try(dir string, own bool) (*place, error) {
	for _, path := range []string{dir, filepath.Join(dir, "cgroup.procs"), filepath.Join(dir, "cgroup.subtree_control")} {
		if err := unix.Access(path, unix.W_OK); err != nil {
			return nil, &fs.PathError{Op: "write", Path: path, Err: err}
		}
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	text, err := os.ReadFile(control)
	if err != nil {
		return nil, err
	}
	p := &place{dir: dir}
	var why error
	missing := lacking(string(text))
	if err := vacate(dir, own); err != nil && len(missing) > 0 {
		return nil, err
	}
	for _, c := range missing {
		why = errors.Join(why, enable(dir, c))
	}
	if text, err = os.ReadFile(control); err != nil {
		return nil, err
	}
	missing = lacking(string(text))
	for _, c := range controllers {
		if !slices.Contains(missing, c) {
			p.has = append(p.has, c)
		}
	}
	if len(missing) > 0 {
		p.lack = &LackError{Lacks: missing, Why: reason(why, control)}
	}
	return p, nil
}

// lacking lists the controllers that are not in a list of the kernel.
func lacking(list string) []string {
	there := strings.Fields(list)
	return slices.DeleteFunc(slices.Clone(controllers), func(c string) bool { return slices.Contains(there, c) })
}

// reason puts an error of enable into one line.
func reason(err error, control string) string {
	if err == nil {
		return control + " does not hand them on"
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

func enable(dir, controller string) error {
	all, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err == nil && !slices.Contains(strings.Fields(string(all)), controller) {
		return fmt.Errorf("%s/cgroup.controllers has no %s", dir, controller)
	}
	return put(dir, "cgroup.subtree_control", "+"+controller)
}

// vacate makes sure that a group has no processes; only the root of all groups may have processes. From a group with
// processes the kernel would hand on cpu and pids to groups of threads only, and memory not at all.
func vacate(dir string, own bool) error {
	kind, err := os.ReadFile(filepath.Join(dir, "cgroup.type"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if text := strings.TrimSpace(string(kind)); err == nil && text != "domain" {
		return fmt.Errorf("%s/cgroup.type is %s, not domain", dir, text)
	}
	processes, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || len(processes) == 0 || own && stepAside(dir) == nil {
		return err
	}
	return fmt.Errorf("%s has processes, so that it cannot hand controllers on", dir)
}

// aside is the group into which e3 moves its own processes.
const aside = "e3-host"

// stepAside moves this process and its descendants into a group below their present group. It fails unless they are
// alone in that group, as in a service with delegated control groups.
func stepAside(dir string) error {
	if filepath.Base(dir) == aside { // another process of e3 has made it
		return unix.EBUSY
	}
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	pids := strings.Fields(string(text))
	for _, pid := range pids {
		if !isOurs(pid) {
			return unix.EBUSY
		}
	}
	if err := os.Mkdir(filepath.Join(dir, aside), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, pid := range pids {
		if err := put(filepath.Join(dir, aside), "cgroup.procs", pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// isOurs reports whether a process is this one or a descendant of it.
func isOurs(text string) bool {
	pid, err := strconv.Atoi(text)
	for range 64 {
		if err != nil || pid <= 1 && os.Getpid() != pid {
			return false
		}
		if pid == os.Getpid() {
			return true
		}
		var stat process.Stat
		stat, err = process.ReadStat(pid)
		pid = stat.Parent
	}
	return false
}

// A Group is the control group of this process's commands. It is safe for concurrent use.
type Group struct {
	place *place
	dir   string
	next  atomic.Int64
}

// Open makes the group of this process, and removes the groups that dead processes have left.
func Open() (*Group, error) {
	p, err := find()
	if err != nil {
		return nil, err
	}
	self, err := thisProcess()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	p.sweep(self)
	g := &Group{place: p, dir: filepath.Join(p.dir, self.name())}
	if err := os.Mkdir(g.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	for _, c := range p.has {
		if err := put(g.dir, "cgroup.subtree_control", "+"+c); err != nil {
			_ = unix.Rmdir(g.dir)
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	return g, nil
}

func thisProcess() (owner, error) {
	stat, err := process.ReadStat(os.Getpid())
	if err != nil {
		return owner{}, err
	}
	namespace, err := ownNamespace()
	return owner{os.Getpid(), stat.StartTicks, namespace}, err
}

// ownNamespace is the number of this process's pid namespace.
func ownNamespace() (uint64, error) {
	var stat unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &stat); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: "/proc/self/ns/pid", Err: err}
	}
	return stat.Ino, nil
}

// Sweep removes the groups that dead processes of e3 have left at the place of this process, and kills the processes in
// them.
func Sweep() {
	p, err := find()
	if err != nil {
		return
	}
	if self, err := thisProcess(); err == nil {
		p.sweep(self)
	}
}

// sweep removes the groups of dead processes. It spares groups of other pid namespaces, where a pid means another
// process.
func (p *place) sweep(self owner) {
	names, _ := folders(p.dir)
	for _, name := range names {
		o, ok := parseOwner(name)
		if !ok || o.namespace != self.namespace {
			continue
		}
		if stat, err := process.ReadStat(o.pid); err == nil && stat.StartTicks == o.start && stat.State != 'Z' {
			continue
		}
		removeGroup(filepath.Join(p.dir, name))
	}
}

// folders lists the groups in a group.
func folders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// removeLimit bounds the time for which the removal of a group waits for killed processes.
const removeLimit = 2 * time.Second

// removeGroup kills the processes of a group and removes the group.
func removeGroup(dir string) {
	names, _ := folders(dir)
	for _, name := range names {
		kill(filepath.Join(dir, name))
	}
	pause := time.Millisecond
	for end := time.Now().Add(removeLimit); ; pause = min(2*pause, 20*time.Millisecond) {
		for _, name := range names {
			_ = unix.Rmdir(filepath.Join(dir, name))
		}
		if err := unix.Rmdir(dir); err != unix.EBUSY && err != unix.ENOTEMPTY || time.Now().After(end) {
			return
		}
		time.Sleep(pause)
	}
}

// kill kills the processes of a group: before Linux 5.14 one by one.
func kill(dir string) {
	if err := put(dir, "cgroup.kill", "1"); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for _, word := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// Close kills the processes left in the leaves, and removes the group.
func (g *Group) Close() { removeGroup(g.dir) }

// A Leaf is the control group of one command. One goroutine uses it at a time.
type Leaf struct {
	group *Group
	dir   string
	file  int // the group's folder; see FD
}

// Leaf makes the control group of a command.
func (g *Group) Leaf(l Limits) (*Leaf, error) {
	leaf := &Leaf{group: g, dir: filepath.Join(g.dir, strconv.FormatInt(g.next.Add(1), 10)), file: -1}
	if err := os.Mkdir(leaf.dir, 0o755); err != nil {
		return nil, err
	}
	err := leaf.set(l)
	if err == nil {
		if leaf.file, err = unix.Open(leaf.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			return leaf, nil
		}
	}
	_ = unix.Rmdir(leaf.dir)
	return nil, err
}

// has reports whether the leaf has a controller.
func (l *Leaf) has(controller string) bool { return slices.Contains(l.group.place.has, controller) }

func (l *Leaf) set(limits Limits) error {
	var files [][2]string
	if limits.Memory > 0 && l.has("memory") {
		files = append(files, [2]string{"memory.max", strconv.FormatInt(limits.Memory, 10)}, [2]string{"memory.swap.max", "0"})
	}
	if l.has("memory") {
		files = append(files, [2]string{"memory.oom.group", "1"})
	}
	if limits.CPU > 0 && l.has("cpu") {
		files = append(files, [2]string{"cpu.max", quota(limits.CPU)})
	}
	if l.has("pids") {
		files = append(files, [2]string{"pids.max", strconv.Itoa(Processes)})
	}
	for _, f := range files {
		if err := put(l.dir, f[0], f[1]); err != nil && !(f[0] == "memory.swap.max" && errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// FD is the descriptor of the leaf's folder, for CLONE_INTO_CGROUP. It is open until Remove.
func (l *Leaf) FD() int { return l.file }

// Kill kills all processes of the leaf.
func (l *Leaf) Kill() { kill(l.dir) }

// Empty reports whether no process of the leaf is left.
func (l *Leaf) Empty() bool {
	text, err := os.ReadFile(filepath.Join(l.dir, "cgroup.events"))
	return err != nil || value(string(text), "populated") == 0
}

// Usage returns the total use of the leaf's processes. Counts that the kernel does not give are 0.
func (l *Leaf) Usage() Usage {
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(l.dir, name))
		return string(text)
	}
	stat, events := read("cpu.stat"), read("memory.events")
	u := Usage{
		User:   time.Duration(value(stat, "user_usec")) * time.Microsecond,
		System: time.Duration(value(stat, "system_usec")) * time.Microsecond,
		Killed: value(events, "oom_kill") > 0,
		Limit:  value(events, "oom") > 0,
	}
	u.Peak, _ = strconv.ParseInt(strings.TrimSpace(read("memory.peak")), 10, 64)
	return u
}

// Counts reports whether Usage tells about memory.
func (l *Leaf) Counts() bool { return l.has("memory") }

// Remove removes the leaf, and reports whether it is gone. A leaf with processes stays.
func (l *Leaf) Remove() bool {
	if l.file >= 0 {
		unix.Close(l.file)
		l.file = -1
	}
	return unix.Rmdir(l.dir) != unix.EBUSY
}

// put writes a file of a group in one call, without making it.
func put(dir, name, text string) error {
	path := filepath.Join(dir, name)
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte(text))
		unix.Close(fd)
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
