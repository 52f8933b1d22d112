package executions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"e3/internal/format/record"
	"e3/internal/host/beneath"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
)

// Unfinished tells whether an execution of this process has an end that is not on record, or that no event tells yet.
func (x *Executor) Unfinished() bool { return x.sandboxes.unfinished.Load() || x.untold.any() }

// A RunOf is a run of a workspace.
type RunOf struct{ Workspace, Run string }

// CloseBegun records the ends of executions that a dead process had begun. dir was its scratch folder, and now belongs
// to this process alone. Surviving processes of the commands are killed first. CloseBegun returns the runs that have Begun
// records now.
func (x *Executor) CloseBegun(ctx context.Context, dir string) (runs []RunOf, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("close executions that a dead process had begun: %w", err)
		}
	}()
	scratch, err := beneath.Open(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // a file that was left in the making
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer scratch.Close()
	left, err := readNotes(scratch.Confine())
	if err != nil {
		return nil, err
	}
	var markers []string
	for _, n := range left {
		if n.status != nil {
			markers = append(markers, marker(n.id))
		}
	}
	if len(markers) > 0 {
		runner.KillMarked(markers)
	}
	for _, n := range left {
		if err := x.closeNote(ctx, n); err != nil {
			return runs, fmt.Errorf("execution %s: %w", n.id, err)
		}
		if of := (RunOf{n.detail.Workspace, n.detail.RunID}); n.ofRun() && !slices.Contains(runs, of) {
			runs = append(runs, of)
		}
	}
	return runs, nil
}

// A leftNote is the note of a dead process, with the sandbox in which it was.
type leftNote struct {
	*note
	box place // zero if the note is of an untold end
}

// readNotes reads the notes in the scratch folder of a dead process.
func readNotes(scratch *beneath.Dir) (left []leftNote, err error) {
	f, _, err := objectstore.OpenFileIn(scratch, untoldFile)
	if err == nil {
		var text []byte
		text, err = readAll(f)
		for _, n := range decodeNotes(text) {
			if n.status == nil {
				left = append(left, leftNote{note: n})
			}
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	boxes, err := scratch.ReadDir()
	if err != nil {
		return nil, err
	}
	for _, box := range boxes {
		if !strings.HasPrefix(box.Name(), "w") {
			continue
		}
		f, _, err := objectstore.OpenFileIn(scratch, filepath.Join(box.Name(), noteFile))
		if err != nil { // there is no note, or the command has replaced it
			continue
		}
		text, err := readAll(f)
		if err != nil {
			return nil, err
		}
		if n, _ := decodeNote(text); n != nil && n.status != nil {
			left = append(left, leftNote{note: n, box: place{in: scratch, name: box.Name()}})
		}
	}
	return left, nil
}

// readAll reads a file of notes, and closes it.
func readAll(f *os.File) ([]byte, error) {
	defer f.Close() // nothing was written
	return io.ReadAll(io.LimitReader(f, maxNote))
}

// closeNote ends an execution that a dead process has begun. In every case it leaves a Begun record, since the run's
// events may lack the execution.
func (x *Executor) closeNote(ctx context.Context, n leftNote) error {
	if n.ofRun() {
		begun := &Begun{Task: n.detail.Task, Key: n.key.String(), Attempt: n.detail.Attempt}
		if err := x.keepBegun(ctx, n.detail.Workspace, n.detail.RunID, n.id, begun); err != nil {
			return err
		}
	}
	if n.status == nil { // its end is on record
		return nil
	}
	rec, err := x.records.Get(ctx, recordKey(n.key, n.id), fieldDetail)
	switch {
	case errors.Is(err, refstore.ErrNotFound):
		return x.recordLeft(ctx, n)
	case errors.Is(err, refstore.ErrDamaged):
		return nil // a damaged record is not an answer
	case err != nil:
		return err
	}
	if e, err := decodeFound(n.key, rec, nil); err == nil && lacksLogs(e) {
		if err := x.saveLogs(ctx, n); err != nil {
			return err
		}
	}
	_, err = x.CloseIfDead(ctx, n.key, n.id)
	if errors.Is(err, ErrMalformed) {
		err = nil // nor is a malformed one
	}
	return err
}

// recordLeft records an execution as an error, with its command's output so far.
func (x *Executor) recordLeft(ctx context.Context, n leftNote) error {
	a, err := x.leftAttempt(n)
	if err != nil {
		return nil // another version has written the note, which must close it
	}
	defer a.box.closeLogs()
	defer a.close()
	v := verdict{state: record.Error, message: x.stale(*n.status).Message}
	if n.job != "" {
		v.reason = ReasonLost
	}
	_, err = a.record(ctx, v, runner.Result{})
	if errors.Is(err, refstore.ErrConflict) {
		err = nil // another process has closed it
	}
	return err
}

// lacksLogs tells whether the machine that began an execution may have more of its logs than is on record: the
// execution goes on there, or another process has given it up.
func lacksLogs(e *Execution) bool {
	return e.State == record.Running || e.State == record.Error && (e.Detail == nil || !e.Detail.Logs.Known)
}

// saveLogs completes the logs of a record from the dead process's files. A conflict means that another process does the
// same.
func (x *Executor) saveLogs(ctx context.Context, n leftNote) error {
	a, err := x.leftAttempt(n)
	if err != nil {
		return nil
	}
	defer a.box.closeLogs()
	defer a.close()
	err = a.logs.publish(ctx)
	if err == nil {
		err = a.logs.finish(ctx)
	}
	if errors.Is(err, refstore.ErrConflict) {
		err = nil
	}
	return err
}

// leftAttempt is the attempt that a dead process has left, with the log files that are still in its sandbox.
func (x *Executor) leftAttempt(n leftNote) (*attempt, error) {
	inputs := make([]objectstore.Hash, len(n.status.InputHashes))
	for i, h := range n.status.InputHashes {
		var err error
		if inputs[i], err = objectstore.ParseHash(h); err != nil {
			return nil, err
		}
	}
	req := &Request{
		Job: Job{Ref: n.job}, Task: n.key.Task, Inputs: inputs, RunID: n.detail.RunID, Workspace: n.detail.Workspace,
		Name: n.detail.Task, Attempt: n.detail.Attempt,
	}
	of := &assignment{x: x, key: n.key, id: n.id, startedAt: n.status.StartedAt, req: req, left: n.detail}
	a := newAttempt(of, &sandbox{place: n.box}, true)
	a.logs.reopen(n.box.in, n.box.name, n.note.logs)
	return a, nil
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
