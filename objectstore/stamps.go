package objectstore

import (
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
