package executions

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Between the record of an execution's end and the event that tells of it, a process may die. So before the note of the
// begun command is erased, the execution is added to a file beside the sandboxes: one short write, no sync. Once the
// events are written (Told), the file is emptied. The lines of a dead process come to the process that closes its run,
// as notes do.

const (
	untoldFile = "untold"

	// maxUntold is the size from which the file is written anew while executions keep ending: told ones are left out. If few
	// are told, it is written anew only when it has doubled.
	maxUntold = 256 << 10

	maxUntoldLine = 1 << 20
)

// untold are the executions of this process whose end is on record, and of whose end no event is known to be written.
type untold struct {
	mu    sync.Mutex
	path  string
	file  *os.File // nil: it could not be made
	size  int64
	due   int64             // the size from which it is written anew; 0: maxUntold
	lines map[string][]byte // by id
}

// untoldEnd is a line of the file.
type untoldEnd struct {
	ID        string `json:"id"`
	Workspace string `json:"workspace"`
	Run       string `json:"run"`
	Begun
}

// add notes an execution whose end is on record. A fault is none of the execution's: only a hint is lost.
func (u *untold) add(dir func() (string, error), end *untoldEnd) {
	line, err := json.Marshal(end)
	if err != nil {
		return
	}
	line = append(line, '\n')
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lines == nil {
		u.lines = map[string][]byte{}
	}
	u.lines[end.ID] = line
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
	n, err := u.file.Write(line)
	if u.size += int64(n); u.size > max(u.due, maxUntold) {
		u.rewrite()
	}
	if err != nil { // for example a full disk: the line may be torn, so the next execution has the file written anew
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
	for _, line := range u.lines {
		n, werr := next.Write(line)
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
		delete(u.lines, id)
	}
	if len(u.lines) == 0 && u.size > 0 && u.file.Truncate(0) == nil {
		u.size, u.due = 0, 0
	}
}

func (u *untold) any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.lines) > 0
}

// Told says that the end of an execution of this process is in the events of its run.
func (x *Executor) Told(id string) { x.untold.told(id) }

// noteEnd notes that the end of the execution is on record. An execution for a job needs that not, because its run
// follows the job.
func (a *attempt) noteEnd() {
	if a.req.RunID == "" || a.req.Workspace == "" || a.req.Job.Ref != "" || a.abandoned != nil {
		return
	}
	a.x.untold.add(a.x.opts.Scratch, &untoldEnd{ID: a.id, Workspace: a.req.Workspace, Run: a.req.RunID,
		Begun: Begun{Task: a.req.Name, Key: a.key.String(), Attempt: a.req.Attempt}})
}

// leftUntold keeps what a dead process has not told for the processes that close its runs.
func (x *Executor) leftUntold(ctx context.Context, dir string, each func(ws, run string)) error {
	file, err := os.Open(filepath.Join(dir, untoldFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // a file that was left in the making
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close() // nothing was written
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxUntoldLine)
	for lines.Scan() {
		end := untoldEnd{}
		if json.Unmarshal(lines.Bytes(), &end) != nil { // its write was cut off
			continue
		}
		if _, err := ParseID(end.ID); err != nil || end.Workspace == "" || end.Run == "" {
			continue
		}
		if err := x.keepBegun(ctx, end.Workspace, end.Run, end.ID, &end.Begun); err != nil {
			return fmt.Errorf("keep what a dead process has not told: %w", err)
		}
		each(end.Workspace, end.Run)
	}
	return lines.Err()
}
