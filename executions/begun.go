package executions

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"e3/internal/format/record"
	"e3/internal/host/beneath"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
)

// A note says which command has begun in a sandbox, in a file of the sandbox that outlives the process. It is written
// before the command starts, and erased once the end is on record: one write each, no sync. The note of a dead process
// means an execution without a final record (doc/running.md, "Notes of begun commands").

const (
	noteFile  = "begun" // in a sandbox's root
	noteMagic = "e3begun\x01"
	maxNote   = 64 << 20 // more than a task object allows
)

// self is this process: each os.Getpid is a system call.
var self = int64(os.Getpid())

var noteSums = crc32.MakeTable(crc32.Castagnoli)

// noteHeader is the magic, the length of what follows the header, and its sum.
const noteHeader = len(noteMagic) + 4 + 4

// note is the content of such a file: the record that announcing the execution would have written.
type note struct {
	key            Key
	id             string
	status         []byte
	detail         []byte
	job            string
	stdout, stderr uint64 // inode numbers of the log files, by which they are recognized
}

// encode appends the note to b.
func (n *note) encode(b []byte) []byte {
	start := len(b)
	b = append(b, noteMagic...)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, n.key.Task[:]...)
	b = append(b, n.key.Inputs[:]...)
	b = binary.LittleEndian.AppendUint64(b, n.stdout)
	b = binary.LittleEndian.AppendUint64(b, n.stderr)
	for _, field := range [][]byte{[]byte(n.id), n.status, n.detail, []byte(n.job)} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(field)))
		b = append(b, field...)
	}
	body := b[start+noteHeader:]
	binary.LittleEndian.PutUint32(b[start+len(noteMagic):], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[start+len(noteMagic)+4:], crc32.Checksum(body, noteSums))
	return b
}

// decodeNote returns nil unless b begins with a whole note. A note may be erased, or its write cut off before the
// command could start.
func decodeNote(b []byte) *note {
	if len(b) < noteHeader || string(b[:len(noteMagic)]) != noteMagic {
		return nil
	}
	length, sum := binary.LittleEndian.Uint32(b[len(noteMagic):]), binary.LittleEndian.Uint32(b[len(noteMagic)+4:])
	body := b[noteHeader:]
	if uint64(length) > uint64(len(body)) || crc32.Checksum(body[:length], noteSums) != sum {
		return nil
	}
	body = body[:length]
	var n note
	take := func(size uint64) []byte {
		if size > uint64(len(body)) {
			size = uint64(len(body))
		}
		head := body[:size]
		body = body[size:]
		return head
	}
	number := func(size uint64) uint64 {
		var wide [8]byte
		copy(wide[:], take(size))
		return binary.LittleEndian.Uint64(wide[:])
	}
	copy(n.key.Task[:], take(32))
	copy(n.key.Inputs[:], take(32))
	n.stdout, n.stderr = number(8), number(8)
	n.id, n.status, n.detail, n.job = string(take(number(4))), take(number(4)), take(number(4)), string(take(number(4)))
	if _, err := ParseID(n.id); err != nil {
		return nil
	}
	return &n
}

// note records in the sandbox that the command is about to start.
func (a *attempt) note() error {
	status := a.status(record.Running)
	status.PID = self
	n := note{
		key: a.key, id: a.id, job: a.req.Job.Ref, status: status.Encode(), detail: a.detail(runner.Result{}).Encode(),
		stdout: a.box.logs.numbers[0], stderr: a.box.logs.numbers[1],
	}
	a.box.note.text = n.encode(a.box.note.text[:0])
	if _, err := a.box.note.file.WriteAt(a.box.note.text, 0); err != nil {
		return fmt.Errorf("note that execution %s begins: %w", a.id, err)
	}
	a.box.note.written = true
	info, err := a.box.note.file.Stat()
	if err != nil {
		return fmt.Errorf("note that execution %s begins: %w", a.id, err)
	}
	a.box.note.time = info.ModTime().UnixNano()
	return nil
}

// eraseNote erases the note once the end is on record, or if the command did not start. If that fails, the next start
// reads the note and finds the record.
func (a *attempt) eraseNote() {
	if !a.box.note.written {
		return
	}
	if _, err := a.box.note.file.WriteAt([]byte{0}, 0); err == nil {
		a.box.note.written = false
	}
}

// Unfinished tells whether this process has begun executions whose end it could not record, or which no event tells yet.
func (x *Executor) Unfinished() bool { return x.sandboxes.unfinished.Load() || x.untold.any() }

// A RunOf is a run of a workspace.
type RunOf struct{ Workspace, Run string }

// CloseBegun records the ends of executions that a dead process had begun. dir was its scratch folder, and now belongs
// to this process alone. Surviving processes of the commands are killed first. An execution without a record becomes an
// error, with its command's output so far. One that is on record as running is closed (CloseIfDead). One that another machine
// has given up gets the rest of its logs. A Begun record
// tells the process that closes the execution's run. CloseBegun returns the runs that have such records now.
func (x *Executor) CloseBegun(ctx context.Context, dir string) (runs []RunOf, err error) {
	add := func(ws, run string) {
		if of := (RunOf{ws, run}); !slices.Contains(runs, of) {
			runs = append(runs, of)
		}
	}
	if err := x.leftUntold(ctx, dir, add); err != nil {
		return runs, err
	}
	scratch, err := beneath.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return runs, nil
	}
	if err != nil {
		return runs, fmt.Errorf("close executions that a dead process had begun: %w", err)
	}
	defer scratch.Close()
	boxes, err := scratch.Confine().ReadDir()
	if err != nil {
		return runs, fmt.Errorf("close executions that a dead process had begun: %w", err)
	}
	var begun []*attempt
	var markers []string
	for _, box := range boxes {
		if !strings.HasPrefix(box.Name(), "w") {
			continue
		}
		a, err := x.readNote(scratch, box.Name())
		if err != nil {
			return runs, fmt.Errorf("close executions that a dead process had begun: %w", err)
		}
		if a != nil {
			begun, markers = append(begun, a), append(markers, marker(a.id))
		}
	}
	if len(begun) == 0 {
		return runs, nil
	}
	runner.KillMarked(markers)
	for _, a := range begun {
		if err := a.closeBegun(ctx); err != nil {
			return runs, fmt.Errorf("close execution %s, which a dead process had begun: %w", a.id, err)
		}
		if a.req.RunID != "" && a.req.Workspace != "" && a.req.Job.Ref == "" {
			add(a.req.Workspace, a.req.RunID)
		}
	}
	return runs, nil
}

// readNote returns the attempt that the note of a sandbox describes; nil if it describes none.
func (x *Executor) readNote(scratch *beneath.Dir, name string) (*attempt, error) {
	f, _, err := objectstore.OpenFileIn(scratch, filepath.Join(name, noteFile))
	if err != nil {
		return nil, nil // there is none, or the command has put something in its place
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxNote))
	if err != nil {
		return nil, err
	}
	n := decodeNote(text)
	if n == nil {
		return nil, nil
	}
	status, err := record.DecodeStatus(n.status)
	if err != nil {
		return nil, nil // its sum is right, so another version has written it, which must close it
	}
	detail, err := record.DecodeDetail(n.detail)
	if err != nil {
		return nil, nil
	}
	inputs := make([]objectstore.Hash, len(status.InputHashes))
	for i, h := range status.InputHashes {
		if inputs[i], err = objectstore.ParseHash(h); err != nil {
			return nil, nil
		}
	}
	return &attempt{
		x: x, key: n.key, id: n.id, startedAt: status.StartedAt, inherited: inherited{adopted: true, abandoned: &leftover{status, detail, n}},
		req: &Request{Job: Job{Ref: n.job}, Task: n.key.Task, Inputs: inputs, RunID: detail.RunID, Workspace: detail.Workspace, Name: detail.Task, Attempt: detail.Attempt},
		box: &sandbox{place: place{in: scratch, name: name}},
	}, nil
}

// leftover is an attempt of a dead process, as its note describes it.
type leftover struct {
	status *record.Status
	detail *record.Detail
	note   *note
}

// closeBegun closes an attempt of a dead process.
func (a *attempt) closeBegun(ctx context.Context) error {
	if err := a.putBegun(ctx); err != nil {
		return err
	}
	rec, err := a.x.records.Get(ctx, recordKey(a.key, a.id), fieldDetail)
	if err == nil {
		if e, err := opened(a.key, rec, nil); err == nil && lacksLogs(e) {
			if err := a.saveLogs(ctx); err != nil {
				return err
			}
		}
		_, err = a.x.CloseIfDead(ctx, a.key, a.id)
		if errors.Is(err, ErrMalformed) {
			err = nil // a malformed record is not an answer
		}
		return err
	}
	if errors.Is(err, refstore.ErrDamaged) {
		return nil // a damaged record is not an answer either
	}
	if !errors.Is(err, refstore.ErrNotFound) {
		return err
	}
	a.openLogs()
	defer a.box.closeLogs()
	defer a.close()
	v := verdict{state: record.Error, message: a.x.stale(*a.abandoned.status).Message}
	if a.req.Job.Ref != "" {
		v.reason = ReasonLost
	}
	_, err = a.finish(ctx, v, runner.Result{})
	if errors.Is(err, refstore.ErrConflict) {
		err = nil // another process has closed it
	}
	return err
}

// lacksLogs tells whether the machine that began an execution may have more of its logs than is on record: it goes on there,
// or another process has given it up.
func lacksLogs(e *Execution) bool {
	return e.State == record.Running || e.State == record.Error && (e.Detail == nil || !e.Detail.Logs.Known)
}

// openLogs opens the log files that are still in the sandbox.
func (a *attempt) openLogs() {
	a.box.logs.stdout = openNumbered(a.box.in, filepath.Join(a.box.name, "stdout"), a.abandoned.note.stdout)
	a.box.logs.stderr = openNumbered(a.box.in, filepath.Join(a.box.name, "stderr"), a.abandoned.note.stderr)
}

// saveLogs completes the logs of a record from the dead process's files. A conflict means that another process does the
// same.
func (a *attempt) saveLogs(ctx context.Context) error {
	a.openLogs()
	defer a.box.closeLogs()
	defer a.close()
	err := a.takeLogs(ctx)
	if err == nil && a.pump != nil {
		err = a.pump.finish(ctx)
	}
	if errors.Is(err, refstore.ErrConflict) {
		err = nil
	}
	return err
}

// A Begun is an execution that a dead process had begun for a run. It is kept until the run is closed, because the
// run's events may lack it.
type Begun struct {
	ExecutionID string `json:"-"`
	Task        string `json:"task"`
	Key         string `json:"key"`
	Attempt     int64  `json:"attempt"`
}

func begunPartition(ws, run string) string { return "INDEX/left/" + ws + "/" + run }

// putBegun writes a Begun record. An execution for a job needs none, because its run follows the job.
func (a *attempt) putBegun(ctx context.Context) error {
	if a.req.RunID == "" || a.req.Workspace == "" || a.req.Job.Ref != "" {
		return nil
	}
	return a.x.keepBegun(ctx, a.req.Workspace, a.req.RunID, a.id, &Begun{Task: a.req.Name, Key: a.key.String(), Attempt: a.req.Attempt})
}

func (x *Executor) keepBegun(ctx context.Context, ws, run, id string, b *Begun) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	_, err = x.records.Put(ctx, refstore.Record{Key: refstore.Key{Partition: begunPartition(ws, run), Sort: id}, Value: text})
	if errors.Is(err, refstore.ErrConflict) {
		err = nil // it is there
	}
	return err
}

// BegunFor returns the executions that dead processes had begun for a run, ordered by id.
func (s *Store) BegunFor(ctx context.Context, ws, run string) ([]Begun, error) {
	var all []Begun
	for rec, err := range s.records.List(ctx, refstore.Query{Partition: begunPartition(ws, run)}) {
		if errors.Is(err, refstore.ErrDamaged) {
			continue // only a hint is lost
		}
		if err != nil {
			return nil, fmt.Errorf("executions begun for run %s: %w", run, err)
		}
		l := Begun{ExecutionID: rec.Key.Sort}
		if json.Unmarshal(rec.Value, &l) == nil && l.Task != "" {
			all = append(all, l)
		}
	}
	return all, nil
}

// DropBegun removes what BegunFor returns, once the run is closed.
func (s *Store) DropBegun(ctx context.Context, ws, run string) error {
	for rec, err := range s.records.List(ctx, refstore.Query{Partition: begunPartition(ws, run)}) { // keys alone have no version
		if err == nil || errors.Is(err, refstore.ErrDamaged) {
			err = s.records.Delete(ctx, rec.Key, rec.Version)
		}
		if err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrConflict) {
			return fmt.Errorf("forget executions begun for run %s: %w", run, err)
		}
	}
	return nil
}
