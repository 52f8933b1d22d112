package repo

import (
	"math/rand/v2"
	"os"
	"path/filepath"

	"e3/internal/host/beneath"
)

// A repository in a folder keeps a little space of its disk aside, so that e3 can free more once the disk is full: a start
// that sweeps, gc and prune write locks, a session and tombstones before they remove anything. Each member may use the space:
// the file stays, since another's cannot be removed, and is emptied.
const reserveSize = 128 << 10

var reserveFile = filepath.Join("tmp", "reserve")

// KeepReserve keeps the space aside, unless that is so. A failure costs nothing: the next start tries again.
func KeepReserve(r *Repo) {
	if r.stores.folder == "" || r.stores.overlaid {
		return
	}
	in := r.stores.files.Root()
	if info, err := in.Lstat(reserveFile); err == nil && info.Size() >= reserveSize {
		return
	}
	f, err := in.OpenFile(reserveFile, os.O_WRONLY|os.O_CREATE|beneath.Nonblock, r.stores.modes.File())
	if err != nil {
		return
	}
	defer f.Close()
	data := make([]byte, reserveSize)
	for i := range data {
		data[i] = byte(rand.Uint32()) // a file system that compresses must not save the space
	}
	_ = r.stores.modes.Fix(f, r.stores.modes.File()) // another member's has the mode
	if _, err := f.Write(data); err != nil {
		_ = f.Truncate(0)
	}
}

// UseReserve gives the space back to the disk, and reports whether there was any.
func UseReserve(r *Repo) bool {
	if r.stores.folder == "" || r.stores.overlaid {
		return false
	}
	in := r.stores.files.Root()
	info, err := in.Lstat(reserveFile)
	if err != nil || info.Size() == 0 {
		return false
	}
	f, err := in.OpenFile(reserveFile, os.O_WRONLY|os.O_TRUNC|beneath.Nonblock, 0)
	return err == nil && f.Close() == nil
}
