//go:build !linux && !darwin

package runner

import (
	"fmt"
	"os"
)

// Boot id and start time are not read on this system, so that nothing about a
// recorded process is ever known: liveness must come from its claim or lease.

func selfPID() int { return os.Getpid() }

func localHost() hostIdentity {
	name, _ := os.Hostname()
	return hostIdentity{name: name}
}

func startTime(pid int) (uint64, error) {
	if _, err := os.FindProcess(pid); err != nil {
		return 0, fmt.Errorf("runner: look up process %d: %w", pid, err)
	}
	return 0, nil
}

func running(int, uint64) (alive, known bool) { return false, false }
