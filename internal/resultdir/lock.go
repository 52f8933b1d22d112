package resultdir

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"e3/internal/backoff"
)

// lock waits for other processes that write in the folder. The kernel releases the lock of a dead one. File systems that
// cannot lock a folder do without.
func (f *Folder) lock(ctx context.Context) (unlock func(), err error) {
	top, err := f.Root.Open(".")
	if err != nil {
		return nil, err
	}
	for nap := time.Millisecond; ; nap = min(2*nap, 100*time.Millisecond) {
		err := unix.Flock(int(top.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return func() { top.Close() }, nil
		}
		if err := backoff.Wait(ctx, nap); err != nil {
			top.Close()
			return nil, err
		}
	}
}
