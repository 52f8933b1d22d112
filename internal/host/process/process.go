// Package process identifies processes by pid, start time and boot, since a pid alone is reused.
package process

import (
	"os"
	"sync"
)

// ID identifies one process permanently, unlike a pid.
type ID struct {
	PID          int
	StartTime    uint64 // in the system's own unit; on Linux clock ticks since boot
	BootID       string // changes at every boot; empty if unknown
	PIDNamespace string // pid namespace; empty on systems without them
	Host         string // identifies the machine, as far as possible
}

// Host identifies a set of processes that see each other's pids.
type Host struct {
	BootID, PIDNamespace, Name string
}

// LocalHost identifies this host as its processes see it. It is read once. Only the host's name can change later, and
// then the state of recorded processes is merely unknown.
func LocalHost() Host { return localHost() }

var localHost = sync.OnceValue(readLocalHost)

// Self identifies this process.
func Self() (ID, error) { return Lookup(os.Getpid()) }

// Lookup identifies a running process of this host and pid namespace.
func Lookup(pid int) (ID, error) {
	start, err := StartTime(pid)
	if err != nil {
		return ID{}, err
	}
	return LocalHost().Identify(pid, start), nil
}

// Identify returns the identity of the process that started with this pid at this time on h.
func (h Host) Identify(pid int, start uint64) ID {
	return ID{PID: pid, StartTime: start, BootID: h.BootID, PIDNamespace: h.PIDNamespace, Host: h.Name}
}

// Alive reports whether the process runs. known is true only if there is proof, which takes the recorded host,
// boot and pid namespace. On the recorded host in a later boot the process is known to be dead. A zombie counts
// as dead.
func Alive(p ID) (alive, known bool) { return aliveOn(LocalHost(), p) }

func aliveOn(here Host, p ID) (alive, known bool) {
	switch {
	case p.PID <= 0 || p.Host == "" || p.BootID == "" || here.BootID == "" || p.Host != here.Name:
		return false, false
	case p.BootID != here.BootID:
		return false, true
	case p.PIDNamespace != here.PIDNamespace:
		return false, false
	}
	return running(p.PID, p.StartTime)
}
