package executions

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"

	"e3/internal/format/record"
	"e3/internal/host/runner"
)

// A note tells of an execution to the process that finishes it if this one dies. There are three kinds:
//
//   - The note in a file of the sandbox says that the command begins. It is written before the command starts, and
//     erased once the end is on record: one write each, no sync. The note of a dead process means an execution without
//     a final record.
//   - The note in the file of untold ends (below) says that the end is on record and no event tells of it.
//   - The note with the supervisor says where the command of a job runs (adopt.go).
//
// CloseBegun reads the first two, Adopt the last (doc/running.md, "Notes of begun commands").
type note struct {
	key    Key
	id     string
	status *record.Status // as of a running execution; nil: its end is on record
	detail *record.Detail
	job    string
	logs   [2]uint64 // inode numbers of the log files, by which they are recognized

	// For the supervisor.
	sandbox string // in the scratch directory of the process that began the command
	work    string // identity of its working directory (beneath.Dir.Identity)
}

const (
	noteFile  = "begun" // in a sandbox's root
	noteMagic = "e3begun\x01"
	maxNote   = 64 << 20 // more than a task object allows
)

// self is this process: each os.Getpid is a system call.
var self = int64(os.Getpid())

// noteHeader is the size of a header: the magic, the length of the body, and the body's sum.
const noteHeader = len(noteMagic) + 4 + 4

// beginNote says that the command is about to start.
func (a *assignment) beginNote(logs [2]uint64) *note {
	status := a.status(record.Running)
	status.PID = self
	return &note{key: a.key, id: a.id, job: a.req.Job.Ref, status: status, detail: a.detail(runner.Result{}), logs: logs}
}

// endNote says that the end of the execution is on record.
func (a *assignment) endNote() *note {
	return &note{key: a.key, id: a.id, job: a.req.Job.Ref, detail: &record.Detail{
		Attempt: a.req.Attempt, RunID: a.req.RunID, Workspace: a.req.Workspace, Task: a.req.Name,
	}}
}

// encode appends the note to b.
func (n *note) encode(b []byte) []byte {
	start := len(b)
	b = append(b, noteMagic...)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, n.key.Task[:]...)
	b = append(b, n.key.Inputs[:]...)
	b = binary.LittleEndian.AppendUint64(b, n.logs[0])
	b = binary.LittleEndian.AppendUint64(b, n.logs[1])
	var status []byte
	if n.status != nil {
		status = n.status.Encode()
	}
	for _, field := range [][]byte{[]byte(n.id), status, n.detail.Encode(), []byte(n.job), []byte(n.sandbox), []byte(n.work)} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(field)))
		b = append(b, field...)
	}
	body := b[start+noteHeader:]
	binary.LittleEndian.PutUint32(b[start+len(noteMagic):], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[start+len(noteMagic)+4:], crc32.Checksum(body, castagnoli))
	return b
}

// decodeNote returns the note at the beginning of b, and the rest; nil if b does not begin with a whole note. A note
// may be erased, or its write cut off before the command could start. A note with the right sum that cannot be
// decoded comes from another version of e3, which must close it.
func decodeNote(b []byte) (n *note, rest []byte) {
	if len(b) < noteHeader || string(b[:len(noteMagic)]) != noteMagic {
		return nil, nil
	}
	length, sum := binary.LittleEndian.Uint32(b[len(noteMagic):]), binary.LittleEndian.Uint32(b[len(noteMagic)+4:])
	body := b[noteHeader:]
	if uint64(length) > uint64(len(body)) || crc32.Checksum(body[:length], castagnoli) != sum {
		return nil, nil
	}
	body, rest = body[:length], body[length:]
	cut := func(size uint64) []byte {
		head := body[:min(size, uint64(len(body)))]
		body = body[len(head):]
		return head
	}
	number := func(size uint64) uint64 {
		var wide [8]byte
		copy(wide[:], cut(size))
		return binary.LittleEndian.Uint64(wide[:])
	}
	field := func() []byte { return cut(number(4)) }
	n = &note{}
	copy(n.key.Task[:], cut(32))
	copy(n.key.Inputs[:], cut(32))
	n.logs = [2]uint64{number(8), number(8)}
	n.id = string(field())
	_, err := ParseID(n.id)
	if status := field(); err == nil && len(status) > 0 {
		n.status, err = record.DecodeStatus(status)
	}
	if detail := field(); err == nil {
		n.detail, err = record.DecodeDetail(detail)
	}
	n.job, n.sandbox, n.work = string(field()), string(field()), string(field())
	if err != nil {
		return nil, nil
	}
	return n, rest
}

// decodeNotes returns the whole notes in a text. Bytes between them are skipped.
func decodeNotes(text []byte) (all []*note) {
	for {
		at := bytes.Index(text, []byte(noteMagic))
		if at < 0 {
			return all
		}
		n, rest := decodeNote(text[at:])
		if n == nil {
			text = text[at+len(noteMagic):]
			continue
		}
		all, text = append(all, n), rest
	}
}

// ofRun tells whether an event of a run must tell of the execution. For the execution of a job, the job's end does.
func (n *note) ofRun() bool {
	return n.detail.RunID != "" && n.detail.Workspace != "" && n.job == ""
}

// writeNote replaces the note in the sandbox.
func (b *sandbox) writeNote(n *note) error {
	b.note.text = n.encode(b.note.text[:0])
	if _, err := b.note.file.WriteAt(b.note.text, 0); err != nil {
		return err
	}
	b.note.written = true
	info, err := b.note.file.Stat()
	if err != nil {
		return err
	}
	b.note.time = info.ModTime().UnixNano()
	return nil
}

// eraseNote erases the note once the end is on record, or if the command did not start. If that fails, the next start
// reads the note and finds the record.
func (b *sandbox) eraseNote() {
	if !b.note.written {
		return
	}
	if _, err := b.note.file.WriteAt([]byte{0}, 0); err == nil {
		b.note.written = false
	}
}

// Between the record of an execution's end and the event that tells of it, a process may die. So before the note of the
// begun command is erased, another note is added to a file beside the sandboxes: one short write, no sync. Once the
// events are written (Told), the file is emptied.

const (
	untoldFile = "untold"

	// maxUntold is the size from which the file is written anew while executions keep ending: told ones are left out. If few
	// are told, it is written anew only when it has doubled.
	maxUntold = 256 << 10
)

// untold are the executions of this process whose end is on record but not yet in an event, as far as is known.
type untold struct {
	mu    sync.Mutex
	path  string
	file  *os.File // nil: it could not be made
	size  int64
	due   int64             // the size from which it is written anew; 0: maxUntold
	notes map[string][]byte // by id
}

// keep adds the note of an execution whose end is on record. A fault does not fail the execution: only a hint is
// lost.
func (u *untold) keep(dir func() (string, error), end *note) {
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

// rewrite writes the file without the executions that are told. The caller holds the lock.
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

// forget forgets executions.
func (u *untold) forget(ids ...string) {
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
func (x *Executor) Told(id string) { x.untold.forget(id) }
