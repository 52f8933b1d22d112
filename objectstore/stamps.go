package objectstore

import (
	"os"
	"sync"
	"time"

	"e3/internal/host/stamp"
)

// maxStamps bounds how many files are remembered. Only large ones are: what is cloned, and what is put again.
const maxStamps = 4096

// stamps are what files looked like that were found to hold what their names say. They are of this process: after a
// crash of the system a file may have lost bytes and kept its times. The zero value is empty.
type stamps struct {
	mu    sync.Mutex
	known map[Hash]stat
}

// has tells whether the file of h was checked as it is.
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

// clock is the file system's present in nanoseconds since 1970, 0 before that is known.
func (d *Dir) clock() int64 {
	w := d.writer.Load()
	if w == nil {
		return 0
	}
	return time.Now().Add(w.skew).UnixNano()
}

// remember notes that the file of h, which was as st says at seen and from then on until it was read, is what its name says. One
// that has changed meanwhile is not remembered, nor one whose times were so young at seen that a change could keep them, or are
// those of the content alone.
func (d *Dir) remember(h Hash, f *os.File, st stat, seen int64) {
	if now, err := fstat(f); err == nil && now.sameContent(st) && st.ctime != 0 && stamp.Settled(seen, st.mtime, st.ctime) {
		d.checked.add(h, st)
	}
}
