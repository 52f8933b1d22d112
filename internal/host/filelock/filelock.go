// Package filelock locks open files, between processes and between the open files of one. A lock ends with its open file,
// and so with the process. Files that are locked must be closed to users without the right to write ([modes.Modes.Lock]):
// whoever can open a file can hold its lock, and writers would wait.
package filelock

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrLocked reports that another open file has the lock.
var ErrLocked = errors.New("locked by another process")

// Patience is the time after which a wait says for which process it waits.
const Patience = time.Second

// Tell is called once, by a goroutine that waits, with the path of the file and what is known of the holder. nil: ignored.
type Tell func(path, holder string)

// Try locks a file, alone or with others, or returns ErrLocked.
func Try(f *os.File, alone bool) error { return lock(f, alone, false) }

// Wait locks a file, and waits until that is possible or ctx ends. If it fails it closes the file, at once or after a late
// lock was released.
func Wait(ctx context.Context, f *os.File, alone bool, tell Tell) error {
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
	for {
		select {
		case err := <-done:
			if err != nil {
				return errors.Join(err, f.Close())
			}
			return nil
		case <-patience.C:
			if tell != nil {
				tell(f.Name(), holder(f))
			}
		case <-ctx.Done():
			go func() {
				<-done
				f.Close() // nothing was written
			}()
			return context.Cause(ctx)
		}
	}
}

// unknown is a holder of which the system tells nothing, for instance one on another machine.
const unknown = "another process"
