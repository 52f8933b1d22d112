// Package filelock locks open files: locks exclude other processes, and other open files of the same process. A lock
// ends with its open file, and so with the process. Files that are locked must be closed to users without the right to
// write ([modes.Modes.Lock]): a process that can open a file can hold its lock, and writers would wait.
package filelock

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked reports that another open file has the lock.
var ErrLocked = errors.New("locked by another process")

// ErrEnded reports that a wait has ended because its process has been told to end.
var ErrEnded = errors.New("not waited for")

// Patience is the time after which a wait names the process for which it waits.
const Patience = time.Second

// Once a process has been told to end, its waits go on for grace in total, and each for brief at least: the process may
// have to write something before it ends.
const (
	grace = 2 * time.Second
	brief = 200 * time.Millisecond
)

// A Waiter waits for locks. The zero value waits without a word.
type Waiter struct {
	// Tell, if it is not nil, is called once in each wait of more than Patience, with the path of the file and a
	// description of the holder.
	Tell  func(path, holder string)
	until context.Context
	late  <-chan struct{}
}

// Until returns a Waiter whose waits end soon after ctx. The context of a wait itself need not end then: the wait may
// be for what a process writes at its end.
func Until(ctx context.Context, tell func(path, holder string)) Waiter {
	late := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { close(late) }) })
	return Waiter{tell, ctx, late}
}

// Try locks a file, exclusively or shared, or returns ErrLocked.
func Try(f *os.File, alone bool) error { return lock(f, alone, false) }

// Unlock releases the lock of a file that stays open.
func Unlock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_UN)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &iofs.PathError{Op: "unlock", Path: f.Name(), Err: err}
		}
	}
}

// Wait locks a file. It waits until the lock is free or ctx ends. If it fails, it closes the file: at once, or when a
// lock that comes late has been released.
func (w Waiter) Wait(ctx context.Context, f *os.File, alone bool) error {
	err := Try(f, alone)
	if err == nil {
		return nil
	}
	if !errors.Is(err, ErrLocked) {
		return errors.Join(err, f.Close())
	}
	done := make(chan error, 1)
	go func() { done <- lock(f, alone, true) }()
	patience := time.NewTimer(Patience)
	defer patience.Stop()
	late, ends := w.late, (<-chan time.Time)(nil)
	for {
		select {
		case err := <-done:
			if err != nil {
				return errors.Join(err, f.Close())
			}
			return nil
		case <-patience.C:
			if w.Tell != nil {
				w.Tell(f.Name(), holder(f))
			}
			continue
		case <-late:
			late, ends = nil, time.After(brief)
			continue
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-ends:
			err = context.Cause(w.until)
		}
		go func() {
			<-done
			f.Close() // nothing was written
		}()
		return fmt.Errorf("the lock %s, which %s has, was %w any longer: %w", f.Name(), holder(f), ErrEnded, err)
	}
}

func lock(f *os.File, alone, wait bool) error {
	how := unix.LOCK_SH
	if alone {
		how = unix.LOCK_EX
	}
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		case err != nil:
			return &iofs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
		return nil
	}
}

// unknown describes a holder that the system does not know, for instance on another machine.
const unknown = "another process"
