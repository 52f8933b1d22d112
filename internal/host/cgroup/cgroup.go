// Package cgroup bounds and counts the processes of commands with control groups of version 2 (cgroups(7)).
//
// A supervisor has a [Group], and each command a [Leaf] below it, in which all of its processes are, whatever they do:
//
//	<parent>/e3-<pid>-<start>-<namespace>/<number>
//
// The parent is the nearest control group, from this process's upwards, whose controllers this process can hand on. A
// group that hands on controllers must not have processes of its own, so the leaves are separate from the group of e3's
// processes.
package cgroup

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limits bound a command and all that it starts. The zero value only counts, and bounds the number of processes.
type Limits struct {
	Memory int64   `json:"memory,omitempty"` // bytes, swap included; 0: no limit
	CPU    float64 `json:"cpu,omitempty"`    // cores; 0: no limit
}

// Processes is the greatest number of processes and threads that a command may have at once.
const Processes = 4096

// Usage is the total use of the processes of a leaf, and how they ended.
type Usage struct {
	User, System time.Duration
	Peak         int64 // bytes, cached files included; 0: the kernel does not tell (Linux 5.19)
	Killed       bool  // the kernel killed processes of the leaf because memory ran out
	Limit        bool  // the leaf's own limit of memory was reached
}

// ErrUnavailable is wrapped by errors that say why no limits can be enforced here.
var ErrUnavailable = errors.New("limits cannot be held here")

// A LackError says that some limits cannot be enforced; the others are.
type LackError struct {
	Lacks []string // controllers
	Why   string
}

func (e *LackError) Error() string {
	return fmt.Sprintf("some limits cannot be held here (%s): %s", strings.Join(e.Lacks, ", "), e.Why)
}

// IsLack reports whether an error of Check is a LackError: some limits can be enforced.
func IsLack(err error) bool {
	_, ok := errors.AsType[*LackError](err)
	return ok
}

// controllers are the controllers that a group hands on to its leaves.
var controllers = []string{"cpu", "memory", "pids"}

// owner is the process to which the name of a group belongs.
type owner struct {
	pid       int
	start     uint64 // clock ticks since boot
	namespace uint64 // namespace of its process id
}

func (o owner) name() string { return fmt.Sprintf("e3-%d-%d-%d", o.pid, o.start, o.namespace) }

// parseOwner reads the name of a group; false if it is none.
func parseOwner(name string) (owner, bool) {
	rest, ok := strings.CutPrefix(name, "e3-")
	parts := strings.Split(rest, "-")
	if !ok || len(parts) != 3 {
		return owner{}, false
	}
	pid, err1 := strconv.ParseInt(parts[0], 10, 32)
	start, err2 := strconv.ParseUint(parts[1], 10, 64)
	namespace, err3 := strconv.ParseUint(parts[2], 10, 64)
	o := owner{int(pid), start, namespace}
	if err := errors.Join(err1, err2, err3); err != nil || pid <= 0 || o.name() != name {
		return owner{}, false
	}
	return o, true
}

// ownGroup returns the path of the version 2 group in the text of /proc/self/cgroup.
func ownGroup(text string) (string, bool) {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok && strings.HasPrefix(path, "/") {
			return strings.TrimSuffix(path, " (deleted)"), true
		}
	}
	return "", false
}

// A mount is a mount of the version 2 hierarchy.
type mount struct{ root, point string }

// findMount returns the first such mount in the text of /proc/self/mountinfo.
func findMount(text string) (mount, bool) {
	for line := range strings.Lines(text) {
		// id parent device root mount-point options [fields] - type source options
		before, after, _ := strings.Cut(line, " - ")
		where, what := strings.Fields(before), strings.Fields(after)
		if len(where) >= 6 && len(what) >= 1 && what[0] == "cgroup2" {
			return mount{Unescape(where[3]), Unescape(where[4])}, true
		}
	}
	return mount{}, false
}

// Unescape decodes characters that the kernel writes as \ and three octal digits in its lists of mounts, such as spaces.
func Unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// value returns a number from a file of lines such as "oom_kill 3"; 0 if the file has no such line.
func value(text, name string) int64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			if err != nil || n < 0 {
				return 0
			}
			return n
		}
	}
	return 0
}

// period is the period in cpu.max, in microseconds: the kernel's default.
const period = 100_000

// leastQuota is the least quota that the kernel accepts.
const leastQuota = 1_000

// quota is the text of cpu.max for a number of cores.
func quota(cores float64) string {
	if q := cores * period; q < 1<<40 {
		return fmt.Sprintf("%d %d", max(int64(q), leastQuota), period)
	}
	return fmt.Sprintf("max %d", period)
}
