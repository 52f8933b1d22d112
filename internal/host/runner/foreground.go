package runner

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// Foreground runs a program for a person, with their terminal, and returns how it ended. Signals are passed on.
func Foreground(cmd *exec.Cmd, signals <-chan os.Signal) (syscall.WaitStatus, error) {
	var none syscall.WaitStatus
	if err := cmd.Start(); err != nil {
		return none, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s)
		case err := <-ended:
			if err != nil && !errors.As(err, new(*exec.ExitError)) {
				return none, err
			}
			status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
			return status, nil
		}
	}
}
