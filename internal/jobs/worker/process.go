package worker

import (
	"os/exec"
	"time"
)

const (
	lookNeeded = 20 * time.Millisecond
	// endAlone is how long a process has to end by itself once it is not needed any more.
	endAlone = time.Second
)

// RunWhile runs a worker's process while it is needed. The process may end by itself, with an error that is returned;
// a moment after it is not needed any more it is killed.
func RunWhile(cmd *exec.Cmd, needed func() bool) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for needed() {
		select {
		case err := <-ended:
			return err
		case <-time.After(lookNeeded):
		}
	}
	select {
	case <-ended:
	case <-time.After(endAlone):
		_ = cmd.Process.Kill() // it may have ended just now
		<-ended
	}
	return nil
}
