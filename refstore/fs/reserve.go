package fs

import (
	"context"
	"math/rand/v2"
	"os"

	"e3/internal/host/beneath"
	"e3/refstore"
)

// A repository keeps a little space of its disk aside, so that e3 can free more once the disk is full: gc and prune write locks,
// a session and tombstones before they remove anything, and a sweep a session. Each member may use the space: the file stays,
// since another's cannot be removed, and is emptied.
const (
	reserveName = temp + "/reserve"
	reserveSize = 128 << 10
)

// KeepReserve keeps the space aside, unless that is so. A failure costs nothing: the next start tries again.
func (s *Store) KeepReserve() {
	if info, err := s.files.Lstat(reserveName); err == nil && info.Size() >= reserveSize {
		return
	}
	f, err := s.files.OpenFile(reserveName, os.O_WRONLY|os.O_CREATE|beneath.Nonblock, s.files.modes.File())
	if err != nil {
		return
	}
	defer f.Close()
	data := make([]byte, reserveSize)
	for i := range data {
		data[i] = byte(rand.Uint32()) // a file system that compresses must not save the space
	}
	_ = s.files.modes.Fix(f, s.files.modes.File()) // another member's has the mode
	_, _ = f.Write(data)                           // as much as there is
}

// UseReserve gives the space back to the disk, and reports whether there was any.
func (s *Store) UseReserve() bool {
	info, err := s.files.Lstat(reserveName)
	if err != nil || info.Size() == 0 {
		return false
	}
	f, err := s.files.OpenFile(reserveName, os.O_WRONLY|os.O_TRUNC|beneath.Nonblock, 0)
	return err == nil && f.Close() == nil
}

// withRoom calls do, which writes. On a full disk it removes what dead processes have left there, and if that was something calls
// do again. Writes of the sweep itself have the reserve instead.
func (s *Store) withRoom(do func() error) error {
	err := do()
	if !refstore.DiskFull(err) || !s.making.CompareAndSwap(false, true) {
		return err
	}
	defer s.making.Store(false)
	if swept, used, _ := s.sweepFull(context.Background()); swept == 0 && !used {
		return err
	}
	return do()
}
