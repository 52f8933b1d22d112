package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runMasked puts a pipe and a MaskWriter between the command and its files.
func (s *Supervisor) runMasked(ctx context.Context, path string, spec *Spec) (Result, error) {
	var pumps []*pump
	defer func() {
		for _, p := range pumps {
			p.close()
		}
	}()
	open := func(file *os.File) (*os.File, error) {
		p, err := newPump(file, spec.Mask)
		if err != nil {
			return nil, fmt.Errorf("runner: mask output: %w", err)
		}
		pumps = append(pumps, p)
		return p.w, nil
	}
	direct := *spec
	var err error
	if spec.Stdout != nil {
		if direct.Stdout, err = open(spec.Stdout); err != nil {
			return Result{}, err
		}
	}
	switch {
	case spec.Stderr == nil:
	case spec.Stderr == spec.Stdout:
		direct.Stderr = direct.Stdout // one pipe keeps the order of the lines
	default:
		if direct.Stderr, err = open(spec.Stderr); err != nil {
			return Result{}, err
		}
	}
	for _, p := range pumps {
		go p.copy()
	}
	result, err := s.run(ctx, path, &direct)
	for _, p := range pumps {
		if pumpErr := p.finish(); pumpErr != nil && err == nil {
			err = fmt.Errorf("runner: write masked output: %w", pumpErr)
		}
	}
	return result, err
}

// pump copies the output of a command through a mask.
type pump struct {
	r, w *os.File
	mask *MaskWriter
	done chan struct{}
	err  error    // error of the destination; valid when done
	to   *os.File // closed with the pump; nil: the caller closes the destination
}

func newPump(to *os.File, secrets []string) (*pump, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &pump{r: r, w: w, mask: NewMaskWriter(to, Forms(secrets...)...), done: make(chan struct{})}, nil
}

// copy reads until the end of the pipe, or until finish. After an error of the destination it continues to read, so
// that the command is not blocked.
func (p *pump) copy() {
	defer close(p.done)
	buf := make([]byte, 32<<10)
	for {
		n, err := p.r.Read(buf)
		p.write(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.drain(buf)
			return
		}
		if err != nil {
			return
		}
	}
}

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
			return true // also if the read would block: the pipe is empty then
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

func (p *pump) write(b []byte) {
	if p.err == nil && len(b) > 0 {
		_, p.err = p.mask.Write(b)
	}
}

// finish is called after the end of the command. It returns the destination's error.
func (p *pump) finish() error {
	p.w.Close()
	// The pipe does not end if an escaped process holds it, so a deadline makes copy drain the rest.
	_ = p.r.SetReadDeadline(time.Now())
	<-p.done
	if p.err == nil {
		p.err = p.mask.Flush()
	}
	return p.err
}

// finishPumps ends the pumps of a command that has ended, and returns the first errno.
func finishPumps(pumps []*pump) (errno uint32) {
	for _, p := range pumps {
		if err := p.finish(); err != nil && errno == 0 {
			number, ok := errors.AsType[syscall.Errno](err)
			if !ok {
				number = syscall.EIO
			}
			errno = uint32(number)
		}
		p.close()
	}
	return errno
}

func (p *pump) close() {
	p.w.Close()
	p.r.Close()
	if p.to != nil {
		p.to.Close()
	}
}
