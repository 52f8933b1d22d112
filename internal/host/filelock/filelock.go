// Package filelock locks open files, between processes and between the open files of one. A lock ends with its open file,
// and so with the process. Files that are locked must be closed to users without the right to write ([modes.Modes.Lock]):
// a process that can open a file can hold its lock, and writers would wait.
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

// ErrEnded reports that a wait has ended because its process is to.
var ErrEnded = errors.New("not waited for")

// Patience is the time after which a wait says for which process it waits.
const Patience = time.Second

// Once a process has been told to end, its waits go on for grace in all, and each for brief at least: what is to be written
// may belong to the end.
const (
	grace = 2 * time.Second
	brief = 200 * time.Millisecond
)

// A Waiter waits for locks. The zero value waits without a word.
type Waiter struct {
	// Tell, if it is not nil, is called once in each wait of more than Patience, with the path of the file and what is known
	// of the holder.
	Tell  func(path, holder string)
	until context.Context
	late  <-chan struct{}
}

// Until returns a Waiter whose waits end soon after ctx: also one whose own context does not end, since it is for what a process
// writes at its end.
func Until(ctx context.Context, tell func(path, holder string)) Waiter {
	late := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { close(late) }) })
	return Waiter{tell, ctx, late}
}

// Try locks a file, alone or with others, or returns ErrLocked.
func Try(f *os.File, alone bool) error { return lock(f, alone, false) }

// Wait locks a file, and waits until that is possible or ctx ends. If it fails it closes the file, at once or after a late
// lock was released.
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

// unknown is a holder of which the system tells nothing, for instance one on another machine.
const unknown = "another process"
