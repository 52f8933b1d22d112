package runner

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"

	"e3/internal/host/room"

	"golang.org/x/sys/unix"
)

// Visit runs a program in a closed room for a person, with their terminal, and returns how it ended. The program is a
// child of this process, in the same process group: signals of the terminal reach both. Other signals are passed on,
// each as TERM to process 1 of the room.
func Visit(where *room.Room, argv, env []string, files [3]*os.File, signals <-chan os.Signal) (syscall.WaitStatus, error) {
	type end struct {
		status syscall.WaitStatus
		err    error
	}
	ended := make(chan end, 1)
	var mu sync.Mutex
	pid := 0 // pid of process 1, while it may be signalled
	go func() {
		runtime.LockOSThread() // locked for ever: the room dies with the thread
		var slots room.Slots
		defer slots.Close()
		spec := &room.Spec{Paths: room.Candidates(argv[0], env), Argv: argv, Env: env, Dir: room.Work, Foreground: true}
		for i, f := range files {
			spec.Files[i] = int(f.Fd())
		}
		p, err := slots.Start(where, spec)
		if err != nil {
			ended <- end{err: err}
			return
		}
		mu.Lock()
		pid = p.PID
		mu.Unlock()
		fds := []unix.PollFd{{Fd: int32(p.End), Events: unix.POLLIN}}
		for {
			if _, err := unix.Poll(fds, -1); err != unix.EINTR {
				break
			}
		}
		mu.Lock()
		pid = 0
		mu.Unlock()
		result, err := p.Finish()
		ended <- end{result.Status, err}
	}()
	defer regainTerminal(files[0])
	for {
		select {
		case e := <-ended:
			runtime.KeepAlive(files)
			if failed, ok := errors.AsType[*room.Error](e.err); ok {
				e.err = explainClosed(failed, &Spec{Argv: argv, Env: env, Closed: where})
			}
			return e.status, e.err
		case <-signals:
			mu.Lock()
			if pid != 0 {
				_ = unix.Kill(pid, unix.SIGTERM)
			}
			mu.Unlock()
		}
	}
}

// regainTerminal makes this process's group the terminal's foreground group again, after the program's.
func regainTerminal(f *os.File) {
	blocked := &unix.Sigset_t{}
	blocked.Val[0] = 1 << (unix.SIGTTOU - 1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.Sigset_t
	if unix.PthreadSigmask(unix.SIG_BLOCK, blocked, &before) != nil {
		return
	}
	// fails if f is no terminal of this session
	_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
}
