package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func readLocalHost() Host {
	var h Host
	if text, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		h.BootID = strings.TrimSpace(string(text))
	}
	// Kernels without namespaces have no such link, for any process.
	h.PIDNamespace, _ = os.Readlink("/proc/self/ns/pid")
	h.Name, _ = os.Hostname()
	// Host names are not unique ("localhost"), and a live process of another machine must not count as a dead one of
	// this machine. So a digest of the machine id is added; the id itself is confidential.
	for _, file := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if id, err := os.ReadFile(file); err == nil && len(id) > 0 {
			digest := sha256.Sum256(append([]byte("e3 host "), id...))
			h.Name += "/" + hex.EncodeToString(digest[:6])
			break
		}
	}
	return h
}

// StartTime returns the time at which a running process started, in the system's own unit.
func StartTime(pid int) (uint64, error) {
	stat, err := ReadStat(pid)
	if err != nil {
		return 0, fmt.Errorf("look up process %d: %w", pid, err)
	}
	return stat.StartTicks, nil
}

// running reports whether a process with this pid and start time runs here.
func running(pid int, start uint64) (alive, known bool) {
	stat, err := ReadStat(pid)
	switch {
	case err == nil:
		return stat.StartTicks == start && stat.State != 'Z' && stat.State != 'X', true
	case errors.Is(err, unix.ESRCH): // it ended while it was read
		return false, true
	case !errors.Is(err, fs.ErrNotExist):
		return false, false
	}
	// /proc may hide the processes of other users; kill does not.
	if unix.Kill(pid, 0) == unix.ESRCH {
		return false, true
	}
	return false, false
}
