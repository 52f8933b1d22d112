package executions

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
)

// Between the record of an execution's end and the event that tells of it, a process may die. So before the note of the
// begun command is erased, another note is added to a file beside the sandboxes: one short write, no sync. Once the
// events are written (Told), the file is emptied.

const (
	untoldFile = "untold"

	// maxUntold is the size from which the file is written anew while executions keep ending: told ones are left out. If few
	// are told, it is written anew only when it has doubled.
	maxUntold = 256 << 10
)

// untold are the executions of this process whose end is on record, and of whose end no event is known to be written.
type untold struct {
	mu    sync.Mutex
	path  string
	file  *os.File // nil: it could not be made
	size  int64
	due   int64             // the size from which it is written anew; 0: maxUntold
	notes map[string][]byte // by id
}

// add adds the note of an execution whose end is on record. A fault is none of the execution's: only a hint is lost.
func (u *untold) add(dir func() (string, error), end *note) {
	text := end.encode(nil)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.notes == nil {
		u.notes = map[string][]byte{}
	}
	u.notes[end.id] = text
	if u.file == nil {
		at, err := dir()
		if err == nil {
			u.path = filepath.Join(at, untoldFile)
			u.file, err = os.OpenFile(u.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
		}
		if err != nil {
			return
		}
	}
	n, err := u.file.Write(text)
	if u.size += int64(n); u.size > max(u.due, maxUntold) {
		u.rewrite()
	}
	if err != nil { // for example a full disk: the note may be torn, so the next execution has the file written anew
		u.size = max(u.due, maxUntold) + 1
	}
}

// rewrite leaves out what is told. The caller holds the lock.
func (u *untold) rewrite() {
	next, err := os.OpenFile(u.path+".next", os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	size := int64(0)
	for _, text := range u.notes {
		n, werr := next.Write(text)
		size, err = size+int64(n), errors.Join(err, werr)
	}
	if err = errors.Join(err, os.Rename(u.path+".next", u.path)); err != nil {
		next.Close()
		os.Remove(u.path + ".next")
		return
	}
	u.file.Close()
	u.file, u.size, u.due = next, size, 2*size
}

// told forgets executions.
func (u *untold) told(ids ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range ids {
		delete(u.notes, id)
	}
	if len(u.notes) == 0 && u.size > 0 && u.file.Truncate(0) == nil {
		u.size, u.due = 0, 0
	}
}

func (u *untold) any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.notes) > 0
}

// Told says that the end of an execution of this process is in the events of its run.
func (x *Executor) Told(id string) { x.untold.told(id) }
