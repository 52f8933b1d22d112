package repo

import (
	"math/rand/v2"
	"os"
	"path/filepath"
)

// A repository in a folder keeps a little space of its disk aside, so that e3 can free more once the disk is full: gc and
// prune write locks, a session and tombstones before they remove anything.
const (
	reserveFile = "reserve" // in tmp
	reserveSize = 128 << 10
)

func (s *stores) reservePath() string { return filepath.Join(s.folder, "tmp", reserveFile) }

// KeepReserve keeps the space aside, unless that is so. A failure costs nothing: the next start tries again.
func KeepReserve(r *Repo) {
	if r.stores.folder == "" || r.stores.overlaid {
		return
	}
	path := r.stores.reservePath()
	if _, err := os.Lstat(path); err == nil {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, r.stores.modes.File())
	if err != nil {
		return
	}
	data := make([]byte, reserveSize)
	for i := range data {
		data[i] = byte(rand.Uint32()) // a file system that compresses must not save the space
	}
	if err = r.stores.modes.Fix(f, r.stores.modes.File()); err == nil {
		_, err = f.Write(data)
	}
	if closed := f.Close(); err != nil || closed != nil {
		_ = os.Remove(path)
	}
}

// UseReserve gives the space back to the disk, and reports whether there was any.
func UseReserve(r *Repo) bool {
	return r.stores.folder != "" && !r.stores.overlaid && os.Remove(r.stores.reservePath()) == nil
}
