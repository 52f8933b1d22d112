package fs

import (
	"context"
	"math/rand/v2"
	"os"

	"e3/internal/host/beneath"
	"e3/refstore"
)

// A repository reserves a little space of its disk, so that e3 can free more once the disk is full: before they remove
// anything, gc and prune write locks, a session and tombstones, and a sweep writes a session. Each member may use the
// space by emptying the file. The file itself stays, since a member cannot remove another's file.
const (
	reserveName = temp + "/reserve"
	reserveSize = 128 << 10
)

// KeepReserve reserves the space, unless it is reserved. A failure costs nothing: the next start tries again.
func (s *Store) KeepReserve() {
	if info, err := s.files.Lstat(reserveName); err == nil && info.Size() >= reserveSize {
		return
	}
	f, err := s.files.OpenFile(reserveName, os.O_WRONLY|os.O_CREATE|beneath.Nonblock, s.files.modes.File())
	if err != nil {
		return
	}
	defer f.Close()
	s.reserveUsed.Store(false)
	data := make([]byte, reserveSize)
	for i := range data {
		data[i] = byte(rand.Uint32()) // a file system that compresses must not save the space
	}
	_ = s.files.modes.Fix(f, s.files.modes.File()) // another member's file has its mode already
	_, _ = f.Write(data)                           // on a full disk, as much as there is room for
}

// UseReserve gives the space back to the disk, and reports whether there was any, or another write of this store has
// given it back since. It syncs, because a file system with a journal (ext4) hands out freed blocks once it has
// committed, and until then may refuse a write for want of them.
func (s *Store) UseReserve() bool {
	info, err := s.files.Lstat(reserveName)
	if err != nil || info.Size() == 0 {
		return s.reserveUsed.Load()
	}
	f, err := s.files.OpenFile(reserveName, os.O_WRONLY|os.O_TRUNC|beneath.Nonblock, 0)
	if err != nil {
		return false
	}
	_ = f.Sync() // without it, the space comes with the next commit
	s.reserveUsed.Store(true)
	return f.Close() == nil
}

// withRoom calls do, which writes. On a full disk it sweeps dead processes' files, and calls do again if there were
// any, or if another goroutine has made room since. For the writes of the sweep itself there is the reserve.
func (s *Store) withRoom(do func() error) error {
	relieved := s.relieved.Load()
	err := do()
	if !refstore.DiskFull(err) {
		return err
	}
	s.makeRoom()
	if s.relieved.Load() == relieved {
		return err
	}
	return do()
}

// makeRoom sweeps, unless that is being done: by another goroutine, or by the sweep whose write this is.
func (s *Store) makeRoom() {
	if !s.making.CompareAndSwap(false, true) {
		return
	}
	defer s.making.Store(false)
	if swept, used, _ := s.sweepFull(context.Background()); swept > 0 || used {
		s.relieved.Add(1)
	}
}
