package runner

// Process identifies one process for as long as records are kept: the pid alone is
// reused.
type Process struct {
	PID          int
	StartTime    uint64 // in the system's own unit; on Linux clock ticks since boot
	BootID       string // changes at every boot; empty where it is not known
	PIDNamespace string // empty where there are none
	Host         string // this machine, as far as it can be told from others
}

// hostIdentity is what all processes that see each other's pids have in common.
type hostIdentity struct {
	bootID, pidNamespace, name string
}

// Self identifies this process.
func Self() (Process, error) { return Lookup(selfPID()) }

// Lookup identifies a running process of this host and pid namespace.
func Lookup(pid int) (Process, error) {
	start, err := startTime(pid)
	if err != nil {
		return Process{}, err
	}
	h := localHost()
	return Process{PID: pid, StartTime: start, BootID: h.bootID, PIDNamespace: h.pidNamespace, Host: h.name}, nil
}

// Alive reports whether the process runs. It is known only where it can be proven:
// on the recorded host, since the recorded boot, in the recorded pid namespace. On
// the recorded host after another boot the process is known to be dead. A zombie
// counts as dead.
func Alive(p Process) (alive, known bool) { return aliveOn(localHost(), p) }

func aliveOn(here hostIdentity, p Process) (alive, known bool) {
	switch {
	case p.PID <= 0 || p.Host == "" || p.BootID == "" || here.bootID == "" || p.Host != here.name:
		return false, false
	case p.BootID != here.bootID:
		return false, true
	case p.PIDNamespace != here.pidNamespace:
		return false, false
	}
	return running(p.PID, p.StartTime)
}
