package main

import (
	"os"
	"syscall"
)

// peakMemory is the greatest resident size of an ended process, in KiB.
func peakMemory(p *os.ProcessState) int64 {
	if usage, ok := p.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss
	}
	return 0
}
