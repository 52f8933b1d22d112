package main

import (
	"os"
	"syscall"
)

// peakMemory is the greatest resident size that an ended process had, in KiB.
func peakMemory(p *os.ProcessState) int64 {
	if usage, ok := p.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss
	}
	return 0
}
