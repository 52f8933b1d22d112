//go:build unix

package runner

import (
	"time"

	"golang.org/x/sys/unix"
)

// maxPipe is the most that a pipe holds, unless an administrator raised the limit.
const maxPipe = 1 << 20

// drain reads the present content of the pipe, without waiting. An escaped process may hold the other end and write for
// ever, so the amount is bounded.
func (p *pump) drain(buf []byte) {
	conn, err := p.r.SyscallConn()
	if err != nil || p.r.SetReadDeadline(time.Time{}) != nil {
		return
	}
	for total := 0; total < maxPipe; {
		n := 0
		readErr := conn.Read(func(fd uintptr) bool {
			n, err = unix.Read(int(fd), buf)
			return true // also if it would block: the pipe is empty then
		})
		if err == unix.EINTR {
			continue
		}
		if readErr != nil || err != nil || n <= 0 {
			return
		}
		p.write(buf[:n])
		total += n
	}
}
