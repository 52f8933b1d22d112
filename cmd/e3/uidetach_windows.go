package main

import (
	"os/exec"
	"syscall"
)

// detach lets a process outlive this one's console and signals.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
