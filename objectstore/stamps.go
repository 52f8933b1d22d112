package objectstore

import (
	"context"
	"os"
	"sync"
	"time"

	"e3/internal/host/stamp"
)

// maxStamps bounds the number of remembered files. Only large files are remembered, when they are cloned or put again.
const maxStamps = 4096

// stamps are the stats of files that were found to match their names. They last as long as this process: after a
// crash of the system a file may have lost bytes and kept its times. The zero value is empty.
type stamps struct {
	mu    sync.Mutex
	known map[Hash]stat
}

// has reports whether the file of h was checked in this state.
func (s *stamps) has(h Hash, st stat) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	checked, ok := s.known[h]
	return ok && checked.sameContent(st)
}

func (s *stamps) add(h Hash, st stat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxStamps {
		s.known = map[Hash]stat{}
	}
	s.known[h] = st
}

// clock is the current time of the file system's clock in nanoseconds since 1970, 0 before it is known.
func (d *Dir) clock() int64 {
	w := d.writer.Load()
	if w == nil {
		return 0
	}
	return time.Now().Add(w.skew).UnixNano()
}

// remember notes that the file of h matches its name. Its stat was st at the time seen, and it was read afterwards.
// remember ignores a file that has changed meanwhile. It also ignores a file whose times were too young at seen, since
// a change might not alter them, or whose status time is unknown.
func (d *Dir) remember(h Hash, f *os.File, st stat, seen int64) {
	if now, err := fstat(f); err == nil && now.sameContent(st) && st.ctime != 0 && stamp.Settled(seen, st.mtime, st.ctime) {
		d.checked.add(h, st)
	}
}

const (
	// vouchedFrom is the size from which a new object is remembered: hashing so many bytes takes several times as long
	// as the wait in vouch.
	vouchedFrom = 128 << 20
	// longestWait bounds the wait for a tick of a file system's clock.
	longestWait = 100 * time.Millisecond
)

// vouch remembers the object h, whose file f was just linked, so that it can be copied out without another check of its
// bytes. The lease on f began before the object could be reached by a name, or before it was hashed. The lease covers
// the time in which a change could leave the file's times as they are: while it is held, nobody opens the file for
// writing.
func (w *writer) vouch(ctx context.Context, h Hash, f *os.File) {
	st, err := fstat(f)
	if err != nil || st.links != 1 || st.ctime == 0 {
		return
	}
	wait := time.Duration(stamp.Settles(st.mtime, st.ctime)-w.clock()) + time.Millisecond
	if wait > longestWait {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(wait):
	}
	seen := w.clock()
	if leaseHeld(f) {
		w.remember(h, f, st, seen)
	}
}

// lease takes a read lease on the unnamed file of a new object, and reports whether it got one. The file is then open for
// reading only, since no lease is granted while it is open for writing.
func (a *aside) lease() bool {
	f, err := reopenForReading(a.File)
	if err != nil {
		return false
	}
	a.Close()
	a.File = f
	return lease(f)
}
