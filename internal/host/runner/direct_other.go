//go:build !linux

package runner

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"e3/internal/host/process"
)

// backend runs commands as children of this process, on systems where a process cannot adopt orphans. A guard kills
// their groups when this process dies.
type backend struct {
	guard *guard
	umask umask

	mu      sync.Mutex
	running map[*group]struct{}
	closing bool
	ended   sync.WaitGroup
}

func startBackend(Options, time.Duration) (*backend, error) {
	g, err := newGuard()
	if err != nil {
		return nil, err
	}
	return &backend{guard: g, umask: readUmask(), running: make(map[*group]struct{})}, nil
}

// gone reports whether the guard is gone. Running commands continue without it.
func (b *backend) gone() bool { return b.guard.gone() }

// start creates the process in its own group, and tells the guard the group.
func (b *backend) start(path string, spec *Spec) (*os.Process, *group, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	stdout, stderr := spec.Stdout, spec.Stderr
	if stdout == nil {
		stdout = null
	}
	if stderr == nil {
		stderr = null
	}
	env := spec.Env
	if env == nil {
		env = []string{} // nil would mean this process's environment
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return nil, nil, ErrClosed
	}
	process, err := b.umask.start(path, spec.Argv, &os.ProcAttr{
		Dir:   spec.Dir,
		Env:   env,
		Files: []*os.File{null, stdout, stderr},
		Sys:   groupAttributes(),
	})
	if err != nil {
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			return nil, nil, errno
		}
		return nil, nil, err
	}
	g, err := b.guard.add(process)
	if err != nil {
		_ = process.Kill()
		_, _ = process.Wait()
		return nil, nil, err
	}
	b.running[g] = struct{}{}
	b.ended.Add(1)
	return process, g, nil
}

// run returns a bare syscall.Errno if the command could not start.
func (b *backend) run(ctx context.Context, path string, spec *Spec, host func() process.Host) (Result, error) {
	started := time.Now()
	proc, g, err := b.start(path, spec)
	if err != nil {
		return Result{}, err
	}
	type outcome struct {
		state *os.ProcessState
		err   error
	}
	exit := make(chan outcome, 1)
	go func() {
		state, err := proc.Wait()
		exit <- outcome{state, err}
	}()

	result := Result{PID: proc.Pid, Started: started, Straggler: true}
	var announce, timeout, grace <-chan time.Time
	if spec.OnStart != nil {
		announce = time.After(spec.OnStartAfter)
	}
	if spec.Timeout > 0 {
		timeout = time.After(spec.Timeout)
	}
	cancelled := ctx.Done()
	stop := func(reason *bool) {
		*reason = true
		timeout, cancelled = nil, nil // the first reason counts
		if spec.Grace <= 0 {
			g.kill()
			return
		}
		g.terminate()
		grace = time.After(spec.Grace)
	}
	for {
		select {
		case <-announce:
			announce = nil
			if start, err := process.StartTime(proc.Pid); err == nil {
				h := host()
				spec.OnStart(h.Identify(proc.Pid, start))
			}
		case <-timeout:
			stop(&result.TimedOut)
		case <-cancelled:
			stop(&result.Cancelled)
		case <-grace:
			grace = nil
			g.kill()
		case end := <-exit:
			result.Ended = time.Now()
			if b.finish(g) && !result.TimedOut {
				result.Cancelled = true
			}
			if end.err != nil {
				return result, end.err
			}
			result.fill(end.state)
			return result, nil
		}
	}
}

// finish kills the remaining processes of the group and reports whether Close was called.
func (b *backend) finish(g *group) (closing bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g.kill()
	b.guard.remove(g)
	delete(b.running, g)
	b.ended.Done()
	return b.closing
}

func (r *Result) fill(state *os.ProcessState) {
	r.ExitCode = state.ExitCode()
	r.UserCPU, r.SystemCPU = state.UserTime(), state.SystemTime()
	r.PeakRSS = peakRSS(state)
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		r.Signal = status.Signal()
	}
}

func (b *backend) close() error {
	b.mu.Lock()
	b.closing = true
	for g := range b.running {
		g.kill()
	}
	b.mu.Unlock()
	b.ended.Wait()
	return b.guard.close()
}
