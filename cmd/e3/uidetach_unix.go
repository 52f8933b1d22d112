//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// detach lets a process outlive this one's terminal and signals.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
