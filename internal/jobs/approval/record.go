package approval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"e3/refstore"
)

// Blocks are JSON records, so that a person who looks into a table can read them:
//
//	BLOCK/<workspace> · <run>/<task>    record
//
// The record is the task's latest block in the run. Earlier ones were approved; the events of the run tell of them.

// ErrMalformed reports a record that is not what this version of e3 writes.
var ErrMalformed = errors.New("malformed block")

func partition(ws string) string { return "BLOCK/" + ws }

// prefix is the prefix of a run's sort keys; "" for all runs.
func prefix(run string) string {
	if run == "" {
		return ""
	}
	return run + "/"
}

func key(ws, run, task string) refstore.Key {
	return refstore.Key{Partition: partition(ws), Sort: prefix(run) + task}
}

func (b *Block) key() refstore.Key { return key(b.Workspace, b.Run, b.Task) }

// blockRecord is a block as it is stored; the key has workspace, run and task.
type blockRecord struct {
	ID        string     `json:"id"`
	Type      Type       `json:"type"`
	Step      string     `json:"step,omitempty"`
	Execution string     `json:"execution,omitempty"`
	Status    Status     `json:"status"`
	Created   time.Time  `json:"created"`
	At        *time.Time `json:"at,omitempty"`
	By        string     `json:"by,omitempty"`
	Note      string     `json:"note,omitempty"`
}

// Bounds of a record, in bytes.
const (
	maxRecord = 64 << 10
	maxName   = 200 // of steps and executions
	maxBy     = 300
	maxNote   = 4 << 10
)

// shorten shortens a text to most bytes.
func shorten(s string, most int) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most-len("…")], "") + "…"
	}
	return s
}

func (b *Block) validate() error {
	id, err := uuid.Parse(b.ID)
	if err != nil || id.Version() != 7 || id.String() != b.ID {
		return fmt.Errorf("its id %.60q is no UUIDv7", b.ID)
	}
	switch {
	case b.Workspace == "" || b.Run == "" || b.Task == "":
		return fmt.Errorf("it is of workspace %.60q, run %.60q, task %.60q", b.Workspace, b.Run, b.Task)
	case b.Type != Review && b.Type != Suspend:
		return fmt.Errorf("type %.40q", b.Type)
	case b.Status != Pending && b.Status != Approved && b.Status != Rejected && b.Status != Closed:
		return fmt.Errorf("status %.40q", b.Status)
	case (b.Status == Pending) != b.At.IsZero():
		return errors.New("it is decided when it is said at what time")
	case len(b.Step) > maxName || len(b.Execution) > maxName || len(b.By) > maxBy || len(b.Note) > maxNote:
		return errors.New("a text in it is too long")
	}
	for _, text := range []string{b.Step, b.Execution, b.By, b.Note} {
		if !utf8.ValidString(text) {
			return errors.New("a text in it is no UTF-8")
		}
	}
	return nil
}

// encode never fails: the record holds texts, and times that were made or decoded.
func (b *Block) encode() []byte {
	r := blockRecord{ID: b.ID, Type: b.Type, Step: b.Step, Execution: b.Execution, Status: b.Status, Created: b.Created, By: b.By, Note: b.Note}
	if !b.At.IsZero() {
		r.At = &b.At
	}
	data, err := json.Marshal(r)
	if err != nil {
		panic("block: " + err.Error())
	}
	return data
}

// Decode reads a record strictly: a process that does not understand all of it must not decide. ErrMalformed.
func Decode(rec refstore.Record) (Block, error) {
	fail := func(err error) (Block, error) {
		return Block{}, fmt.Errorf("%w: record %.200q is not what this version of e3 writes: %w", ErrMalformed, rec.Key, err)
	}
	ws, ok := strings.CutPrefix(rec.Key.Partition, "BLOCK/")
	run, task, both := strings.Cut(rec.Key.Sort, "/")
	if !ok || !both {
		return fail(errors.New("its key is not that of a block"))
	}
	if len(rec.Value) > maxRecord {
		return fail(fmt.Errorf("%d bytes", len(rec.Value)))
	}
	d := json.NewDecoder(bytes.NewReader(rec.Value))
	d.DisallowUnknownFields()
	var r blockRecord
	if err := d.Decode(&r); err != nil {
		return fail(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fail(errors.New("more follows"))
	}
	b := Block{ID: r.ID, Workspace: ws, Run: run, Task: task, Step: r.Step, Type: r.Type, Execution: r.Execution, Status: r.Status, Created: r.Created, By: r.By, Note: r.Note}
	if r.At != nil {
		b.At = *r.At
	}
	if r.At != nil && r.At.IsZero() {
		return fail(errors.New("it was decided at no time"))
	}
	if err := b.validate(); err != nil {
		return fail(err)
	}
	return b, nil
}
